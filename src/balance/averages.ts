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

/** Takes a sample of the time to the first token. */
export const noteLatency = (table: Table, engine: Subject, first_token_ms: number, now_ms: number): void => {
  const before_ms = latencyMs(table, engine, now_ms)
  // 0 means unknown; an engine that answers within the clock's grain is still known.
  table.f64[engine + SUBJECT.latency_ms] = Math.max(0.001, moved(before_ms, first_token_ms))
  table.f64[engine + ENGINE.latency_at_ms] = now_ms
}

/** Takes a sample of the time that a token takes after the first. */
export const noteTokenTime = (table: Table, engine: Subject, token_ms: number): void => {
  if (token_ms > 0) table.f64[engine + ENGINE.token_ms] = moved(table.f64[engine + ENGINE.token_ms]!, token_ms)
}

/** The average time to the first token, faded by its age; 0 if no call was answered yet. */
export const latencyMs = (table: Table, engine: Subject, now_ms: number): number => {
  const average_ms = table.f64[engine + SUBJECT.latency_ms]!
  const age_ms = now_ms - table.f64[engine + ENGINE.latency_at_ms]!
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
