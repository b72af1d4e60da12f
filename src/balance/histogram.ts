/** Buckets of a histogram: each a tenth wider than the one before, from 1 ms to 40 minutes. */
const BUCKETS = 155
const GROWTH = 1.1
/** Samples after which all that went before counts half: the last one to two thousand decide. */
const HALVED_AT = 2_000

/**
 * How long something takes, as a distribution: 1.2 KiB, whatever the number of samples. A percentile is exact to a tenth,
 * and never below the true one of the samples that still count.
 */
export class Histogram {
  readonly #counts = new Float64Array(BUCKETS)
  /** Samples that count. */
  size = 0

  take(ms: number): void {
    const at = Math.ceil(Math.log(Math.max(1, ms)) / Math.log(GROWTH))
    this.#counts[Math.min(at, BUCKETS - 1)]! += 1
    if (++this.size < HALVED_AT) return
    this.size /= 2
    for (let bucket = 0; bucket < BUCKETS; bucket++) this.#counts[bucket]! /= 2
  }

  /** The time that so many of a hundred samples do not exceed; requires a sample. */
  percentile(percent: number): number {
    const wanted = (this.size * percent) / 100
    let seen = 0
    for (let bucket = 0; bucket < BUCKETS; bucket++) {
      seen += this.#counts[bucket]!
      // Halves of halves do not add up to the last digit.
      if (seen >= wanted - 1e-6) return GROWTH ** bucket
    }
    return GROWTH ** (BUCKETS - 1)
  }
}
