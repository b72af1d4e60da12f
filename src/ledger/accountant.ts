import { type Clock, tickMs } from '../base/clock.ts'
import { Failure } from '../base/failure.ts'
import { callIdOf } from '../journal/record.ts'
import type { JournalPosition, JournalTail } from '../journal/tail.ts'
import type { Poster } from './poster.ts'
import { advance, fold, type JournaledRecord, type OwnBooks, type Position, type Posting, settle } from './posting.ts'
import type { PriceList } from './pricing.ts'
import type { PostponedResult } from './transaction.ts'

export type AccountantPorts = {
  /** Opened at {@link startPositions}; looks for new series every 200 ms or oftener. */
  readonly tail: Pick<JournalTail, 'poll' | 'writerDied' | 'states'>
  readonly poster: Poster
  /** Asked for each posting, so a new configuration's prices count at once. */
  readonly prices: () => PriceList
  readonly now: Clock
  /** False once a series' writer has died and will append no more; a series that its writer closed need not be known. */
  readonly is_live: (series: string) => boolean
  /** Longest time until a new record is noticed. */
  readonly poll_ms: number
  /** Calls that are open for less long are not stored (default 30 s): most are over by then, and a successor reads that much again. */
  readonly young_ms?: number
  /** Removes files that are posted; answers the series whose positions may be forgotten. */
  readonly tidy?: (positions: readonly JournalPosition[]) => readonly string[] | Failure
  /** Told of each write that has to be repeated, of a series that cannot be read on, and of what cannot be tidied. */
  readonly on_trouble?: (cause: unknown, attempt: number) => void
  /** Told of the calls of each posting, once it is committed. Must not throw. */
  readonly on_posted?: (rows: Posting['rows']) => void
  /** Awaited before each write: delay for experiments. */
  readonly before_post?: () => Promise<void>
}

/** Where the journal's tail has to begin. */
export const startPositions = (poster: Poster): JournalPosition[] => neededFrom(poster.books().positions)

export type AccountantStats = {
  readonly posted_calls: number
  readonly ignored_records: number
  readonly retries: number
  /** Age of the newest ending when its row was committed, in the last posting that had one. */
  readonly lag_ms: number
  /** All that was in the journals at this time is posted; 0 before the first look. */
  readonly posted_until_ms: number
}

export type Accountant = {
  /** Resolves when everything that is in the journals now is in the ledger. Rejects if the accountant stops before. */
  drain(): Promise<void>
  /** Ends after the write under way; resolves then. What is not posted stays in the journals. */
  stop(): Promise<void>
  stats(): AccountantStats
  /** Settles when the accountant has stopped; rejects if it met a bug, after which it must be started anew. */
  readonly done: Promise<void>
}

/** Records folded into one transaction. */
const BATCH_RECORDS_MAX = 2_000
const BATCH_BYTES_MAX = 8 * 1024 * 1024
const YOUNG_MS = 30_000
/**
 * Pause after a batch: calls that end within it share one commit, whose pages and sync cost as much as some ten rows. It
 * grows with what the batch held, so a single call has its row at once and a busy house commits ten times a second.
 */
const BUSY_MS = { least: 4, each_record: 2, most: 100 } as const
const RETRY_MS_MAX = 1_000
/** An idle look counts for a drain only from here on: a series that was just begun may not be known yet. */
const DISCOVER_MS = 220
/** How often posted files and the write-ahead log are tidied. */
const TIDY_MS = 5_000

/**
 * Runs the loop: tail the journals, fold, post. An idle loop looks every `poll_ms`, a busy one pauses the longer the more
 * it found. A write that finds the database locked or full is repeated until it works; nothing is skipped and nothing
 * posted twice. A series whose writer is gone is read to its end first; then its open calls are settled.
 */
export const runAccountant = (ports: AccountantPorts): Accountant => {
  const state: State = {
    books: ports.poster.books(),
    counts: { posted_calls: 0, ignored_records: 0, retries: 0, lag_ms: 0, posted_until_ms: 0 },
    pause: newPause(),
    drains: [],
    stopping: false,
    tidied_at_ms: ports.now(),
  }
  const done = loop(ports, state)
  return {
    drain: () => {
      const all_posted = new Promise<void>((resolve) => state.drains.push({ resolve, from_ms: tickMs() + DISCOVER_MS }))
      state.pause.wake()
      const stopped = done.then(() => Promise.reject(new Error('the accountant stopped before all was posted')))
      return Promise.race([all_posted, stopped])
    },
    stop: () => {
      state.stopping = true
      state.pause.wake()
      return done
    },
    stats: () => ({ ...state.counts }),
    done,
  }
}

type State = {
  books: OwnBooks
  readonly counts: { -readonly [name in keyof AccountantStats]: number }
  readonly pause: ReturnType<typeof newPause>
  drains: { readonly resolve: () => void; readonly from_ms: number }[]
  stopping: boolean
  tidied_at_ms: number
}

const loop = async (ports: AccountantPorts, state: State): Promise<void> => {
  let pause_ms: number = BUSY_MS.least
  while (!state.stopping) {
    const waiting = state.drains.filter(({ from_ms }) => from_ms <= tickMs())
    const worked = await step(ports, state)
    state.tidied_at_ms = tidy(ports, state, ports.now())
    if (state.stopping) return
    if (worked === 0) {
      for (const { resolve } of waiting) resolve()
      state.drains = state.drains.filter((drain) => !waiting.includes(drain))
    }
    pause_ms = worked > 0 ? busyMs(worked) : Math.min(Math.max(pause_ms, BUSY_MS.least) * 2, ports.poll_ms)
    await state.pause.wait(pause_ms)
  }
}

const busyMs = (records: number): number =>
  records < BATCH_RECORDS_MAX ? Math.min(BUSY_MS.least + records * BUSY_MS.each_record, BUSY_MS.most) : 0

// Whether a writer is gone is asked before its series is read to the end, never after.
const step = async (ports: AccountantPorts, state: State): Promise<number> => {
  const { tail, prices, is_live } = ports
  const looked_at_ms = ports.now()
  for (const { series, state: stands } of tail.states())
    if (stands === 'live' && !is_live(series)) tail.writerDied(series)
  const { entries, more } = tail.poll({ records_max: BATCH_RECORDS_MAX, bytes_max: BATCH_BYTES_MAX })
  if (entries.length > 0 && !(await write(ports, state, () => foldBatch(ports, state, entries)))) return 0
  let settled = 0
  for (const end of tail.states()) {
    if (end.state !== 'finished' || state.books.positions.get(end.series)?.finished) continue
    if (!(await write(ports, state, () => settle(state.books, prices(), end.series, end)))) return 0
    settled += 1
  }
  if (!more) state.counts.posted_until_ms = looked_at_ms
  return more ? BATCH_RECORDS_MAX : entries.length + settled
}

const foldBatch = (ports: AccountantPorts, { books }: State, batch: readonly JournaledRecord[]) => {
  const { poster, prices, now, young_ms = YOUNG_MS } = ports
  const ids = new Set<string>()
  for (const { record } of batch) {
    const id = record === undefined ? '' : callIdOf(record)
    if (id !== '' && !books.open.has(id)) ids.add(id)
  }
  const posted = poster.posted([...ids])
  return posted instanceof Set ? fold(books, posted, prices(), batch, now() - young_ms) : posted
}

// False only if the accountant is stopped before the write succeeded.
const write = async (ports: AccountantPorts, state: State, make: () => Posting | PostponedResult): Promise<boolean> => {
  for (let attempt = 1; ; attempt++) {
    await ports.before_post?.()
    const posting = make()
    const result = 'is' in posting ? posting : ports.poster.post(posting)
    if (!('is' in posting) && result.is === 'posted') {
      advance(state.books, posting)
      tally(ports, state, posting)
      if (posting.rows.length > 0) ports.on_posted?.(posting.rows)
      return true
    }
    state.counts.retries += 1
    ports.on_trouble?.(result.is === 'later' ? result.cause : 'another accountant has posted', attempt)
    if (state.stopping) return false
    await state.pause.wait(Math.min(2 ** attempt, RETRY_MS_MAX))
    if (result.is === 'stale') state.books = reloaded(ports.poster, state.books)
  }
}

/** The books after another has posted: what is stored, and of the calls that still have no row what was not stored. */
const reloaded = (poster: Poster, before: OwnBooks): OwnBooks => {
  const books = poster.books()
  const posted = poster.posted([...before.unstored.keys()])
  if (!(posted instanceof Set)) return before
  for (const [id, place] of before.unstored) {
    if (posted.has(id)) continue
    books.open.set(id, before.open.get(id)!)
    books.unstored.set(id, place)
  }
  return books
}

const tally = ({ now }: AccountantPorts, { counts }: State, posting: Posting) => {
  counts.posted_calls += posting.rows.length
  counts.ignored_records += posting.ignored
  const newest_ms = posting.rows.reduce((latest, row) => Math.max(latest, row.at_ms + row.total_ms), 0)
  if (newest_ms > 0) counts.lag_ms = Math.max(0, now() - newest_ms)
}

const tidy = (ports: AccountantPorts, { books, ...state }: State, at_ms: number): number => {
  if (at_ms - state.tidied_at_ms < TIDY_MS) return state.tidied_at_ms
  for (const { failure } of ports.tail.states()) if (failure !== undefined) ports.on_trouble?.(failure, 1)
  const gone = ports.tidy?.(neededFrom(books.positions)) ?? []
  if (gone instanceof Failure) ports.on_trouble?.(gone, 1)
  else for (const series of gone) if (ports.poster.forget(series).is === 'posted') books.positions.delete(series)
  ports.poster.checkpoint()
  return at_ms
}

/** The places from which on the journals are needed. */
const neededFrom = (positions: ReadonlyMap<string, Position>): JournalPosition[] =>
  [...positions].map(([series, { finished, segment, offset, again = { segment, offset } }]) => ({
    ...{ series, finished, ...again },
  }))

// One sleeper, which `wake` ends early.
const newPause = () => {
  let end = () => {}
  return {
    wait: (ms: number) =>
      new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, ms)
        end = () => {
          clearTimeout(timer)
          resolve()
        }
      }),
    wake: () => end(),
  }
}
