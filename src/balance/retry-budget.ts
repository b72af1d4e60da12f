import { MODEL } from '../table/layout.ts'
import type { Table } from '../table/table.ts'
import type { Model } from './catalogue.ts'

/**
 * How much of a model's traffic may be retries, of all workers: a fifth of its calls, and a few a second in any case, so
 * that engines that fail are not hit harder the more they fail. A theoretical arrival time (as in GCRA): a retry moves it
 * forward, a call moves it back, and time passes.
 */
export const RETRY_BUDGET = {
  /** Retries a call pays for. */
  share: 0.2,
  /** Retries a second that need no calls. */
  floor_per_s: 2,
  /** Retries at once after a quiet time. */
  burst: 100,
} as const

const STEP_US = 1_000_000 / RETRY_BUDGET.floor_per_s
const CALL_US = BigInt(Math.round(STEP_US * RETRY_BUDGET.share))
const BURST_US = STEP_US * RETRY_BUDGET.burst

/** A call of the model came: it pays for its share of a retry. */
export const noteCall = (table: Table, model: Pick<Model, 'subject'>): void => {
  Atomics.sub(table.i64, model.subject + MODEL.retry_tat_us, CALL_US)
}

/** True if the model's budget pays for a retry now; it is then spent. */
export const retryAllowed = (table: Table, model: Pick<Model, 'subject'>, now_ms: number): boolean => {
  const cell = model.subject + MODEL.retry_tat_us
  const now_us = Math.floor(now_ms * 1_000)
  for (let seen = Atomics.load(table.i64, cell); ;) {
    const next_us = Math.max(Number(seen), now_us) + STEP_US
    if (next_us - now_us > BURST_US) return false
    const was = Atomics.compareExchange(table.i64, cell, seen, BigInt(next_us))
    if (was === seen) return true
    seen = was
  }
}
