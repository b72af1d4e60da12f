import type { JournalEntry } from '../journal/reader.ts'
import type { JournalRecord } from '../journal/record.ts'
import { callRow, endOf, entriesAtEnd, entriesAtIntent, entriesAtOnce, refusalRow } from './call-row.ts'
import { learn, unknownCall, type OpenCall } from './open-call.ts'
import type { PriceList } from './pricing.ts'
import type { NewRefusal } from './refusal-tables.ts'
import type { AttemptRow, CallRow, DecisionRow, NewEntry } from './tables.ts'

/** A place in a journal series. */
export type Place = { readonly segment: number; readonly offset: number }

/** How far a journal series is posted: everything before `offset` of `segment`, but for what calls that are open said from `again` on. */
export type Position = Place & {
  /** The series has ended, and its open calls are settled. */
  readonly finished: boolean
  /** Where a successor has to begin to read, to learn of open calls what is not stored of them. */
  readonly again?: Place
}

/** A record with its place, as the journal's tail hands it out; of an unknown kind it is undefined. */
export type JournaledRecord = Pick<JournalEntry, 'record' | 'series' | 'segment' | 'offset' | 'next_offset'>

/** The first record of an open call that is not stored: its place, and when it was written. */
export type Unstored = Place & { readonly series: string; readonly since_ms: number }

/** What the accountant knows between two postings. */
export type Books = {
  readonly open: ReadonlyMap<string, OpenCall>
  /** Open calls as the table `open_calls` has them. */
  readonly stored: ReadonlyMap<string, OpenCall>
  /** Open calls that are known better than they are stored, in the order of those records. */
  readonly unstored: ReadonlyMap<string, Unstored>
  /** As the table `positions` has them. */
  readonly positions: ReadonlyMap<string, Position>
}

/** What a batch of records changes: written as a whole or not at all. Rows have no leaf and no salt yet, their hashes are those of the bodies. */
export type Posting = {
  readonly rows: readonly CallRow[]
  readonly attempts: readonly AttemptRow[]
  /** Those of the rows, in the order of the rows, each call's together; then the holds of calls that are open. */
  readonly entries: readonly NewEntry[]
  /** As the journals said them, to be added to the lines of their minutes. */
  readonly refusals: readonly NewRefusal[]
  readonly decisions: readonly DecisionRow[]
  /** Calls that are open, new or known better than before. */
  readonly learned: readonly OpenCall[]
  /** Those of them of which nothing was unstored before. */
  readonly unstored: ReadonlyMap<string, Unstored>
  /** Open calls to store, new or known better than they are stored. */
  readonly opened: readonly OpenCall[]
  /** Ids of stored calls that are open no more. */
  readonly closed: readonly string[]
  /** Ids of all the calls that got their row. */
  readonly done: ReadonlySet<string>
  /** Where the series stood before; another stand means that someone else has posted. */
  readonly from: ReadonlyMap<string, Position | undefined>
  readonly to: ReadonlyMap<string, Position>
  /** Records that said nothing new: read again, duplicates, of an unknown kind, of calls that have their row. */
  readonly ignored: number
}

/** Books in which nothing has happened. */
export const emptyBooks: Books = { open: new Map(), stored: new Map(), unstored: new Map(), positions: new Map() }

/**
 * Folds records into what they change. A call gets its one row when both its intent and its ending are there, in
 * whatever order they and the others come; records before a series' position, repeated ones, and those of calls in
 * `posted` (ids that have a row) change nothing. Cutting the records into batches in another way gives the same rows and
 * the same balances.
 *
 * An open call is stored, and its hold an entry, only once its first record that is not stored is older than `young_ms` (a
 * time, by default the end of all times): storing a call costs four times its row, and most are over soon. Until then
 * the series' position says from where a successor has to read again, which only tells it of calls what it would have forgotten.
 */
export const fold = (
  books: Books,
  posted: ReadonlySet<string>,
  prices: PriceList,
  batch: readonly JournaledRecord[],
  young_ms = Number.POSITIVE_INFINITY,
): Posting => {
  const draft = newDraft()
  for (const item of batch) {
    const { record } = item
    const stands = draft.to.get(item.series) ?? books.positions.get(item.series)
    const again = stands !== undefined && isBefore(item, stands)
    if (!draft.from.has(item.series)) draft.from.set(item.series, stands)
    const next = { segment: item.segment, offset: item.next_offset }
    if (again) draft.reread.set(item.series, next)
    else draft.reread.delete(item.series)
    draft.to.set(item.series, again ? stands : { ...next, finished: false })
    // Of what is read again only calls may say something new.
    if (record === undefined || (again && !isOfCall(record))) {
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
    else {
      draft.open.set(id, after)
      if (!books.unstored.has(id) && !draft.unstored.has(id))
        draft.unstored.set(id, {
          series: item.series,
          segment: item.segment,
          offset: item.offset,
          since_ms: record.at_ms,
        })
    }
  }
  return finish(draft, books, young_ms)
}

/**
 * Settles what a finished series left open: every call of it gets its row now, `recovered` if it had no ending. Requires
 * that all records of the series, which ended at `end`, are folded and no more will come.
 */
export const settle = (books: Books, prices: PriceList, series: string, end: Place): Posting => {
  const draft = newDraft()
  draft.from.set(series, books.positions.get(series))
  draft.to.set(series, { segment: end.segment, offset: end.offset, finished: true })
  const left = [...books.open.values()].filter((call) => call.series === series)
  left.sort((one, other) => (one.call_id < other.call_id ? -1 : 1))
  for (const call of left) post(draft, books, prices, call)
  return finish(draft, books, Number.POSITIVE_INFINITY)
}

/** Books that can be changed. */
export type OwnBooks = {
  readonly [Name in keyof Books]: Books[Name] extends ReadonlyMap<infer K, infer V> ? Map<K, V> : never
}

/** The books after a posting was written. Changes the maps of `books`, which the caller owns. */
export const advance = (books: OwnBooks, posting: Posting): void => {
  for (const call of posting.learned) books.open.set(call.call_id, call)
  for (const [id, place] of posting.unstored) books.unstored.set(id, place)
  for (const call of posting.opened) {
    books.stored.set(call.call_id, call)
    books.unstored.delete(call.call_id)
  }
  for (const id of posting.done) for (const map of [books.open, books.stored, books.unstored]) map.delete(id)
  for (const [series, position] of posting.to) books.positions.set(series, position)
}

type Draft = {
  readonly rows: CallRow[]
  readonly attempts: AttemptRow[]
  readonly entries: NewEntry[]
  readonly refusals: NewRefusal[]
  readonly decisions: DecisionRow[]
  readonly open: Map<string, OpenCall>
  readonly unstored: Map<string, Unstored>
  /** How far a series is read that is being read again. */
  readonly reread: Map<string, Place>
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
  unstored: new Map(),
  reread: new Map(),
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
  draft.unstored.delete(call.call_id)
  if (books.stored.has(call.call_id)) draft.closed.push(call.call_id)
}

const finish = ({ open, reread, ...draft }: Draft, books: Books, young_ms: number): Posting => {
  const opened: OpenCall[] = []
  const again = new Map<string, Place>()
  for (const unstored of [books.unstored, draft.unstored])
    for (const [id, { series, segment, offset, since_ms }] of unstored) {
      if (draft.done.has(id) || !draft.to.has(series)) continue
      if (since_ms < young_ms) opened.push(open.get(id) ?? books.open.get(id)!)
      else if (!again.has(series)) again.set(series, { segment, offset })
    }
  for (const { call_id, intent } of opened)
    if (intent !== null && !isHeld(books, call_id)) draft.entries.push(...entriesAtIntent(intent))
  for (const [series, { segment, offset, finished }] of draft.to) {
    // What is still to be read again may tell of more open calls.
    const place = again.get(series) ?? reread.get(series)
    draft.to.set(series, { segment, offset, finished, ...(place && { again: place }) })
  }
  return { ...draft, learned: [...open.values()], opened }
}

/** Whether the hold of a call is an entry already. */
const isHeld = (books: Books, call_id: string): boolean => {
  const intent = books.stored.get(call_id)?.intent
  return intent !== undefined && intent !== null
}

const isOfCall = ({ kind }: JournalRecord): boolean => kind !== 'refusals' && kind !== 'decision'

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
