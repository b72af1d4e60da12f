import type { Database } from 'bun:sqlite'
import type { Store } from './database.ts'
import { inserter, namesOf } from './inserter.ts'
import { leafCounter } from './leaf-numbers.ts'
import { type Loggable, logPosting, type NextIds } from './logged-posting.ts'
import { decodeOpenCall, encodeOpenCall, type OpenCall } from './open-call.ts'
import type { OwnBooks, Position, Posting } from './posting.ts'
import { refusalWriter } from './refusal-posting.ts'
import { addUp } from './rollup.ts'
import {
  admin_actions,
  attempts,
  calls,
  entries,
  open_calls,
  positions,
  posted_orders,
  decisions,
  type DecisionRow,
  rollups,
  type AdminActionRow,
  type CallRow,
  type EntryRow,
  type NewEntry,
  type RollupRow,
} from './tables.ts'
import { postponed, type PostponedResult, type PostResult, transactions } from './transaction.ts'

export type Poster = {
  /** Writes a posting in one transaction, as a whole or not at all. */
  post(posting: Posting): PostResult
  /** Writes one transfer of a person's: a grant, a refund, an adjustment. The caller checks the accounts' names. */
  transfer(entry: NewEntry): PostResult
  /** Writes the transfer of an order and that it is posted. `stale`: it was posted before. */
  order(order: { readonly n: number; readonly order_id: string }, entry: NewEntry): PostResult
  /** The number of the last order that is posted, 0 if none is. */
  lastOrder(): number
  /** Copies actions of the admin API, in the order of their numbers, each as a leaf. */
  adminActions(rows: readonly Omit<AdminActionRow, 'log_index'>[]): PostResult
  /** The number of the last one that was copied, 0 if none was. */
  lastAdminAction(): number
  /** The oldest minute whose refused calls have no row yet, by its beginning; undefined if there is none. */
  oldestRefusals(): number | undefined
  /** Makes what was refused in minutes that began before then rows with their leaves, the oldest first, at most so many. */
  logRefusals(before_ms: number, rows_max: number): PostResult
  /** The books as stored; the maps are the caller's. */
  books(): OwnBooks
  /** Which of these calls have a row. */
  posted(ids: readonly string[]): Set<string> | PostponedResult
  /** Forgets the position of a series whose files are gone. If they come back no call is posted twice. */
  forget(series: string): PostResult
  /** Moves the write-ahead log into the database as far as no reader is in the way. Costs up to some milliseconds. */
  checkpoint(): void
}

/**
 * The one writer of `ledger.db`. Prepared once; nothing but these statements runs while calls are posted. Where the
 * ledger has a log, every row gets the number of its leaf in the transaction that stores it.
 */
export const createPoster = ({ sqlite }: Store, log: 'logged' | 'no_log' = 'no_log'): Poster => {
  const write = writers(sqlite)
  const transaction = transactions(sqlite)
  const unchanged = unchangedOf(sqlite)
  const nextLeaf = log === 'logged' ? leafCounter(sqlite) : () => undefined
  const nextIds = nextIdsOf(sqlite, nextLeaf)
  const refused = refusalWriter(sqlite, nextLeaf)
  const writeLogged = (rows: Loggable): void => {
    const logged = logPosting(rows, nextIds())
    write.call(logged.calls)
    write.entry(logged.entries)
  }

  return {
    post: (posting) => {
      if (posting.to.size === 0) return { is: 'posted' }
      return transaction(() => {
        if (![...posting.from].every(unchanged)) return false
        for (const id of posting.closed) if (write.close.run(id).changes !== 1) return false
        writeLogged(posting)
        refused.add(posting.refusals)
        writeRest(write, posting)
        return true
      })
    },
    transfer: (entry) =>
      transaction(() => {
        writeLogged({ rows: [], entries: [entry] })
        return true
      }),
    order: (order, entry) =>
      transaction(() => {
        write.order([{ ...order, entry_id: nextIds().entry }])
        writeLogged({ rows: [], entries: [entry] })
        return true
      }),
    adminActions: (rows) =>
      transaction(() => {
        const first = nextLeaf()
        write.admin_action(rows.map((row, nth) => ({ ...row, log_index: first === undefined ? null : first + nth })))
        return true
      }),
    oldestRefusals: refused.oldest,
    logRefusals: (before_ms, rows_max) =>
      transaction(() => {
        refused.move(before_ms, rows_max)
        return true
      }),
    ...reads(sqlite),
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

/** What is asked of the books before something is written. */
const reads = (sqlite: Database): Pick<Poster, 'books' | 'posted' | 'lastOrder' | 'lastAdminAction'> => {
  const all_open = sqlite.prepare<{ state: string }, []>('SELECT state FROM open_calls')
  const all_positions = sqlite.prepare<StoredPosition, []>('SELECT * FROM positions')
  const with_row = sqlite.prepare<{ id: string }, [string]>(
    'SELECT id FROM calls WHERE id IN (SELECT value FROM json_each(?))',
  )
  const last_action = sqlite.prepare<{ id: bigint | null }, []>('SELECT max(id) AS id FROM admin_actions')
  const last_order = sqlite.prepare<{ id: bigint | null }, []>('SELECT max(n) AS id FROM posted_orders')
  return {
    books: () => {
      const stored = all_open.all().map(({ state }) => toPair(decodeOpenCall(state)))
      return {
        open: new Map(stored),
        stored: new Map(stored),
        unstored: new Map(),
        positions: new Map(all_positions.all().map((position) => [position.series, positionOf(position)])),
      }
    },
    posted: (ids) => {
      try {
        return new Set(with_row.all(JSON.stringify(ids)).map(({ id }) => id))
      } catch (cause) {
        return postponed(cause)
      }
    },
    lastOrder: () => Number(last_order.get()?.id ?? 0),
    lastAdminAction: () => Number(last_action.get()?.id ?? 0),
  }
}

const nextIdsOf = (sqlite: Database, nextLeaf: () => number | undefined): (() => NextIds) => {
  const last_entry = sqlite.prepare<{ id: bigint | null }, []>('SELECT max(id) AS id FROM entries')
  return () => ({ entry: Number(last_entry.get()?.id ?? 0) + 1, leaf: nextLeaf() })
}

/** Whether a series stands where it stood when a posting was made. */
const unchangedOf = (sqlite: Database) => {
  const stands = sqlite.prepare<StoredPosition, [string]>('SELECT * FROM positions WHERE series = ?')
  return ([series, from]: readonly [string, Position | undefined]): boolean => {
    const stored = stands.get(series)
    if (stored === null || from === undefined) return stored === null && from === undefined
    const now = positionOf(stored)
    return now.segment === from.segment && now.offset === from.offset && now.finished === from.finished
  }
}

type StoredPosition = Record<'segment' | 'offset' | 'finished', bigint> &
  Record<'again_segment' | 'again_offset', bigint | null> & { readonly series: string }

const positionOf = ({ segment, offset, finished, again_segment, again_offset }: StoredPosition): Position => ({
  segment: Number(segment),
  offset: Number(offset),
  finished: finished === 1n,
  ...(again_segment !== null && { again: { segment: Number(again_segment), offset: Number(again_offset) } }),
})

const toPair = (call: OpenCall): [string, OpenCall] => [call.call_id, call]

type Writers = ReturnType<typeof writers>

const writers = (sqlite: Database) => ({
  call: inserter<CallRow>(sqlite, calls),
  attempt: inserter<typeof attempts.$inferSelect>(sqlite, attempts),
  entry: inserter<EntryRow>(sqlite, entries),
  decision: inserter<DecisionRow>(sqlite, decisions, 'ON CONFLICT (call_id) DO NOTHING'),
  order: inserter<typeof posted_orders.$inferSelect>(sqlite, posted_orders),
  admin_action: inserter<AdminActionRow>(sqlite, admin_actions),
  open: inserter<typeof open_calls.$inferSelect>(
    sqlite,
    open_calls,
    'ON CONFLICT (call_id) DO UPDATE SET state = excluded.state',
  ),
  position: inserter<typeof positions.$inferSelect>(
    sqlite,
    positions,
    `ON CONFLICT (series) DO UPDATE SET segment = excluded.segment, "offset" = excluded."offset",
       finished = excluded.finished, again_segment = excluded.again_segment, again_offset = excluded.again_offset`,
  ),
  rollup: inserter<RollupRow>(
    sqlite,
    rollups,
    `ON CONFLICT (tenant, model, day) DO UPDATE SET ${namesOf(rollups)
      .filter((name) => !['tenant', 'model', 'day'].includes(name))
      .map((name) => `"${name}" = "${name}" + excluded."${name}"`)
      .join(', ')}`,
  ),
  close: sqlite.prepare<unknown, [string]>('DELETE FROM open_calls WHERE call_id = ?'),
  forget: sqlite.prepare<unknown, [string]>('DELETE FROM positions WHERE series = ?'),
})

const writeRest = (write: Writers, posting: Posting) => {
  write.attempt(posting.attempts)
  write.decision(posting.decisions)
  write.rollup(addUp(posting.rows))
  write.open(
    posting.opened.map((call) => ({ call_id: call.call_id, series: call.series, state: encodeOpenCall(call) })),
  )
  write.position(
    [...posting.to].map(([series, { again, ...position }]) => ({
      ...{ series, ...position },
      ...{ again_segment: again?.segment ?? null, again_offset: again?.offset ?? null },
    })),
  )
}
