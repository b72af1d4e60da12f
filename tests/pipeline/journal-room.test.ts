import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import type { House } from '../../src/pipeline/house.ts'
import type { Routed } from '../../src/pipeline/call.ts'
import { hotPath } from '../../src/pipeline/pipeline.ts'
import { StreamAccount } from '../../src/pipeline/stream-account.ts'
import { openWatch } from '../../src/pipeline/watch.ts'
import { tickMs } from '../../src/base/clock.ts'
import { type HostileEngine, startHostileEngine } from '../kit/hostile-engine.ts'
import { json, WHOLE } from '../kit/script.ts'
import { arrival, unitHouse } from './unit-house.ts'

setDefaultTimeout(60_000)

/** A journal that takes no new calls keeps what room it has for the endings of those that run. */

let engines: HostileEngine[]
let unit: Awaited<ReturnType<typeof unitHouse>>
let watch: ReturnType<typeof openWatch>
beforeAll(async () => {
  engines = [
    startHostileEngine({ answers: () => json(200, WHOLE('a', 5, 1)) }),
    startHostileEngine({ answers: () => json(200, WHOLE('a', 5, 1)) }),
  ]
  unit = await unitHouse({
    config: {
      engines: engines.map(({ url }, nth) => ({ name: `e${nth}`, url, probe_ms: 0 })),
      models: [{ name: 'm1', targets: ['e0', 'e1'].map((engine) => ({ engine, model: 'm1' })), free: true }],
    },
  })
  watch = openWatch(tickMs)
})
afterAll(async () => {
  watch.stop()
  await unit[Symbol.asyncDispose]()
  for (const engine of engines) await engine[Symbol.asyncDispose]()
})

/** A worker whose journal has room for its first record, and from then on for those of running calls alone, or goes on. */
const houseOf = (fills: boolean): { house: House; kinds: string[] } => {
  const kinds: string[] = []
  const { journal } = unit.house
  const append: House['journal']['append'] = (record) => {
    kinds.push(record.kind)
    return journal.append(record)
  }
  const has_room = () => kinds.length === 0 || !fills
  return { house: { ...unit.house, watch, tick: tickMs, journal: { ...journal, append, has_room } }, kinds }
}

const serve = hotPath(({ code, status }) => new Response(code, { status }))

test.each([
  [false, ['intent', 'decision', 'ending']],
  [true, ['intent', 'ending']],
] as const)('a call that had a choice of engines, the journal being full since it began: %p', async (fills, wanted) => {
  const { house, kinds } = houseOf(fills)
  const body = JSON.stringify({ model: 'm1', messages: [{ role: 'user', content: 'hi' }] })
  const response = await serve(arrival({ body, headers: { 'content-type': 'application/json' } }), house)
  expect(response.status).toBe(200)
  expect(kinds).toEqual([...wanted])
})

test.each([
  [false, ['progress', 'progress']],
  [true, ['progress']],
] as const)('a long stream, the journal being full since its first progress: %p', (fills, wanted) => {
  const { house, kinds } = houseOf(fills)
  const call = { id: 'call_1', body: { scan: { values: {} } }, arrival: { endpoint: { prompt_field: 'messages' } } }
  const account = new StreamAccount(call as unknown as Routed, { ...house, tick: () => 0 })
  account.note(5_000)
  account.note(10_000)
  expect(kinds).toEqual([...wanted])
})
