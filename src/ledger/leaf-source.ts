import type { Database } from 'bun:sqlite'
import { asc, getTableName, type SQL, sql } from 'drizzle-orm'
import { callLeaf } from './call-leaf.ts'
import type { Cells } from './columns.ts'
import type { Store } from './database.ts'
import { adminActionLeaf, entriesLeaf, priceLeaf, refusalLeaf } from './leaves.ts'
import { refusals } from './refusal-tables.ts'
import { admin_actions, type AttemptRow, calls, type CallRow, entries, type EntryRow, prices } from './tables.ts'

/** The leaves of a ledger's committed rows, made of the rows, in their order. */
export type LeafSource = {
  /** The next leaves, at most so many; none if there are no more rows. Throws if a leaf has no row, and what SQLite throws. */
  next(leaves_max: number): Uint8Array[]
}

/** Entries are read by as many as the leaves, which most calls have one of, and as many as are in one leaf at most. */
const ENTRIES_MORE = 100
const NONE: readonly never[] = []

/**
 * Opens the source from leaf `from` on, beside the ledger's writer: each step sees one state of the ledger. After a throw
 * the source is to be opened anew.
 */
export const openLeafSource = (store: Store, from: number): LeafSource => {
  const { sqlite } = store
  const of_calls = tableCursor<Cells<CallRow>>(sqlite, getTableName(calls), '*', from)
  const of_entries = tableCursor<Cells<EntryRow>>(sqlite, getTableName(entries), ENTRY_COLUMNS, from)
  const others = [
    drizzleCursor(store, prices, priceLeaf, from),
    drizzleCursor(store, refusals, refusalLeaf, from),
    drizzleCursor(store, admin_actions, adminActionLeaf, from),
  ]
  const triedOf = attemptsOf(sqlite)
  let at = from

  /** The rows of the next leaves. */
  const read = (leaves_max: number) => {
    const upto = Math.min(
      at + leaves_max,
      of_entries.read(leaves_max + ENTRIES_MORE),
      ...[of_calls, ...others].map((cursor) => cursor.read(leaves_max)),
    )
    const rows = of_calls.take(upto)
    return {
      rows,
      tried: triedOf(rows, of_calls.isAtEnd()),
      posted: Map.groupBy(of_entries.take(upto), ({ log_index }) => log_index),
      others: others.flatMap<WithLeaf>((other) => other.take(upto)),
    }
  }

  return {
    next: (leaves_max) => {
      // No longer than it takes to read: the writer cannot tidy its write-ahead log meanwhile.
      const leaves = leavesOf(sqlite.transaction(() => read(leaves_max)).deferred(), at)
      at += leaves.length
      return leaves
    },
  }
}

type WithLeaf = { readonly log_index: number; readonly leaf: () => Uint8Array }
type ReadRows = {
  readonly rows: readonly (Cells<CallRow> & Placed)[]
  readonly tried: ReadonlyMap<string, AttemptRow[]>
  readonly posted: Map<number, (Cells<EntryRow> & Placed)[]>
  readonly others: readonly WithLeaf[]
}

const leavesOf = ({ rows, tried, posted, others }: ReadRows, first: number): Uint8Array[] => {
  const leaves = new Map<number, Uint8Array>()
  for (const row of rows) {
    leaves.set(row.log_index, callLeaf(row, tried.get(row.id) ?? NONE, posted.get(row.log_index) ?? NONE))
    posted.delete(row.log_index)
  }
  for (const [log_index, members] of posted) leaves.set(log_index, entriesLeaf(log_index, members))
  for (const { log_index, leaf } of others) leaves.set(log_index, leaf())
  return Array.from({ length: leaves.size }, (_, nth) => leaves.get(first + nth) ?? missing(first + nth))
}

const missing = (log_index: number): never => {
  throw new Error(`the ledger has no row for leaf ${log_index}`)
}

/** A row with its leaf, and its place in the order of its table. */
type Placed = { readonly place: number; readonly log_index: number }

/** Reads a table forward. Rows without a leaf are passed over. */
const cursorOf = <Row extends Placed>(start: number, select: (after: number, rows_max: number) => readonly Row[]) => {
  let after = start
  let rows: readonly Row[] = NONE
  let all_read = false
  let all_taken = false
  return {
    /** Reads on, and answers the leaf below which every row is read. */
    read: (rows_max: number): number => {
      rows = select(after, rows_max)
      all_read = rows.length < rows_max
      return all_read ? Infinity : rows.at(-1)!.log_index
    },
    /** The rows of the leaves below `upto`; the next reading begins after them. */
    take: (upto: number): readonly Row[] => {
      const taken = rowsBelow(rows, upto)
      after = taken.at(-1)?.place ?? after
      all_taken = all_read && taken.length === rows.length
      return taken
    },
    /** Whether nothing was left in the table by the last reading. */
    isAtEnd: () => all_taken,
  }
}

const rowsBelow = <Row extends Placed>(rows: readonly Row[], upto: number): readonly Row[] => {
  const last = rows.at(-1)
  if (last === undefined || last.log_index < upto) return rows
  return rows.slice(
    0,
    rows.findIndex(({ log_index }) => log_index >= upto),
  )
}

/** The place of the last row whose leaf is before `from`. Looks back from the end. */
const startOf = (sqlite: Database, table: string, from: number): number =>
  sqlite
    .prepare<{ place: number }, [number]>(
      `SELECT rowid AS place FROM "${table}" WHERE log_index < ? ORDER BY rowid DESC LIMIT 1`,
    )
    .safeIntegers(false)
    .get(from)?.place ?? 0

// An amount beyond 2^53, which a number cannot hold, comes as text.
const ENTRY_COLUMNS = `id, call_id, at_ms, kind, debit, credit, reason, log_index,
  CASE WHEN amount_nanodollars > ${Number.MAX_SAFE_INTEGER} THEN CAST(amount_nanodollars AS TEXT)
    ELSE amount_nanodollars END AS amount_nanodollars`

/** Rows of the two large tables as SQLite has them, which costs a third of what a query builder takes. */
const tableCursor = <Row extends { readonly log_index: number | null }>(
  sqlite: Database,
  table: string,
  columns: string,
  from: number,
) => {
  const rows = sqlite
    .prepare<Row & Placed, [number, number]>(
      `SELECT rowid AS place, ${columns} FROM "${table}" WHERE rowid > ? AND log_index IS NOT NULL ORDER BY rowid LIMIT ?`,
    )
    .safeIntegers(false)
  return cursorOf(startOf(sqlite, table, from), (after, rows_max) => rows.all(after, rows_max))
}

type SmallTable = typeof prices | typeof refusals | typeof admin_actions

const drizzleCursor = <Table extends SmallTable>(
  { sqlite, drizzle }: Store,
  table: Table,
  leafOf: (row: Table['$inferSelect']) => Uint8Array,
  from: number,
) => {
  const rowid: SQL<number> = sql`rowid`.mapWith(Number)
  const newest = sqlite
    .prepare<{ place: number | null }, []>(`SELECT max(rowid) AS place FROM "${getTableName(table)}"`)
    .safeIntegers(false)
  return cursorOf(startOf(sqlite, getTableName(table), from), (after, rows_max) => {
    if ((newest.get()?.place ?? 0) <= after) return NONE
    return drizzle
      .select({ place: rowid, row: table as SmallTable })
      .from(table as SmallTable)
      .where(sql`rowid > ${after} AND log_index IS NOT NULL`)
      .orderBy(asc(rowid))
      .limit(rows_max)
      .all()
      .map(({ place, row }) => ({ place, log_index: row.log_index!, leaf: () => leafOf(row) }))
  })
}

/** The engines of those calls that needed several, by call. `at_end`: there are no later calls. */
const attemptsOf = (sqlite: Database) => {
  const newest = sqlite.prepare<{ place: number | null }, []>('SELECT max(rowid) AS place FROM attempts')
  const between = sqlite
    .prepare<AttemptRow, [number, number]>(
      `SELECT tried.* FROM calls CROSS JOIN attempts AS tried ON tried.call_id = calls.id
         WHERE calls.rowid >= ? AND calls.rowid <= ? ORDER BY tried.call_id, tried.n`,
    )
    .safeIntegers(false)
  newest.safeIntegers(false)
  let settled: number | null = -1
  return (rows: readonly Placed[], at_end: boolean): ReadonlyMap<string, AttemptRow[]> => {
    if (rows.length === 0) return new Map()
    // Most houses fail over rarely: one question for all calls tells that none of them did.
    const last = newest.get()?.place ?? null
    const found = last === settled ? [] : between.all(rows[0]!.place, rows.at(-1)!.place)
    if (at_end) settled = last
    return Map.groupBy(found, ({ call_id }) => call_id)
  }
}
