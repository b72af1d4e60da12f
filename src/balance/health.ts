import { SUBJECT } from '../table/layout.ts'
import type { Subject, Table } from '../table/table.ts'

/**
 * Passive health of an engine, shared by all workers. A failure benches it for a while that doubles with each further
 * failure; when the time is up exactly one call is let through as a probe, and its answer decides.
 */

export const HEALTH = {
  /** First bench; doubles with each failure in a row. */
  cooldown_ms: 2_000,
  cooldown_ms_max: 30_000,
  /** Longest bench that an engine's Retry-After can ask for. */
  retry_after_ms_max: 120_000,
  /** How long a probe may take before another is let through. */
  probe_ms: 10_000,
} as const

/** Milliseconds until the engine may be tried; 0 if it may. */
export const coolMs = (table: Table, engine: Subject, now_ms: number): number =>
  Math.max(0, Number(Atomics.load(table.i64, engine + SUBJECT.cool_until_ms)) - now_ms)

/** True if the engine failed last and its bench is over: whoever calls it now is its probe. */
export const onProbation = (table: Table, engine: Subject): boolean =>
  Atomics.load(table.i32, engine * 2 + SUBJECT.fail_streak) > 0

/** Claims the one probe of an engine on probation; false if another process has it. */
export const claimProbe = (table: Table, engine: Subject, now_ms: number): boolean => {
  const cell = engine + SUBJECT.cool_until_ms
  const seen = Atomics.load(table.i64, cell)
  if (Number(seen) > now_ms) return false
  return Atomics.compareExchange(table.i64, cell, seen, BigInt(Math.ceil(now_ms + HEALTH.probe_ms))) === seen
}

/** A good answer: the engine is healthy. */
export const markGood = (table: Table, engine: Subject, first_byte_ms: number): void => {
  Atomics.add(table.i64, engine + SUBJECT.answered, 1n)
  if (Atomics.load(table.i32, engine * 2 + SUBJECT.fail_streak) !== 0) {
    Atomics.store(table.i32, engine * 2 + SUBJECT.fail_streak, 0)
    Atomics.store(table.i64, engine + SUBJECT.cool_until_ms, 0n)
  }
  // Racing writers may lose a sample of a moving average; that is harmless.
  const cell = engine + SUBJECT.latency_ms
  const before = table.f64[cell]!
  table.f64[cell] = before === 0 || first_byte_ms > before ? first_byte_ms : before * 0.9 + first_byte_ms * 0.1
}

/** A failure: benches the engine, for the engine's own Retry-After if it gave one. */
export const markFailed = (table: Table, engine: Subject, now_ms: number, retry_after_ms?: number): void => {
  Atomics.add(table.i64, engine + SUBJECT.failed, 1n)
  const streak = Atomics.add(table.i32, engine * 2 + SUBJECT.fail_streak, 1)
  const backoff_ms = Math.min(HEALTH.cooldown_ms * 2 ** Math.min(streak, 10), HEALTH.cooldown_ms_max)
  const bench_ms =
    retry_after_ms === undefined ? backoff_ms : Math.min(Math.max(retry_after_ms, 1_000), HEALTH.retry_after_ms_max)
  Atomics.store(table.i64, engine + SUBJECT.cool_until_ms, BigInt(Math.ceil(now_ms + bench_ms)))
}

/** A probe that proved nothing (the client left, the request was at fault): the next call may probe. */
export const releaseProbe = (table: Table, engine: Subject): void => {
  if (onProbation(table, engine)) Atomics.store(table.i64, engine + SUBJECT.cool_until_ms, 0n)
}
