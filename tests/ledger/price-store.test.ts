import { expect, test } from 'bun:test'
import { openWriter } from '../../src/ledger/database.ts'
import { configuredPrice, readPrices, syncPrices } from '../../src/ledger/price-store.ts'
import { tempFolder } from '../kit/wait.ts'

const m1 = { name: 'm1', price: { input: '0.15', output: '0.60' }, free: false }

test('a changed price is a new version, an unchanged one is not, and none is ever changed', () => {
  using folder = tempFolder()
  const store = openWriter(folder.path, 'ledger')
  const versions = () =>
    readPrices(store).map(({ model, version, valid_from_ms }) => `${model} ${version} ${valid_from_ms}`)
  syncPrices(store, [m1, { name: 'm2', free: true }, { name: 'm3', free: false }], 1000)
  expect(versions()).toEqual(['m1 1 1000', 'm2 1 1000'])
  syncPrices(store, [m1, { name: 'm2', free: true }], 2000)
  expect(versions()).toEqual(['m1 1 1000', 'm2 1 1000'])
  const dearer = { ...m1, price: { ...m1.price, request: '0.01' } }
  expect(syncPrices(store, [dearer], 3000.7)).toEqual(readPrices(store))
  expect(versions()).toEqual(['m1 1 1000', 'm2 1 1000', 'm1 2 3000'])
  syncPrices(store, [m1], 500)
  expect(versions().at(-1)).toBe('m1 3 3000')
  expect(() => store.sqlite.run('UPDATE prices SET free = 1')).toThrow('a price version never changes')
  store.sqlite.close()
})

test.each([
  [m1, { input_picodollars: 150_000n, cached_input_picodollars: null, output_picodollars: 600_000n, free: false }],
  [
    { ...m1, price: { input: '2', cached_input: '0.5', output: '8', reasoning: '4', request: '0.000000001' } },
    { cached_input_picodollars: 500_000n, reasoning_picodollars: 4_000_000n, request_nanodollars: 1n },
  ],
  [
    { name: 'm2', free: true },
    { free: true, input_picodollars: 0n },
  ],
] as const)('the price of %j', (model, want) => expect(configuredPrice(model)).toMatchObject(want))

test('no price is undefined, not zero', () => expect(configuredPrice({ name: 'm3', free: false })).toBeUndefined())
