import { coolMs, onProbation } from '../balance/health.ts'
import { limits } from '../base/limits.ts'
import type { Config } from '../config/schema.ts'
import { HEADER, SUBJECT, WORKER, WORKER_STATE } from '../table/layout.ts'
import { subjectOf, type Table, workerF64, workerI32 } from '../table/table.ts'

/** The whole machine as the shared table tells it: read without asking any other process. Times have three decimals at most. */

/** A worker that has not moved its heartbeat for so long does not count as live. */
export const HEARTBEAT_MS_MAX = 10_000

export type WorkerView = {
  readonly worker: number
  readonly pid: number
  readonly incarnation: number
  readonly state: keyof typeof WORKER_STATE
  /** Live by its own word and by its heartbeat. */
  readonly live: boolean
  readonly in_flight: number
  readonly open_streams: number
  readonly journal_full: boolean
  readonly heartbeat_age_ms: number
  readonly loop_lag_ms: number
  readonly rss_bytes: number
}

/** The workers that have ever started, by their number. */
export const workerViews = (table: Table, now_ms: number): WorkerView[] => {
  const views: WorkerView[] = []
  for (let worker = 0; worker < limits.workers_max; worker++) {
    const int = (cell: number) => Atomics.load(table.i32, workerI32(worker, cell))
    const float = (cell: number) => table.f64[workerF64(worker, cell)]!
    const state = STATES[int(WORKER.state)] ?? 'none'
    if (state === 'none') continue
    const heartbeat_age_ms = Math.max(0, now_ms - float(WORKER.heartbeat_ms))
    views.push({
      worker,
      pid: int(WORKER.pid),
      incarnation: int(WORKER.incarnation),
      state,
      live: state === 'live' && heartbeat_age_ms <= HEARTBEAT_MS_MAX,
      in_flight: int(WORKER.in_flight),
      open_streams: int(WORKER.open_streams),
      journal_full: int(WORKER.journal_full) !== 0,
      heartbeat_age_ms: rounded(heartbeat_age_ms),
      loop_lag_ms: rounded(float(WORKER.loop_lag_ms)),
      rss_bytes: float(WORKER.rss_bytes),
    })
  }
  return views
}

const STATES = Object.fromEntries(Object.entries(WORKER_STATE).map(([name, number]) => [number, name])) as Record<
  number,
  keyof typeof WORKER_STATE
>

/** `cooling`: benched after failures; `probation`: the bench is over and the next call decides. */
export type EngineHealth = 'healthy' | 'cooling' | 'probation'

export type EngineView = {
  readonly name: string
  readonly dialect: string
  readonly capacity: number
  readonly in_flight: number
  readonly health: EngineHealth
  readonly cooling_ms: number
  readonly failures_in_a_row: number
  readonly answered: number
  readonly failed: number
  /** Moving average until the first byte of an answer; null before the first. */
  readonly latency_ms: number | null
  readonly tokens_in_flight: number
  /** Calls waiting inside the engine, by its own word; null if it was never asked. */
  readonly waiting: number | null
  /** Share of the engine’s KV cache in use, 0 to 1; null if it was never asked. */
  readonly cache_usage: number | null
  readonly healthy_at: string | null
}

/** The configured engines and how they do, in the order of the configuration. */
export const engineViews = (table: Table, config: Config, now_ms: number): EngineView[] =>
  config.engines.flatMap((engine) => {
    const subject = subjectOf(table, 'engine', engine.name)
    if (subject === undefined) return []
    const int = (cell: number) => Atomics.load(table.i32, subject * 2 + cell)
    const big = (cell: number) => Number(Atomics.load(table.i64, subject + cell))
    const float = (cell: number) => table.f64[subject + cell]!
    const cooling_ms = coolMs(table, subject, now_ms)
    const scraped = float(SUBJECT.scraped_at_ms) > 0
    const latency_ms = float(SUBJECT.latency_ms)
    return {
      name: engine.name,
      dialect: engine.dialect,
      capacity: engine.capacity,
      in_flight: int(SUBJECT.count),
      health: cooling_ms > 0 ? 'cooling' : onProbation(table, subject) ? 'probation' : 'healthy',
      cooling_ms: rounded(cooling_ms),
      failures_in_a_row: int(SUBJECT.fail_streak),
      answered: big(SUBJECT.answered),
      failed: big(SUBJECT.failed),
      latency_ms: latency_ms > 0 ? rounded(latency_ms) : null,
      tokens_in_flight: big(SUBJECT.amount),
      waiting: scraped ? float(SUBJECT.waiting) : null,
      cache_usage: scraped ? float(SUBJECT.cache_usage) : null,
      healthy_at: isoOrNull(float(SUBJECT.healthy_at_ms)),
    }
  })

export type HouseView = {
  readonly draining: boolean
  readonly generation: number
  readonly started_at_ms: number
  readonly subjects_used: number
  readonly subjects_max: number
  readonly accountant_ready: boolean
  readonly accountant_age_ms: number
  readonly accountant_lag_ms: number
  readonly auditor_age_ms: number
  readonly leaves_behind: number
  readonly posted_calls: number
}

/** The house itself. `accountant_age_ms` is the time since the accountant's last turn, `accountant_lag_ms` how old the newest posted ending was when its row was there; `leaves_behind` the rows that had no leaf of the audit log at the auditor's last report. */
export const houseView = (table: Table, now_ms: number): HouseView => ({
  draining: Atomics.load(table.i32, HEADER.draining) !== 0,
  generation: Atomics.load(table.i32, HEADER.config_generation),
  started_at_ms: table.f64[HEADER.started_at_ms]!,
  subjects_used: Atomics.load(table.i32, HEADER.subjects_used),
  subjects_max: table.subjects_max,
  accountant_ready: Atomics.load(table.i32, HEADER.accountant_ready) !== 0,
  accountant_age_ms: rounded(Math.max(0, now_ms - table.f64[HEADER.accountant_seen_ms]!)),
  accountant_lag_ms: rounded(table.f64[HEADER.accountant_lag_ms]!),
  auditor_age_ms: rounded(Math.max(0, now_ms - table.f64[HEADER.auditor_seen_ms]!)),
  leaves_behind: table.f64[HEADER.leaves_behind]!,
  posted_calls: table.f64[HEADER.posted_calls]!,
})

/** What the house lacks to take calls, in words; nothing if it is ready. */
export const missing = (table: Table, now_ms: number): string[] => {
  const house = houseView(table, now_ms)
  const says: string[] = []
  if (house.draining) says.push('the house is stopping')
  const live = workerViews(table, now_ms).filter((worker) => worker.live)
  if (live.length === 0) says.push('no worker is live')
  else if (live.every((worker) => worker.journal_full)) says.push('no journal has room')
  if (!house.accountant_ready) says.push('the accountant has not yet posted the old journals')
  return says
}

/** Milliseconds to the microsecond: what is averaged or measured has digits that say nothing. */
const rounded = (ms: number): number => Math.round(ms * 1_000) / 1_000

/** A time as ISO 8601 in UTC; null for 0, which says never. */
export const isoOrNull = (at_ms: number | null | undefined): string | null =>
  at_ms === null || at_ms === undefined || at_ms <= 0 ? null : new Date(at_ms).toISOString()
