import { ENGINE, SUBJECT } from '../table/layout.ts'
import type { Subject, Table } from '../table/table.ts'

/**
 * Moving averages of an engine, shared by all workers. They rise fast and fall slowly (peak-EWMA as in Finagle, with the
 * rise halved, so that one long prompt does not empty an engine), and fade with time, so that an engine that was slow
 * once is asked again. Racing writers may lose a sample; that is harmless.
 */

const RISE = 0.5
const FALL = 0.1
/** After so long without a sample an average has lost two thirds of its weight. */
const FADE_MS = 15_000
/** How long an engine that comes back takes to its full share of traffic, and where it begins. */
export const SLOW_START_MS = 5_000
const SLOW_START_LEAST = 0.2

/** Takes a sample of the time to the first token, of a streamed answer. */
export const noteLatency = (table: Table, engine: Subject, first_token_ms: number, now_ms: number): void => {
  note(table, engine, now_ms, SUBJECT.latency_ms, first_token_ms)
}

/** Takes a sample of the time for each token: all that an answer tells which comes whole. */
export const noteTokenTime = (table: Table, engine: Subject, token_ms: number, now_ms: number): void => {
  note(table, engine, now_ms, ENGINE.token_ms, token_ms)
}

/** The average time to the first token, faded by its age; 0 if no streamed call was answered yet. */
export const latencyMs = (table: Table, engine: Subject, now_ms: number): number =>
  faded(table, engine, now_ms, SUBJECT.latency_ms)

/** The average time for each token of whole answers, faded by its age; 0 if there was none yet. */
export const tokenMs = (table: Table, engine: Subject, now_ms: number): number =>
  faded(table, engine, now_ms, ENGINE.token_ms)

const AVERAGES = [SUBJECT.latency_ms, ENGINE.token_ms] as const

const note = (table: Table, engine: Subject, now_ms: number, cell: number, sample: number): void => {
  // Both fade by one clock, so both are brought up to now before it is set.
  for (const one of AVERAGES) table.f64[engine + one] = faded(table, engine, now_ms, one)
  // 0 means unknown; an engine that answers within the clock's grain is still known.
  table.f64[engine + cell] = Math.max(0.001, moved(table.f64[engine + cell]!, sample))
  table.f64[engine + ENGINE.sampled_at_ms] = now_ms
}

const faded = (table: Table, engine: Subject, now_ms: number, cell: number): number => {
  const average_ms = table.f64[engine + cell]!
  const age_ms = now_ms - table.f64[engine + ENGINE.sampled_at_ms]!
  return age_ms < 1_000 || average_ms === 0 ? average_ms : average_ms * Math.exp(-age_ms / FADE_MS)
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

const moved = (before: number, sample: number): number =>
  before === 0 ? sample : before + (sample - before) * (sample > before ? RISE : FALL)
