import { FAILURES, type FailureCode } from '../base/failure.ts'
import { limits } from '../base/limits.ts'
import { WORKER_METRICS_MAX } from '../table/layout.ts'
import { metricF64, type Table } from '../table/table.ts'

/**
 * Metrics are cells of the worker's page in the shared table: one writer each, so a plain add; any process can sum them
 * over the workers and print them. They outlive a worker that is replaced.
 */

const FAILURE_CODES = Object.keys(FAILURES) as FailureCode[]

/** Upper bounds of the histograms' buckets, in milliseconds. */
export const BUCKETS_MS = [
  1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000,
] as const

const COUNTERS = [
  'requests',
  'answers_2xx',
  'answers_4xx',
  'answers_5xx',
  'streams',
  'whole',
  'cut_by_client',
  'cut_by_engine',
  'refused_by_engine',
  'retries',
  'prompt_tokens',
  'cached_tokens',
  'completion_tokens',
  'estimated_calls',
  'bytes_in',
  'bytes_out',
  'pings',
] as const

const HISTOGRAMS = ['total_ms', 'first_token_ms', 'engine_ms', 'overhead_ms'] as const

export type Counter = (typeof COUNTERS)[number]
export type Histogram = (typeof HISTOGRAMS)[number]

const HISTOGRAM_CELLS = BUCKETS_MS.length + 2
const FAILURE_AT = COUNTERS.length
const HISTOGRAM_AT = FAILURE_AT + FAILURE_CODES.length
const CELLS = HISTOGRAM_AT + HISTOGRAMS.length * HISTOGRAM_CELLS
if (CELLS > WORKER_METRICS_MAX) throw new Error('metrics: more cells than a worker’s page holds')

const COUNTER_CELL = Object.fromEntries(COUNTERS.map((name, cell) => [name, cell])) as Record<Counter, number>
const FAILURE_CELL = Object.fromEntries(FAILURE_CODES.map((code, at) => [code, FAILURE_AT + at])) as Record<
  FailureCode,
  number
>
const HISTOGRAM_CELL = Object.fromEntries(
  HISTOGRAMS.map((name, at) => [name, HISTOGRAM_AT + at * HISTOGRAM_CELLS]),
) as Record<Histogram, number>

/** One worker's metrics. */
export type Metrics = {
  add(counter: Counter, amount: number): void
  failed(code: FailureCode): void
  observe(histogram: Histogram, value_ms: number): void
}

/** The metrics of a worker, kept in its page. */
export const openMetrics = (table: Table, worker: number): Metrics => {
  const cells = table.f64
  const start = metricF64(worker, 0)
  return {
    add: (counter, amount) => {
      cells[start + COUNTER_CELL[counter]]! += amount
    },
    failed: (code) => {
      cells[start + FAILURE_CELL[code]]! += 1
    },
    observe: (histogram, value_ms) => {
      const at = start + HISTOGRAM_CELL[histogram]
      let bucket = 0
      while (bucket < BUCKETS_MS.length && value_ms > BUCKETS_MS[bucket]!) bucket++
      cells[at + bucket]! += 1
      cells[at + BUCKETS_MS.length + 1]! += value_ms
    },
  }
}

/** A metric summed over all workers. */
export type Summed = {
  readonly counters: Readonly<Record<Counter, number>>
  readonly failures: Readonly<Partial<Record<FailureCode, number>>>
  /** Cumulative counts a bucket, the last one is all; and the sum of the values. */
  readonly histograms: Readonly<Record<Histogram, { readonly buckets: readonly number[]; readonly sum_ms: number }>>
}

/** Sums the metrics of every worker. */
export const sumMetrics = (table: Table): Summed => {
  const total = new Float64Array(CELLS)
  for (let worker = 0; worker < limits.workers_max; worker++)
    for (let cell = 0; cell < CELLS; cell++) total[cell]! += table.f64[metricF64(worker, cell)]!
  const histogram = (name: Histogram) => {
    const at = HISTOGRAM_CELL[name]
    let running = 0
    const buckets = Array.from({ length: BUCKETS_MS.length + 1 }, (_, bucket) => (running += total[at + bucket]!))
    return { buckets, sum_ms: total[at + BUCKETS_MS.length + 1]! }
  }
  return {
    counters: Object.fromEntries(COUNTERS.map((name) => [name, total[COUNTER_CELL[name]]!])) as Record<Counter, number>,
    failures: Object.fromEntries(
      FAILURE_CODES.map((code) => [code, total[FAILURE_CELL[code]]!]).filter(([, count]) => count !== 0),
    ),
    histograms: Object.fromEntries(HISTOGRAMS.map((name) => [name, histogram(name)])) as Record<
      Histogram,
      ReturnType<typeof histogram>
    >,
  }
}
