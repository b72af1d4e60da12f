import type { Clock } from '../base/clock.ts'
import type { Poster, PostponedResult } from './poster.ts'
import { advance, fold, settle, type JournaledRecord, type Position, type Posting } from './posting.ts'
import type { PriceList } from './pricing.ts'

/** The journals of all workers, as the accountant reads them. */
export type JournalTail = {
  /** The next records, at most `records_max`, each series in its order; empty if there is none now. */
  read(records_max: number): Promise<readonly JournaledRecord[]>
  /** Everything before these positions is in the ledger: files may go. Answers the series of which no file is left. */
  posted(positions: ReadonlyMap<string, Position>): Promise<readonly string[]>
}

export type AccountantPorts = {
  /** Begins at the positions that the poster has stored. */
  readonly tail: JournalTail
  readonly poster: Poster
  /** Asked once for each batch, so a new configuration's prices count at once. */
  readonly prices: () => PriceList
  readonly now: Clock
  /** False once a series' writer has stopped or died and will append no more. */
  readonly is_live: (series: string) => boolean
  /** Longest time until a new record is noticed. */
  readonly poll_ms: number
  /** Told of each write that has to be repeated. */
  readonly on_retry?: (cause: unknown, attempt: number) => void
  /** Awaited before each write: delay for experiments. */
  readonly before_post?: () => Promise<void>
}

export type AccountantStats = {
  readonly posted_calls: number
  readonly ignored_records: number
  readonly retries: number
  /** Age of the newest ending when its row was committed, in the last posting that had one. */
  readonly lag_ms: number
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
/** Pause between batches while there is work: calls that end within it share one commit. */
const BUSY_MS = 4
const RETRY_MS_MAX = 1_000
/** How often posted files and the write-ahead log are tidied. */
const TIDY_MS = 5_000

/**
 * Runs the loop: tail the journals, fold, post. An idle loop looks every `poll_ms`, a busy one at once. A write that
 * finds the database locked or full is repeated until it works; nothing is skipped and nothing posted twice. A series
 * whose writer is gone is read to its end first; then its open calls are settled.
 */
export const runAccountant = (ports: AccountantPorts): Accountant => {
  const state: State = {
    books: ports.poster.books(),
    settled: new Set(),
    counts: { posted_calls: 0, ignored_records: 0, retries: 0, lag_ms: 0 },
    pause: newPause(),
    drains: [],
    stopping: false,
    tidied_at_ms: ports.now(),
  }
  const done = loop(ports, state)
  return {
    drain: () => {
      const all_posted = new Promise<void>((resolve) => state.drains.push(resolve))
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
  books: ReturnType<Poster['books']>
  /** Series whose writer is gone and that left nothing open. */
  readonly settled: Set<string>
  readonly counts: { -readonly [name in keyof AccountantStats]: number }
  readonly pause: ReturnType<typeof newPause>
  drains: (() => void)[]
  stopping: boolean
  tidied_at_ms: number
}

const loop = async (ports: AccountantPorts, state: State): Promise<void> => {
  let idle_ms = BUSY_MS
  while (!state.stopping) {
    const waiting = state.drains
    state.drains = []
    const worked = await step(ports, state)
    await tidy(ports, state)
    if (state.stopping) return
    if (worked > 0) state.drains.push(...waiting)
    else for (const resolve of waiting) resolve()
    idle_ms = worked > 0 ? BUSY_MS : Math.min(idle_ms * 2, ports.poll_ms)
    if (worked < BATCH_RECORDS_MAX && state.drains.length === 0) await state.pause.wait(idle_ms)
  }
}

// Whether a writer is gone is asked before its series is read to the end, never after.
const step = async (ports: AccountantPorts, state: State): Promise<number> => {
  const series = [...state.books.positions.keys()]
  const gone = series.filter((name) => !state.settled.has(name) && !ports.is_live(name))
  const batch = await ports.tail.read(BATCH_RECORDS_MAX)
  if (batch.length > 0) {
    for (const item of batch) state.settled.delete(item.series)
    await write(ports, state, () => foldBatch(ports, state, batch))
    return batch.length
  }
  for (const name of gone) {
    if (!(await write(ports, state, () => settle(state.books, ports.prices(), name)))) break
    state.settled.add(name)
  }
  return gone.length
}

const foldBatch = ({ poster, prices }: AccountantPorts, { books }: State, batch: readonly JournaledRecord[]) => {
  const ids = new Set<string>()
  for (const { record } of batch) if (record !== undefined && !books.open.has(record.call_id)) ids.add(record.call_id)
  const posted = poster.posted([...ids])
  return posted instanceof Set ? fold(books, posted, prices(), batch) : posted
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
      return true
    }
    state.counts.retries += 1
    ports.on_retry?.(result.is === 'later' ? result.cause : 'another accountant has posted', attempt)
    if (state.stopping) return false
    await state.pause.wait(Math.min(2 ** attempt, RETRY_MS_MAX))
    if (result.is === 'stale') state.books = ports.poster.books()
  }
}

const tally = ({ now }: AccountantPorts, { counts }: State, posting: Posting) => {
  counts.posted_calls += posting.rows.length
  counts.ignored_records += posting.ignored
  const newest_ms = posting.rows.reduce((latest, row) => Math.max(latest, row.at_ms + row.total_ms), 0)
  if (newest_ms > 0) counts.lag_ms = Math.max(0, now() - newest_ms)
}

const tidy = async ({ now, tail, poster, is_live }: AccountantPorts, state: State) => {
  if (now() - state.tidied_at_ms < TIDY_MS) return
  state.tidied_at_ms = now()
  for (const series of await tail.posted(state.books.positions))
    if (!is_live(series) && poster.forget(series).is === 'posted') state.books.positions.delete(series)
  poster.checkpoint()
}

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
