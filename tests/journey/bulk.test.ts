import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { type HostileEngine, startHostileEngine } from '../kit/hostile-engine.ts'
import { startHouse, type TestHouse } from '../kit/house.ts'
import { CH, D, DONE, end, json, script, sse200, US } from '../kit/script.ts'
import { eventually } from '../kit/wait.ts'

setDefaultTimeout(60_000)

/** C50: logs that explode, memory that climbs. What is large passes, and nothing of it stays. */

let engine: HostileEngine
let house: TestHouse
let key: string
const PICTURE = `data:image/png;base64,${'A'.repeat(5_000_000)}`
const PIECE = D(CH({ content: 'x'.repeat(250_000) }))

beforeAll(async () => {
  engine = startHostileEngine({
    answers: (request) =>
      (request.json() as { stream?: boolean }).stream
        ? script(sse200, ...Array.from({ length: 20 }, () => PIECE), D(CH({}, 'stop')), D(US(5, 20)), DONE, end)
        : json(400, {
            error: { message: `cannot read ${PICTURE}`, type: 'invalid_request_error', param: null, code: null },
          }),
  })
  house = await startHouse({
    config: {
      engines: [{ name: 'e', url: engine.url, capacity: 10_000, probe_ms: 0 }],
      models: [{ name: 'm1', free: true, targets: [{ engine: 'e' }] }],
      tenants: [{ name: 't' }],
    },
  })
  key = await house.key('t')
})
afterAll(async () => {
  await house?.[Symbol.asyncDispose]()
  await engine?.[Symbol.asyncDispose]()
})

const rssMb = (): number =>
  house
    .pids('worker')
    .reduce((sum, pid) => sum + Number(readFileSync(`/proc/${pid}/statm`, 'utf8').split(' ')[1]) * 4096, 0) / 1e6

test('a refusal that repeats a 5 MB picture is told within bounds, and leaves neither row nor log line of its size', async () => {
  const messages = [{ role: 'user', content: [{ type: 'image_url', image_url: { url: PICTURE } }] }]
  const answer = await house.post('/v1/chat/completions', { model: 'm1', messages }, key)
  expect(answer.status).toBe(400)
  const text = await answer.text()
  expect(text.length).toBeLessThan(65_536)
  expect((JSON.parse(text) as { error: { message: string } }).error.message).not.toBe('')
  const [row] = await house.rowsReach(1)
  expect(JSON.stringify(row).length).toBeLessThan(4_096)
  expect(house.log().length).toBeLessThan(65_536)
  expect(house.log()).not.toContain('AAAAAAAA')
})

test('rounds of 40 streams of 5 MB at once: memory falls back below 350 MB after each', async () => {
  const idle: number[] = []
  let peak = 0
  for (let round = 0; round < 3; round++) {
    const sizes = await Promise.all(
      Array.from({ length: 40 }, async () => {
        const answer = await house.post('/v1/chat/completions', { model: 'm1', stream: true, messages: [] }, key)
        let bytes = 0
        for await (const piece of answer.body as unknown as AsyncIterable<Uint8Array>) bytes += piece.length
        peak = Math.max(peak, rssMb())
        return bytes
      }),
    )
    expect(Math.min(...sizes)).toBeGreaterThan(5_000_000)
    await eventually(() => rssMb() < 350, 25_000)
    idle.push(rssMb())
  }
  process.stderr.write(
    `streams of 5 MB: peak ${peak.toFixed(0)} MB, between rounds ${idle.map((mb) => mb.toFixed(0)).join(', ')} MB\n`,
  )
})
