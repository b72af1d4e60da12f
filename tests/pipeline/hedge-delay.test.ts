import { expect, test } from 'bun:test'
import { Histogram } from '../../src/balance/histogram.ts'
import { delayMs } from '../../src/pipeline/hedge-delay.ts'

const times = (ms: number, count: number): Histogram => {
  const histogram = new Histogram()
  for (let nth = 0; nth < count; nth++) histogram.take(ms)
  return histogram
}
const bounds = { after_ms: 800, min_ms: 50, max_ms: 2_000 }

test.each([
  // settings, kind, known times, delay (to a tenth)
  [{}, 'stream', times(100, 500), 800],
  [{}, 'whole', times(100, 500), undefined],
  [{ whole_after_ms: 9_000 }, 'whole', times(100, 500), 9_000],
  [{ percentile: 95 }, 'stream', undefined, 800],
  [{ percentile: 95 }, 'stream', times(100, 49), 800],
  [{ percentile: 95 }, 'whole', times(100, 49), undefined],
  [{ percentile: 95, whole_after_ms: 9_000 }, 'whole', times(100, 49), 9_000],
  [{ percentile: 95 }, 'stream', times(100, 50), 100],
  [{ percentile: 95 }, 'whole', times(100, 50), 100],
  [{ percentile: 95 }, 'stream', times(2, 50), 50],
  [{ percentile: 95 }, 'stream', times(60_000, 50), 2_000],
] as const)('%p, %p: the delay', (settings, kind, known, wanted) => {
  const delay = delayMs({ ...bounds, ...settings }, kind, known)
  if (wanted === undefined || delay === undefined) return expect(delay).toBe(wanted)
  expect(delay).toBeGreaterThanOrEqual(wanted)
  expect(delay).toBeLessThanOrEqual(wanted * 1.1)
})
