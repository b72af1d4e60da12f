import { describe, expect, test } from 'bun:test'
import { openWriter } from '../../src/ledger/database.ts'
import { configuredPrices, newVersions, readPrices, syncPrices } from '../../src/ledger/price-store.ts'
import { priceList } from '../../src/ledger/pricing.ts'
import { forAll, tempFolder } from '../kit/wait.ts'

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
  // A clock that went back: the price of now and of everything planned is the configured one all the same.
  syncPrices(store, [m1], 500)
  expect(versions().slice(3)).toEqual(['m1 3 500', 'm1 4 3000'])
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
    { ...m1, price: { input: '2', output: '8', audio_input: '40', audio_output: '80' } },
    { audio_input_picodollars: 40_000_000n, audio_output_picodollars: 80_000_000n },
  ],
  [
    { name: 'm2', free: true },
    { free: true, input_picodollars: 0n },
  ],
] as const)('the price of %j', (model, want) =>
  expect(configuredPrices(model)).toMatchObject([{ from_ms: 0, price: want }]),
)

test('no price is none, not zero', () => expect(configuredPrices({ name: 'm3', free: false })).toEqual([]))

const at = (ms: number) => new Date(ms).toISOString()
const cents = (input: string) => ({ input, output: '0' })
/** A model whose price is the number of the change in force. */
const changing = (first: string, ...changes: readonly (readonly [from_ms: number, input: string])[]) => ({
  name: 'm1',
  free: false,
  price: cents(first),
  price_changes: changes.map(([from_ms, input]) => ({ from: at(from_ms), ...cents(input) })),
})

describe('versions with a start time', () => {
  // What is configured at which time, and the versions that are there afterwards: time and USD a million.
  test.each([
    ['planned ahead', [[100, changing('1', [500, '2'])]], ['100 1', '500 2']],
    [
      'planned, and time goes on',
      [
        [100, changing('1', [500, '2'])],
        [600, changing('1', [500, '2'])],
      ],
      ['100 1', '500 2'],
    ],
    [
      'a plan taken back is overruled at its time',
      [
        [100, changing('1', [500, '2'])],
        [200, changing('1')],
      ],
      ['100 1', '500 2', '500 1'],
    ],
    [
      'a plan moved',
      [
        [100, changing('1', [500, '2'])],
        [200, changing('1', [700, '2'])],
      ],
      ['100 1', '500 2', '500 1', '700 2'],
    ],
    ['first seen after its start', [[900, changing('1', [500, '2'])]], ['500 2']],
    [
      'a start in the past beside older versions counts from now',
      [
        [100, changing('1')],
        [900, changing('1', [500, '2'])],
      ],
      ['100 1', '900 2'],
    ],
    ['the same price again is no version', [[100, changing('1', [500, '1'])]], ['100 1']],
  ] as const)('%s', (_why, steps, want) => {
    const rows = steps.reduce<ReturnType<typeof newVersions>>(
      (known, [now_ms, model]) => [...known, ...newVersions(model, known, now_ms)],
      [],
    )
    expect(rows.map((row) => `${row.valid_from_ms} ${row.input_picodollars / 1_000_000n}`)).toEqual([...want])
  })

  test('whatever was planned before, the price from now on is the configured one, and the past stays', () => {
    forAll(300, (roll) => {
      let known: ReturnType<typeof newVersions> = []
      for (let now_ms = 0, round = 0; round < 6; round++) {
        now_ms += 1 + roll(300)
        const times = Array.from({ length: roll(4) }, () => 1 + roll(2_000)).toSorted((one, other) => one - other)
        const changes = [...new Set(times)].map((from_ms) => [from_ms, String(roll(4))] as const)
        const model = changing(String(roll(4)), ...changes)
        const before = priceList(known)
        const past = Array.from({ length: 20 }, () => roll(now_ms))
        const was = past.map((then) => before.at('m1', then)?.version)
        const first = known.length === 0
        known = [...known, ...newVersions(model, known, now_ms)]
        const list = priceList(known)
        if (!first) expect(past.map((then) => list.at('m1', then)?.version)).toEqual(was)
        for (const then of [now_ms, ...Array.from({ length: 20 }, () => now_ms + roll(2_000))])
          expect(list.at('m1', then)?.input_picodollars).toBe(
            configuredPrices(model).findLast(({ from_ms }) => from_ms <= then)!.price.input_picodollars,
          )
      }
    })
  })
})
