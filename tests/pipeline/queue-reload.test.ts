import { expect, test } from 'bun:test'
import { buildCatalogue, type Target } from '../../src/balance/catalogue.ts'
import type { NoTarget } from '../../src/balance/choose.ts'
import { loadConfig } from '../../src/config/load.ts'
import { openFetchTransport } from '../../src/engines/fetch-transport.ts'
import type { Call, Enriched } from '../../src/pipeline/call.ts'
import { waitForPlace } from '../../src/pipeline/waiting.ts'
import { leaveAll, takePlace } from '../../src/pipeline/place.ts'
import { arrival, NOW_MS, unitHouse } from './unit-house.ts'

const configOf = (capacity: number) => ({
  engines: [{ name: 'e', url: 'http://127.0.0.1:9/v1', capacity }],
  models: [{ name: 'm1', targets: [{ engine: 'e' }], free: true, queue: { size: 100, wait_ms: 60_000 } }],
})

/** As a call is when it has to wait. */
const waiting = (unit: Awaited<ReturnType<typeof unitHouse>>) => {
  const { house } = unit
  const model = house.catalogue.models.get('m1')!
  const call = {
    arrival: arrival(),
    headers: new Headers(),
    catalogue: house.catalogue,
    claims: [],
    deadline_tick_ms: 1e9,
    tenant: { name: 'acme', config: {} },
    key: {},
    ask: { key: 0, prompt_tokens: 10, answer_tokens: 10, margin: 1.25 },
  } as unknown as Enriched
  let got: unknown
  const tryPlace = (): Target | NoTarget => {
    const target = model.targets[0]!
    return takePlace(call as Call, house, target, 1) ? target : { why: 'full', wait_ms: 10 }
  }
  void waitForPlace(call, house, model, tryPlace).then((found) => (got = found))
  return { got: () => got, leave: () => leaveAll(call as Call, house) }
}

test('a queue that is never empty takes the capacity of a new configuration', async () => {
  await using unit = await unitHouse({ config: configOf(1) })
  const { house } = unit
  const first = waiting(unit)
  await Bun.sleep(5)
  expect(first.got()).toBeDefined() // It has the one place, and keeps it.
  const old = waiting(unit)
  const loaded = loadConfig({
    text: JSON.stringify({ tenants: [{ name: 'acme' }], ...configOf(3) }),
    env: {},
  })
  if ('faults' in loaded) throw new Error(JSON.stringify(loaded.faults))
  const open = (engine: { idle_ms: number }) => openFetchTransport({ idle_ms: engine.idle_ms, sockets_max: 8 })
  house.catalogue = buildCatalogue(loaded.config, 2, house.table, open, NOW_MS, house.catalogue)
  const next = waiting(unit)
  await Bun.sleep(5)
  expect([old.got(), next.got()]).toEqual([undefined, undefined])
  first.leave()
  await Bun.sleep(5)
  expect([old.got() !== undefined, next.got() !== undefined]).toEqual([true, true])
})
