import { ENGINE, SUBJECT } from '../table/layout.ts'
import type { Subject, Table } from '../table/table.ts'

/**
 * Moving averages of an engine, shared by all workers. They rise fast and fall slowly (peak-EWMA as in Finagle, with the
 * rise halved and bounded, so that one long prompt does not empty an engine). An engine that was slow is asked little and so tells
 * little: a sample after a silence weighs as much downwards as upwards, and what is old is forgotten. Racing writers may
 * lose a sample; that is harmless.
 */

const RISE = 0.5
const FALL = 0.1
/** The most that one sample counts, in averages: one long prompt doubles an average, and a slow engine shows in the second and third. */
const SAMPLE_MOST = 3
/** After so long without a sample the next one weighs more. */
const SILENCE_MS = 1_000
/** So long after its last sample an average says nothing any more. */
export const FORGET_MS = 120_000
/** How long an engine that comes back takes to its full share of traffic, and where it begins. */
export const SLOW_START_MS = 5_000
const SLOW_START_LEAST = 0.2

/** Takes a sample of the time to the first token, of a streamed answer. */
export const noteLatency = (table: Table, engine: Subject, first_token_ms: number, now_ms: number): void => {
  note(table, engine, now_ms, SUBJECT.latency_ms, ENGINE.latency_at_ms, first_token_ms)
}

/** Takes a sample of the time for each token: all that an answer tells which comes whole. */
export const noteTokenTime = (table: Table, engine: Subject, token_ms: number, now_ms: number): void => {
  note(table, engine, now_ms, ENGINE.token_ms, ENGINE.token_at_ms, token_ms)
}

/** The average time to the first token; 0 if no streamed call was answered for {@link FORGET_MS}. */
export const latencyMs = (table: Table, engine: Subject, now_ms: number): number =>
  known(table, engine, now_ms, SUBJECT.latency_ms, ENGINE.latency_at_ms)

/** The average time for each token of whole answers; 0 if there was none for {@link FORGET_MS}. */
export const tokenMs = (table: Table, engine: Subject, now_ms: number): number =>
  known(table, engine, now_ms, ENGINE.token_ms, ENGINE.token_at_ms)

/** Time since the last sample of either kind. Without a sample it means nothing. */
export const silentMs = (table: Table, engine: Subject, now_ms: number): number =>
  Math.min(ageMs(table, engine, now_ms, ENGINE.latency_at_ms), ageMs(table, engine, now_ms, ENGINE.token_at_ms))

// An age of more than 49 days looks younger than it is: the average is then believed for two minutes.
const ageMs = ({ i32 }: Table, engine: Subject, now_ms: number, at: number): number =>
  ((now_ms | 0) - i32[engine * 2 + at]!) >>> 0

const known = (table: Table, engine: Subject, now_ms: number, cell: number, at: number): number =>
  ageMs(table, engine, now_ms, at) < FORGET_MS ? table.f64[engine + cell]! : 0

const note = (table: Table, engine: Subject, now_ms: number, cell: number, at: number, sample: number): void => {
  const before = known(table, engine, now_ms, cell, at)
  const share = sample > before || ageMs(table, engine, now_ms, at) >= SILENCE_MS ? RISE : FALL
  // 0 means unknown; an engine that answers within the clock's grain is still known.
  table.f64[engine + cell] = Math.max(
    0.001,
    before === 0 ? sample : before + (Math.min(sample, SAMPLE_MOST * before) - before) * share,
  )
  table.i32[engine * 2 + at] = now_ms | 0
}

/** The engine is back: its share of traffic begins small. */
export const noteRecovery = (table: Table, engine: Subject, now_ms: number): void => {
  table.f64[engine + ENGINE.recovered_at_ms] = now_ms
}

/** The part of its share that an engine gets, 0.2 when it has just come back to 1. */
export const warmth = (table: Table, engine: Subject, now_ms: number): number => {
  const age_ms = now_ms - table.f64[engine + ENGINE.recovered_at_ms]!
  return age_ms >= SLOW_START_MS ? 1 : Math.max(SLOW_START_LEAST, age_ms / SLOW_START_MS)
}
