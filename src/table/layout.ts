/**
 * Layout of the shared table: one memory-mapped file, little-endian, shared by every process of a house.
 *
 * ```
 * offset          size            what
 * 0               4096            header (HEADER)
 * 4096            32 × 4096       one page a worker (WORKER), counters from WORKER.metrics on
 * 135168          131072          which engine has which conversation (SESSIONS)
 * 266240          65536           who has had how much of which queue (FLOWS)
 * 331776          524288          why the newest refused calls were refused (REFUSED)
 * 856064          n × 512         subjects (SUBJECT): key, tenant, model, engine, budget
 * ```
 *
 * Int32 and BigInt64 cells are touched through `Atomics` only. Float64 cells have one writer each. A subject's *total* is
 * what admission compares with a limit; its *columns*, one a worker, say whose share it is, so that the share of a dead
 * worker can be given back exactly (`counts.ts`).
 */

/** "WEIR" and the layout's version: another version is another file. */
export const TABLE_MAGIC = 0x52494557
export const TABLE_VERSION = 4

export const HEADER_BYTES = 4096
export const WORKER_BYTES = 4096
export const SUBJECT_BYTES = 512
export const SESSIONS_BYTES = 131_072
/** Where the index of conversations begins; it is read and written by `balance/sessions.ts`. */
export const SESSIONS_AT = HEADER_BYTES + 32 * WORKER_BYTES
export const FLOWS_BYTES = 65_536
/** Where the finish tags of tenants in queues begin (`balance/fair-time.ts`). */
export const FLOWS_AT = SESSIONS_AT + SESSIONS_BYTES
/** How many refused calls are remembered, and the bytes of each (`refused-ring.ts`). */
export const REFUSED_SLOTS = 256
export const REFUSED_SLOT_BYTES = 2_048
export const REFUSED_AT = FLOWS_AT + FLOWS_BYTES
/** Where the subjects begin. */
export const SUBJECTS_AT = REFUSED_AT + REFUSED_SLOTS * REFUSED_SLOT_BYTES

/** Cells of the header, as indexes into the view named by their comment. */
export const HEADER = {
  magic: 0, // i32
  version: 1, // i32
  subjects_max: 2, // i32
  subjects_used: 3, // i32
  draining: 4, // i32: 1 once the house stops
  config_generation: 5, // i32
  supervisor_pid: 6, // i32
  control_pid: 7, // i32
  accountant_pid: 8, // i32
  accountant_ready: 9, // i32: 1 once old journals are posted
  demo_pid: 10, // i32
  jobs_adopter: 11, // i32: 1 + the worker that looks for the jobs of dead ones; 0 if none does
  auditor_pid: 12, // i32
  key_file_bytes: 8, // i64: how much of the key file is valid
  started_at_ms: 9, // f64
  accountant_seen_ms: 10, // f64: last turn of the accountant's loop
  accountant_lag_ms: 11, // f64: age of the newest ending when its row was there
  posted_calls: 12, // f64
  auditor_seen_ms: 14, // f64: last report of the auditor
  leaves_behind: 15, // f64: rows that had no leaf then
  refused: 26, // i32: refused calls remembered so far, modulo 2^32
} as const

/** States of a worker's page. */
export const WORKER_STATE = { none: 0, starting: 1, live: 2, draining: 3 } as const

/** Cells of a worker's page, relative to its start. */
export const WORKER = {
  pid: 0, // i32
  incarnation: 1, // i32
  state: 2, // i32
  op_seq: 3, // i32: odd while the worker changes counts
  in_flight: 4, // i32
  open_streams: 5, // i32
  journal_full: 6, // i32
  budgets_owed: 7, // i32: 1 while a dead worker's share of budgets is not given back; its number must not be used
  heartbeat_ms: 4, // f64
  loop_lag_ms: 5, // f64
  rss_bytes: 6, // f64
  /** First metric cell. */
  metrics: 64, // f64
} as const

/** How many Float64 metric cells a worker's page holds. */
export const WORKER_METRICS_MAX = (WORKER_BYTES - WORKER.metrics * 8) / 8

/** Cells of a subject, relative to its start. */
export const SUBJECT = {
  hash: 0, // i64: 0 is free
  rate_tat_ns: 2, // i64: GCRA's theoretical arrival time, requests
  token_tat_ns: 3, // i64: the same for tokens
  count: 8, // i32: calls at once
  fail_streak: 9, // i32: engine: failures in a row
  flags: 10, // i32: engine: bits of `balance/health.ts`
  sessions: 11, // i32: engine: conversations that the index sends there
  amount: 6, // i64: held nanodollars, or prompt tokens that an engine has still to work through
  cool_until_ms: 8, // i64: engine: no traffic before
  latency_ms: 9, // f64: engine: moving average until the first byte
  waiting: 10, // f64: engine: queue as scraped
  cache_usage: 11, // f64: engine: KV cache as scraped, 0 to 1
  scraped_at_ms: 12, // f64
  answered: 13, // i64: engine: answers
  failed: 14, // i64: engine: failures
  healthy_at_ms: 15, // f64: engine: last good answer, part of one, or good probe
  count_columns: 32, // i32 × 32
  amount_columns: 32, // i64 × 32
} as const

/** Cells of an engine that lie over cells which only keys, tenants and budgets use. */
export const ENGINE = {
  latency_at_ms: 4, // i32: when `latency_ms` moved last, modulo 2^32
  token_at_ms: 5, // i32: when `token_ms` moved last, modulo 2^32
  token_ms: 3, // f64: moving average of the time a token takes in answers that come whole
  recovered_at_ms: 7, // f64: first good answer after a bench; traffic grows from there
} as const

/** Cells of a model, over cells that only engines use. */
export const MODEL = {
  retry_tat_us: 8, // i64: theoretical arrival time of the retry budget
  queue_time: 13, // i64: virtual time of the queue
  heads: 32, // i64 × 32: the key of the call that waits first in each worker; 0 if none does
} as const

/**
 * Cells of a subject that is a budget's slot, relative to its start (`budget-slot.ts`). `window` stands where other
 * subjects have nothing, so a value of 0 there tells them apart.
 */
export const BUDGET = {
  window: 2, // i32: 2·index when open, 2·index + 1 while being opened, 0 if never
  used: 2, // i64: everything ever held or charged here; the only cell that admission changes
  base: 3, // i64: what of `used` is not the open window's
  column_windows: 32, // i32 × 32: the window that a column is of
  columns: 32, // i64 × 32: held and charged by one worker in that window
} as const

/** Size of the file for so many subjects. */
export const tableBytes = (subjects_max: number): number => SUBJECTS_AT + subjects_max * SUBJECT_BYTES
