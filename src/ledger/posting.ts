import type { JournalEntry } from '../journal/reader.ts'
import { callRow, endOf, entriesAtEnd, entriesAtIntent, entriesAtOnce, refusalRow } from './call-row.ts'
import { learn, unknownCall, type OpenCall } from './open-call.ts'
import type { PriceList } from './pricing.ts'
import type { AttemptRow, CallRow, DecisionRow, NewEntry, NewRefusal } from './tables.ts'

/** How far a journal series is posted: everything before `offset` of `segment`. */
export type Position = {
  readonly segment: number
  readonly offset: number
  /** The series has ended, and its open calls are settled. */
  readonly finished: boolean
}

/** A record with its place, as the journal's tail hands it out; of an unknown kind it is undefined. */
export type JournaledRecord = Pick<JournalEntry, 'record' | 'series' | 'segment' | 'offset' | 'next_offset'>

/** What the accountant knows between two postings; equal to the tables `open_calls` and `positions`. */
export type Books = {
  readonly open: ReadonlyMap<string, OpenCall>
  readonly positions: ReadonlyMap<string, Position>
}

/** What a batch of records changes: written as a whole or not at all. Rows have no leaf and no salt yet, their hashes are those of the bodies. */
export type Posting = {
  readonly rows: readonly CallRow[]
  readonly attempts: readonly AttemptRow[]
  /** Those of the rows, in the order of the rows, each call's together; then the holds of calls that are open. */
  readonly entries: readonly NewEntry[]
  readonly refusals: readonly NewRefusal[]
  readonly decisions: readonly DecisionRow[]
  /** Calls to keep as open, new or known better than before. */
  readonly opened: readonly OpenCall[]
  /** Ids of open calls that are open no more. */
  readonly closed: readonly string[]
  /** Where the series stood before; another stand means that someone else has posted. */
  readonly from: ReadonlyMap<string, Position | undefined>
  readonly to: ReadonlyMap<string, Position>
  /** Records that said nothing new: read again, duplicates, of an unknown kind, of calls that have their row. */
  readonly ignored: number
}

/** Books in which nothing has happened. */
export const emptyBooks: Books = { open: new Map(), positions: new Map() }

/**
 * Folds records into what they change. A call gets its one row when both its intent and its ending are there, in
 * whatever order they and the others come; records before a series' position, repeated ones, and those of calls in
 * `posted` (ids that have a row) change nothing. Cutting the records into batches in another way gives the same rows and
 * the same balances; a hold is an entry only if its call outlives the batch of its intent.
 */
export const fold = (
  books: Books,
  posted: ReadonlySet<string>,
  prices: PriceList,
  batch: readonly JournaledRecord[],
): Posting => {
  const draft = newDraft()
  for (const item of batch) {
    const stands = draft.to.get(item.series) ?? books.positions.get(item.series)
    if (stands !== undefined && isBefore(item, stands)) {
      draft.ignored += 1
      continue
    }
    if (!draft.from.has(item.series)) draft.from.set(item.series, stands)
    draft.to.set(item.series, { segment: item.segment, offset: item.next_offset, finished: false })
    const { record } = item
    if (record === undefined) {
      draft.ignored += 1
      continue
    }
    if (record.kind === 'refusals') {
      draft.refusals.push(refusalRow(record))
      continue
    }
    if (record.kind === 'decision') {
      const { call_id, at_ms, text } = record
      draft.decisions.push({ call_id, at_ms: Math.round(at_ms), text })
      continue
    }
    const id = record.call_id
    const before = draft.open.get(id) ?? books.open.get(id) ?? unknownCall(id, item.series)
    const after = posted.has(id) || draft.done.has(id) ? before : learn(before, record)
    if (after === before) {
      draft.ignored += 1
      continue
    }
    if (after.intent !== null && after.ending !== null) post(draft, books, prices, after)
    else draft.open.set(id, after)
  }
  return finish(draft, books)
}

/**
 * Settles what a finished series left open: every call of it gets its row now, `recovered` if it had no ending. Requires
 * that all records of the series, which ended at `end`, are folded and no more will come.
 */
export const settle = (books: Books, prices: PriceList, series: string, end: Omit<Position, 'finished'>): Posting => {
  const draft = newDraft()
  draft.from.set(series, books.positions.get(series))
  draft.to.set(series, { segment: end.segment, offset: end.offset, finished: true })
  const left = [...books.open.values()].filter((call) => call.series === series)
  left.sort((one, other) => (one.call_id < other.call_id ? -1 : 1))
  for (const call of left) post(draft, books, prices, call)
  return finish(draft, books)
}

/** The books after a posting was written. Changes the maps of `books`, which the caller owns. */
export const advance = (
  books: { readonly open: Map<string, OpenCall>; readonly positions: Map<string, Position> },
  posting: Posting,
): void => {
  for (const call of posting.opened) books.open.set(call.call_id, call)
  for (const id of posting.closed) books.open.delete(id)
  for (const [series, position] of posting.to) books.positions.set(series, position)
}

type Draft = {
  readonly rows: CallRow[]
  readonly attempts: AttemptRow[]
  readonly entries: NewEntry[]
  readonly refusals: NewRefusal[]
  readonly decisions: DecisionRow[]
  readonly open: Map<string, OpenCall>
  readonly closed: string[]
  readonly done: Set<string>
  readonly from: Map<string, Position | undefined>
  readonly to: Map<string, Position>
  ignored: number
}

const newDraft = (): Draft => ({
  rows: [],
  attempts: [],
  entries: [],
  refusals: [],
  decisions: [],
  open: new Map(),
  closed: [],
  done: new Set(),
  from: new Map(),
  to: new Map(),
  ignored: 0,
})

const post = (draft: Draft, books: Books, prices: PriceList, call: OpenCall) => {
  const { intent, ending } = endOf(call)
  const row = callRow(intent, ending, prices, call.series)
  draft.rows.push(row)
  const transfers = isHeld(books, call.call_id) ? entriesAtEnd(row, ending.at_ms) : entriesAtOnce(row, ending.at_ms)
  for (const transfer of transfers) draft.entries.push(transfer)
  if (call.attempts.length > 0) draft.attempts.push(...attemptRows(call, intent))
  draft.done.add(call.call_id)
  draft.open.delete(call.call_id)
  if (books.open.has(call.call_id)) draft.closed.push(call.call_id)
}

const finish = ({ open, done: _done, ...draft }: Draft, books: Books): Posting => {
  const opened = [...open.values()]
  for (const { call_id, intent } of opened)
    if (intent !== null && !isHeld(books, call_id)) draft.entries.push(...entriesAtIntent(intent))
  return { ...draft, opened }
}

/** Whether an earlier batch has posted the hold of a call. */
const isHeld = (books: Books, call_id: string): boolean => {
  const intent = books.open.get(call_id)?.intent
  return intent !== undefined && intent !== null
}

const isBefore = (item: JournaledRecord, position: Position): boolean =>
  item.segment < position.segment || (item.segment === position.segment && item.offset < position.offset)

const attemptRows = (call: OpenCall, first: { engine: string; engine_model: string; at_ms: number }): AttemptRow[] =>
  [{ ...first, because: '' }, ...call.attempts].map(({ engine, engine_model, because, at_ms }, before) => ({
    call_id: call.call_id,
    n: before + 1,
    engine,
    engine_model,
    because,
    at_ms: Math.round(at_ms),
  }))
