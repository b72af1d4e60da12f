import { expect, test } from 'bun:test'
import { Histogram } from '../../src/balance/histogram.ts'
import { randomFrom } from './kit.ts'

const SEED = Number(process.env['SEED'] ?? 5)

test('a percentile is the true one to a tenth, and never below it', () => {
  const random = randomFrom(SEED)
  for (const spread of [1, 3, 6]) {
    const histogram = new Histogram()
    const samples = Array.from({ length: 1_500 }, () => Math.exp(random() * spread) * 5)
    for (const ms of samples) histogram.take(ms)
    const sorted = samples.toSorted((one, other) => one - other)
    for (const percent of [50, 90, 95, 99]) {
      const truth = sorted[Math.ceil((sorted.length * percent) / 100) - 1]!
      const told = histogram.percentile(percent)
      if (told < truth * 0.999_999 || told > truth * 1.1)
        throw new Error(`SEED=${SEED}: percentile ${percent} is ${told}, not ${truth}`)
    }
  }
})

test('what was long ago is forgotten, and the number of samples stays bounded', () => {
  const histogram = new Histogram()
  for (let nth = 0; nth < 10_000; nth++) histogram.take(1_000)
  expect(histogram.size).toBeLessThan(2_000)
  for (let nth = 0; nth < 10_000; nth++) histogram.take(20)
  expect(histogram.percentile(95)).toBeLessThan(23)
  // A burst of slow ones shows at once.
  for (let nth = 0; nth < 200; nth++) histogram.take(1_000)
  expect(histogram.percentile(95)).toBeGreaterThanOrEqual(1_000)
})

test.each([
  [0, 1],
  [0.4, 1],
  [1, 1],
  [Number.MAX_VALUE, 1.1 ** 154],
])('a sample of %p ms is counted as %p', (ms, told) => {
  const histogram = new Histogram()
  histogram.take(ms)
  expect(histogram.percentile(99)).toBeCloseTo(told, 6)
})
