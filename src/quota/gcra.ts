import { SUBJECT } from '../table/layout.ts'
import type { Subject, Table } from '../table/table.ts'

/**
 * The generic cell rate algorithm (ITU-T I.371, virtual scheduling) on one cell of the shared table: exact across
 * processes, no lock. A limit of n a minute admits n at once and then one each 60/n seconds; in any span of t seconds at
 * most n + t·n/60.
 */

/** What a limit says of itself after a decision; the source of the `x-ratelimit-*` headers. */
export type RateState = {
  readonly admitted: boolean
  readonly limit: number
  readonly remaining: number
  /** Until the whole limit is free again. */
  readonly reset_ms: number
  /** Until this request would be admitted; 0 if it was. */
  readonly retry_after_ms: number
}

const MINUTE_NS = 60_000_000_000

/** The cell of a subject that a limit lives in: requests and tokens are limited apart. */
export type RateCell = 'rate_tat_ns' | 'token_tat_ns'

/** What one of a limit takes, whole nanoseconds. Rounded up, so a limit is never a little more than it says. */
export const stepNs = (per_minute: number): number => Math.ceil(MINUTE_NS / per_minute)

/**
 * Takes `amount` from a limit of `per_minute`, or nothing. Requires amount ≥ 1. An amount above the limit never fits.
 * The cell holds the theoretical arrival time in nanoseconds since the epoch; what lies in the past is as good as now.
 */
export const takeRate = (
  table: Table,
  subject: Subject,
  cell: RateCell,
  per_minute: number,
  amount: number,
  now_ms: number,
): RateState => {
  if (per_minute === 0) return CLOSED
  const index = subject + SUBJECT[cell]
  const step_ns = stepNs(per_minute)
  const now_ns = BigInt(Math.floor(now_ms)) * 1_000_000n
  const full_ns = per_minute * step_ns
  const cost_ns = amount * step_ns
  for (let seen = Atomics.load(table.i64, index); ;) {
    // Differences are far below 2^53 ns (104 days), so plain numbers carry them exactly.
    const used_ns = Math.max(0, Number(seen - now_ns))
    const over_ns = used_ns + cost_ns - full_ns
    if (over_ns > 0) return state(false, per_minute, used_ns, step_ns, full_ns, over_ns)
    const was = Atomics.compareExchange(table.i64, index, seen, now_ns + BigInt(used_ns + cost_ns))
    if (was === seen) return state(true, per_minute, used_ns + cost_ns, step_ns, full_ns, 0)
    seen = was
  }
}

/**
 * Gives back at once what was taken and not used: a request that another limit refused. Requires that at least as much
 * was taken. Not for later: time gives back too, and both together would be more than there was (`rates.ts` holds).
 */
export const giveRate = (table: Table, subject: Subject, cell: RateCell, per_minute: number, amount: number): void => {
  if (per_minute === 0 || amount === 0) return
  Atomics.sub(table.i64, subject + SUBJECT[cell], BigInt(amount * stepNs(per_minute)))
}

/** What a limit of 0 answers. */
export const CLOSED: RateState = { admitted: false, limit: 0, remaining: 0, reset_ms: 60_000, retry_after_ms: 60_000 }

/** Puts a limit's state into words. `used_ns` is how far the theoretical arrival time, with what is held, lies ahead. */
export const state = (
  admitted: boolean,
  limit: number,
  used_ns: number,
  step_ns: number,
  full_ns: number,
  over_ns: number,
): RateState => ({
  admitted,
  limit,
  remaining: Math.max(0, Math.floor((full_ns - used_ns) / step_ns)),
  reset_ms: Math.ceil(used_ns / 1e6),
  retry_after_ms: Math.ceil(over_ns / 1e6),
})
