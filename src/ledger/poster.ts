import type { Database, SQLQueryBindings } from 'bun:sqlite'
import { getTableColumns, getTableName } from 'drizzle-orm'
import type { SQLiteTable } from 'drizzle-orm/sqlite-core'
import type { Store } from './database.ts'
import { decodeOpenCall, encodeOpenCall, type OpenCall } from './open-call.ts'
import type { Position, Posting } from './posting.ts'
import { addUp } from './rollup.ts'
import {
  attempts,
  calls,
  entries,
  open_calls,
  positions,
  rollups,
  type CallRow,
  type NewEntry,
  type RollupRow,
} from './tables.ts'

/**
 * What came of a write. `stale`: somebody else has posted since the books were loaded, nothing was written; load them
 * again. `later`: the database is locked, full or failing, nothing was written; the very same call can be repeated.
 */
export type PostResult = { readonly is: 'posted' } | { readonly is: 'stale' } | PostponedResult
export type PostponedResult = { readonly is: 'later'; readonly cause: unknown }

/** Gives each new row its index in the Merkle log. Called once in the transaction, before the rows are inserted. */
export type AfterRows = (rows: readonly CallRow[]) => readonly number[]

export type Poster = {
  /** Writes a posting in one transaction, as a whole or not at all. */
  post(posting: Posting): PostResult
  /** Writes one transfer of a person's: a grant, a refund, an adjustment. The caller checks the accounts' names. */
  transfer(entry: NewEntry): PostResult
  /** The books as stored; the maps are the caller's. */
  books(): { open: Map<string, OpenCall>; positions: Map<string, Position> }
  /** Which of these calls have a row. */
  posted(ids: readonly string[]): Set<string> | PostponedResult
  /** Forgets the position of a series whose files are gone. If they come back nothing is posted twice. */
  forget(series: string): PostResult
  /** Moves the write-ahead log into the database as far as no reader is in the way. Costs up to some milliseconds. */
  checkpoint(): void
}

/** The one writer of `ledger.db`. Prepared once; nothing but these statements runs while calls are posted. */
export const createPoster = ({ sqlite }: Store, after_rows: AfterRows = unindexed): Poster => {
  const write = writers(sqlite)
  const begin = sqlite.prepare('BEGIN IMMEDIATE')
  const commit = sqlite.prepare('COMMIT')
  const rollback = sqlite.prepare('ROLLBACK')
  const stands = sqlite.prepare<StoredPosition, [string]>('SELECT * FROM positions WHERE series = ?')
  const all_open = sqlite.prepare<{ state: string }, []>('SELECT state FROM open_calls')
  const all_positions = sqlite.prepare<StoredPosition, []>('SELECT * FROM positions')
  const with_row = sqlite.prepare<{ id: string }, [string]>(
    'SELECT id FROM calls WHERE id IN (SELECT value FROM json_each(?))',
  )

  const transaction = (work: () => boolean): PostResult => {
    try {
      begin.run()
      const whole = work()
      if (whole) commit.run()
      else rollback.run()
      return whole ? { is: 'posted' } : { is: 'stale' }
    } catch (cause) {
      if (sqlite.inTransaction) rollback.run()
      return resultOf(cause)
    }
  }
  const unchanged = ([series, from]: readonly [string, Position | undefined]): boolean => {
    const stored = stands.get(series)
    if (stored === null || from === undefined) return stored === null && from === undefined
    const now = positionOf(stored)
    return now.segment === from.segment && now.offset === from.offset && now.finished === from.finished
  }

  return {
    post: (posting) => {
      if (posting.to.size === 0) return { is: 'posted' }
      return transaction(() => {
        if (![...posting.from].every(unchanged)) return false
        for (const id of posting.closed) if (write.close.run(id).changes !== 1) return false
        writeRows(write, posting, after_rows(posting.rows))
        return true
      })
    },
    transfer: (entry) =>
      transaction(() => {
        write.entry(entry)
        return true
      }),
    books: () => ({
      open: new Map(all_open.all().map(({ state }) => toPair(decodeOpenCall(state)))),
      positions: new Map(all_positions.all().map((stored) => [stored.series, positionOf(stored)])),
    }),
    posted: (ids) => {
      try {
        return new Set(with_row.all(JSON.stringify(ids)).map(({ id }) => id))
      } catch (cause) {
        return postponed(cause)
      }
    },
    forget: (series) =>
      transaction(() => {
        write.forget.run(series)
        return true
      }),
    checkpoint: () => {
      try {
        sqlite.run('PRAGMA wal_checkpoint(PASSIVE)')
      } catch (cause) {
        postponed(cause) // The next one takes over what this one could not move.
      }
    },
  }
}

type StoredPosition = Record<'segment' | 'offset' | 'finished', bigint> & { series: string }

const positionOf = ({ segment, offset, finished }: StoredPosition): Position => ({
  segment: Number(segment),
  offset: Number(offset),
  finished: finished === 1n,
})

const toPair = (call: OpenCall): [string, OpenCall] => [call.call_id, call]

const unindexed: AfterRows = () => []

type Writers = ReturnType<typeof writers>

const writers = (sqlite: Database) => ({
  call: inserter<CallRow>(sqlite, calls),
  attempt: inserter<typeof attempts.$inferSelect>(sqlite, attempts),
  entry: inserter<NewEntry>(sqlite, entries, ['id']),
  open: inserter<typeof open_calls.$inferSelect>(
    sqlite,
    open_calls,
    [],
    'ON CONFLICT (call_id) DO UPDATE SET state = excluded.state',
  ),
  position: inserter<typeof positions.$inferSelect>(
    sqlite,
    positions,
    [],
    `ON CONFLICT (series) DO UPDATE SET segment = excluded.segment, "offset" = excluded."offset",
       finished = excluded.finished`,
  ),
  rollup: inserter<RollupRow>(
    sqlite,
    rollups,
    [],
    `ON CONFLICT (tenant, model, day) DO UPDATE SET ${namesOf(rollups)
      .filter((name) => !['tenant', 'model', 'day'].includes(name))
      .map((name) => `"${name}" = "${name}" + excluded."${name}"`)
      .join(', ')}`,
  ),
  close: sqlite.prepare<unknown, [string]>('DELETE FROM open_calls WHERE call_id = ?'),
  forget: sqlite.prepare<unknown, [string]>('DELETE FROM positions WHERE series = ?'),
})

const writeRows = (write: Writers, posting: Posting, indexes: readonly number[]) => {
  posting.rows.forEach((row, nth) => write.call({ ...row, log_index: indexes[nth] ?? null }))
  posting.attempts.forEach(write.attempt)
  posting.entries.forEach(write.entry)
  addUp(posting.rows).forEach(write.rollup)
  for (const call of posting.opened)
    write.open({ call_id: call.call_id, series: call.series, state: encodeOpenCall(call) })
  for (const [series, position] of posting.to) write.position({ series, ...position })
}

// The columns are named once, in the table's definition; a row is bound in their order.
const namesOf = (table: SQLiteTable): string[] => Object.values(getTableColumns(table)).map((column) => column.name)

const inserter = <Row extends Readonly<Record<string, SQLQueryBindings>>>(
  sqlite: Database,
  table: SQLiteTable,
  without: readonly string[] = [],
  on_conflict = '',
) => {
  const names = namesOf(table).filter((name) => !without.includes(name))
  const columns = names.map((name) => `"${name}"`).join(', ')
  const places = names.map(() => '?').join(', ')
  const statement = sqlite.prepare(
    `INSERT INTO "${getTableName(table)}" (${columns}) VALUES (${places}) ${on_conflict}`,
  )
  return (row: Row): void => {
    statement.run(...names.map((name) => row[name] ?? null))
  }
}

const LATER = /^SQLITE_(BUSY|LOCKED|FULL|IOERR|CANTOPEN|READONLY|NOMEM)/

// A row that is there already means that another poster was faster. Everything else is a bug.
const resultOf = (cause: unknown): PostResult =>
  codeOf(cause) === 'SQLITE_CONSTRAINT_PRIMARYKEY' ? { is: 'stale' } : postponed(cause)

const postponed = (cause: unknown): PostponedResult => {
  if (LATER.test(codeOf(cause))) return { is: 'later', cause }
  throw cause
}

const codeOf = (cause: unknown): string => (cause instanceof Error && 'code' in cause ? String(cause.code) : '')
