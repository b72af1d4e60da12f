import { expect, test } from 'bun:test'
import { buildCatalogue } from '../../src/balance/catalogue.ts'
import { loadConfig } from '../../src/config/load.ts'
import { openFetchTransport } from '../../src/engines/fetch-transport.ts'
import { configOf, waiting } from './queue-kit.ts'
import { NOW_MS, unitHouse } from './unit-house.ts'

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
