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

const MINUTE_NS = 60_000_000_000n

/** The cell of a subject that a limit lives in: requests and tokens are limited apart. */
export type RateCell = 'rate_tat_ns' | 'token_tat_ns'

/**
 * Takes `amount` from a limit of `per_minute`, or nothing. Requires amount ≥ 1. An amount above the limit never fits.
 * The cell holds the theoretical arrival time in nanoseconds since the epoch.
 */
export const takeRate = (
  table: Table,
  subject: Subject,
  cell: RateCell,
  per_minute: number,
  amount: number,
  now_ms: number,
): RateState => {
  if (per_minute === 0) return { admitted: false, limit: 0, remaining: 0, reset_ms: 60_000, retry_after_ms: 60_000 }
  const index = subject + SUBJECT[cell]
  const limit = BigInt(per_minute)
  const step_ns = (MINUTE_NS + limit - 1n) / limit
  const now_ns = BigInt(Math.floor(now_ms)) * 1_000_000n
  const full_ns = limit * step_ns
  const cost_ns = BigInt(amount) * step_ns
  for (let seen = Atomics.load(table.i64, index); ;) {
    const from = seen > now_ns ? seen : now_ns
    const after = from + cost_ns
    const over_ns = after - now_ns - full_ns
    if (over_ns > 0n) return state(false, per_minute, from - now_ns, step_ns, full_ns, over_ns)
    const was = Atomics.compareExchange(table.i64, index, seen, after)
    if (was === seen) return state(true, per_minute, after - now_ns, step_ns, full_ns, 0n)
    seen = was
  }
}

/** Gives back what was taken and not used. Requires that at least as much was taken. */
export const giveRate = (table: Table, subject: Subject, cell: RateCell, per_minute: number, amount: number): void => {
  if (per_minute === 0 || amount === 0) return
  const limit = BigInt(per_minute)
  Atomics.sub(table.i64, subject + SUBJECT[cell], BigInt(amount) * ((MINUTE_NS + limit - 1n) / limit))
}

const state = (
  admitted: boolean,
  limit: number,
  used_ns: bigint,
  step_ns: bigint,
  full_ns: bigint,
  over_ns: bigint,
): RateState => ({
  admitted,
  limit,
  remaining: Math.max(0, Number((full_ns - used_ns) / step_ns)),
  reset_ms: Math.ceil(Number(used_ns) / 1e6),
  retry_after_ms: Math.ceil(Number(over_ns) / 1e6),
})
