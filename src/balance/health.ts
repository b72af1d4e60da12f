import { nowMs } from '../base/clock.ts'
import { SUBJECT } from '../table/layout.ts'
import type { Subject, Table } from '../table/table.ts'
import { noteLatency, noteRecovery } from './averages.ts'

/**
 * The breaker of an engine, shared by all workers. A failure benches it for a while that doubles with each further
 * failure; when the time is up exactly one call of all workers is let through as a trial, and its answer decides.
 * Expiry alone makes an engine eligible again, so no engine is benched for ever, not even the only one of a model.
 */

export const HEALTH = {
  /** First bench; doubles with each failure in a row. */
  cooldown_ms: 2_000,
  cooldown_ms_max: 30_000,
  /** Longest bench that an engine's Retry-After can ask for. */
  retry_after_ms_max: 120_000,
  /** How long a trial may take before another is let through. */
  probe_ms: 10_000,
  /** Failures in a row from which an engine that answers badly counts as broken: the cap on benched engines no longer spares it. */
  broken_streak: 3,
} as const

/** Why an engine is benched: it says nothing, it answers badly, it asked for it, or it cannot be reached. */
export type BenchKind = keyof typeof BENCH
const BENCH = { silent: 0, bad: 1, asked: 2, unreachable: 3 } as const
const KINDS = ['silent', 'bad', 'asked', 'unreachable'] as const satisfies readonly BenchKind[]

/** The bits of an engine's flags. */
const FLAG = {
  /** Two bits: why it was benched last (BENCH). */
  bench: 0b11,
  /** The one call that tries it after a bench is under way. */
  trial: 0b100,
  /** The last probe failed. */
  probe_bad: 0b1000,
} as const

/** The kind of a failure by its code, or by the status that the engine answered. */
export const benchKindOf = (because: string): BenchKind => {
  if (because === 'engine_unreachable') return 'unreachable'
  return because === 'engine_timeout' ? 'silent' : 'bad'
}

/** Milliseconds until the engine may be tried; 0 if it may. */
export const coolMs = (table: Table, engine: Subject, now_ms: number): number =>
  Math.max(0, Number(Atomics.load(table.i64, engine + SUBJECT.cool_until_ms)) - now_ms)

/** True if the engine failed last and its bench is over: whoever calls it now is its trial. */
export const onProbation = (table: Table, engine: Subject): boolean =>
  Atomics.load(table.i32, engine * 2 + SUBJECT.fail_streak) > 0

/** Why an engine is benched, if it has not failed often: of such benches some are lifted when too many engines are out. */
export const lightBench = (table: Table, engine: Subject): BenchKind | undefined => {
  if (Atomics.load(table.i32, engine * 2 + SUBJECT.fail_streak) >= HEALTH.broken_streak) return undefined
  return KINDS[Atomics.load(table.i32, engine * 2 + SUBJECT.flags) & FLAG.bench]
}

/** Claims the one trial of an engine on probation; false if another process has it. */
export const claimProbe = (table: Table, engine: Subject, now_ms: number): boolean => {
  const cell = engine + SUBJECT.cool_until_ms
  const seen = Atomics.load(table.i64, cell)
  if (Number(seen) > now_ms) return false
  const until = BigInt(Math.ceil(now_ms + HEALTH.probe_ms))
  if (Atomics.compareExchange(table.i64, cell, seen, until) !== seen) return false
  Atomics.or(table.i32, engine * 2 + SUBJECT.flags, FLAG.trial)
  return true
}

/** A good answer: the engine is healthy. `first_token_ms` is that of a stream; of a whole answer nobody knows it. */
export const markGood = (table: Table, engine: Subject, first_token_ms: number | undefined, now_ms = nowMs()): void => {
  Atomics.add(table.i64, engine + SUBJECT.answered, 1n)
  markAlive(table, engine, now_ms)
  if (Atomics.load(table.i32, engine * 2 + SUBJECT.fail_streak) !== 0) {
    endTrial(table, engine)
    Atomics.store(table.i32, engine * 2 + SUBJECT.fail_streak, 0)
    Atomics.store(table.i64, engine + SUBJECT.cool_until_ms, 0n)
    noteRecovery(table, engine, now_ms)
  }
  if (first_token_ms !== undefined) noteLatency(table, engine, first_token_ms, now_ms)
}

/** A part of an answer came: the engine lives, however long its answers and its probes take. */
export const markAlive = (table: Table, engine: Subject, now_ms: number): void => {
  table.f64[engine + SUBJECT.healthy_at_ms] = now_ms
}

/** True if an answer, a part of one or a good probe came at this time or later. */
export const aliveSince = (table: Table, engine: Subject, at_ms: number): boolean =>
  table.f64[engine + SUBJECT.healthy_at_ms]! >= at_ms

/**
 * A failure: benches the engine, for the engine's own Retry-After if it gave one. Calls that were under way when a bench
 * began do not make it longer, or an engine that dies with many calls would be out for the longest time at once.
 */
export const markFailed = (
  table: Table,
  engine: Subject,
  now_ms: number,
  retry_after_ms?: number,
  kind: BenchKind = 'silent',
): void => {
  Atomics.add(table.i64, engine + SUBJECT.failed, 1n)
  const tried = endTrial(table, engine)
  const benched_ms = tried ? 0 : coolMs(table, engine, now_ms)
  if (benched_ms > 0 && retry_after_ms === undefined) return
  const streak_cell = engine * 2 + SUBJECT.fail_streak
  const streak = benched_ms > 0 ? 0 : Atomics.add(table.i32, streak_cell, 1)
  const bench_ms =
    retry_after_ms === undefined
      ? Math.min(HEALTH.cooldown_ms * 2 ** Math.min(streak, 10), HEALTH.cooldown_ms_max)
      : Math.min(Math.max(retry_after_ms, 1_000), HEALTH.retry_after_ms_max)
  if (bench_ms > benched_ms) bench(table, engine, now_ms + bench_ms, retry_after_ms === undefined ? kind : 'asked')
}

/** A trial that proved nothing (the client left, the request was at fault): the next call may try. */
export const releaseProbe = (table: Table, engine: Subject): void => {
  if (onProbation(table, engine) && endTrial(table, engine))
    Atomics.store(table.i64, engine + SUBJECT.cool_until_ms, 0n)
}

/**
 * What an active probe found; only the control process calls it. A bad one keeps the engine out for `hold_ms`. A good
 * one ends the bench of an engine that could not be reached or whose last probe was bad: the next call is its trial.
 * An engine that answers probes and fails calls gets nothing from it.
 */
export const markProbed = (table: Table, engine: Subject, good: boolean, now_ms: number, hold_ms: number): void => {
  const flags = engine * 2 + SUBJECT.flags
  if (!good) {
    Atomics.or(table.i32, flags, FLAG.probe_bad)
    Atomics.compareExchange(table.i32, engine * 2 + SUBJECT.fail_streak, 0, 1)
    if (coolMs(table, engine, now_ms) < hold_ms) bench(table, engine, now_ms + hold_ms, 'unreachable')
    return
  }
  const was = Atomics.and(table.i32, flags, ~FLAG.probe_bad)
  markAlive(table, engine, now_ms)
  const ends = (was & FLAG.probe_bad) !== 0 || (was & FLAG.bench) === BENCH.unreachable
  if (ends && (was & FLAG.trial) === 0 && onProbation(table, engine))
    Atomics.store(table.i64, engine + SUBJECT.cool_until_ms, 0n)
}

/** True if a trial was under way. */
const endTrial = (table: Table, engine: Subject): boolean =>
  (Atomics.and(table.i32, engine * 2 + SUBJECT.flags, ~FLAG.trial) & FLAG.trial) !== 0

const bench = (table: Table, engine: Subject, until_ms: number, kind: BenchKind): void => {
  const flags = engine * 2 + SUBJECT.flags
  Atomics.and(table.i32, flags, ~FLAG.bench)
  Atomics.or(table.i32, flags, BENCH[kind])
  Atomics.store(table.i64, engine + SUBJECT.cool_until_ms, BigInt(Math.ceil(until_ms)))
}
