import { expect, test } from 'bun:test'
import { usd } from '../../src/base/money.ts'
import { charge, priceList, type Price, type Usage } from '../../src/ledger/pricing.ts'
import { PRICE } from './make.ts'

const usage = (
  prompt: number,
  cached: number,
  completion: number,
  reasoning: number,
  heard = 0,
  spoken = 0,
): Usage => ({
  prompt_tokens: prompt,
  cached_tokens: cached,
  completion_tokens: completion,
  reasoning_tokens: reasoning,
  audio_input_tokens: heard,
  audio_output_tokens: spoken,
})

const SMALL: Price = {
  ...PRICE,
  input_picodollars: 150_000n,
  cached_input_picodollars: null,
  output_picodollars: 600_000n,
}

// why, usage (prompt, cached, completion, reasoning), what differs from PRICE, USD
test.each<[string, Usage, Partial<Price>, string]>([
  ['cached once, reasoning inside the completion', usage(2000, 1500, 600, 450), {}, '0.00655'],
  ['reasoning priced apart', usage(2000, 1500, 600, 450), { reasoning_picodollars: 4_000_000n }, '0.00475'],
  ['no discount for cached tokens', usage(2000, 1500, 600, 450), { cached_input_picodollars: null }, '0.0088'],
  ['more cached than prompt: uncached is not below zero', usage(100, 250, 0, 0), {}, '0.00005'],
  ['more reasoning than completion', usage(0, 0, 10, 25), { reasoning_picodollars: 1_000_000n }, '0.00001'],
  [
    'audio priced apart',
    usage(1000, 200, 500, 100, 300, 50),
    { audio_input_picodollars: 40_000_000n, audio_output_picodollars: 80_000_000n },
    '0.0207',
  ],
  ['audio without a price of its own', usage(1000, 0, 500, 0, 300, 50), {}, '0.006'],
  [
    'more audio than is left of the prompt',
    usage(100, 40, 0, 0, 90, 0),
    { audio_input_picodollars: 1_000_000n },
    '0.00008',
  ],
  ['a price for the request alone', usage(0, 0, 0, 0), { request_nanodollars: 7n }, '0.000000007'],
  [
    'pictures beside the tokens',
    { ...usage(12, 0, 1, 0), images: 3 },
    { ...SMALL, image_nanodollars: 1_500_000n },
    '0.0045024',
  ],
  ['pictures without a price', { ...usage(12, 0, 1, 0), images: 3 }, SMALL, '0.0000024'],
  ['free on purpose', usage(10, 0, 10, 0), { free: true, request_nanodollars: 7n }, '0.00'],
  ['far below a cent', usage(12, 0, 1, 0), SMALL, '0.0000024'],
  ['just below half a nanodollar', usage(1, 0, 0, 0), { input_picodollars: 499n }, '0.00'],
  ['half a nanodollar goes up', usage(1, 0, 0, 0), { input_picodollars: 500n }, '0.000000001'],
  ['rounded once', usage(1, 0, 1, 0), { input_picodollars: 400n, output_picodollars: 400n }, '0.000000001'],
])('%s', (_why, used, price, want) => expect(usd(charge({ ...PRICE, ...price }, used))).toBe(want))

test('ten thousand tiny calls add up to exactly $0.024', () => {
  let sum = 0n
  for (let call = 0; call < 10_000; call++) sum += charge(SMALL, usage(12, 0, 1, 0))
  expect(sum).toBe(24_000_000n)
})

const row = (model: string, version: number, valid_from_ms: number) => ({ model, version, valid_from_ms, ...PRICE })
const list = priceList([row('m1', 3, 500), row('m1', 1, 100), row('m2', 1, 0), row('m1', 2, 500)])

test.each([
  ['m1', 99, undefined, 'before the first'],
  ['m1', 100, 1, 'from the very millisecond'],
  ['m1', 499, 1, 'until the next'],
  ['m1', 500, 3, 'the higher of two versions of one time'],
  ['m2', 1e15, 1, 'for ever'],
  ['m3', 500, undefined, 'a model without a price'],
] as const)('the price of %s at %d is version %p: %s', (model, at_ms, version) =>
  expect(list.at(model, at_ms)?.version).toBe(version as number),
)

test.each([
  ['m1', 2, 500],
  ['m1', 4, undefined],
  ['m3', 1, undefined],
] as const)('%s has a version %d from %p', (model, version, valid_from_ms) =>
  expect(list.version(model, version)?.valid_from_ms).toBe(valid_from_ms as number),
)
