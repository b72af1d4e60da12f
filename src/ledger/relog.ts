import type { SQL } from 'drizzle-orm'
import { asc, eq, getTableName, sql } from 'drizzle-orm'
import type { SQLiteTable } from 'drizzle-orm/sqlite-core'
import type { Store } from './database.ts'
import { callLeaf } from './call-leaf.ts'
import { adminActionLeaf, entriesLeaf, priceLeaf, refusalLeaf } from './leaves.ts'
import { admin_actions, attempts, calls, entries, prices, refusals } from './tables.ts'

/**
 * From rows back to leaves. Every logged table is written in the order of its leaves, so its last row has its highest
 * index: neither an index on `log_index` nor a count beside the rows is needed.
 */
const LOGGED: readonly SQLiteTable[] = [calls, entries, prices, refusals, admin_actions]

/** How many leaves the rows of a ledger make up. */
export const loggedRows = ({ sqlite }: Store): number =>
  Math.max(
    0,
    ...LOGGED.map((table) => {
      const last = sqlite
        .prepare<{ log_index: bigint | null }, []>(
          `SELECT log_index FROM "${getTableName(table)}" ORDER BY rowid DESC LIMIT 1`,
        )
        .get()
      return last?.log_index == null ? 0 : Number(last.log_index) + 1
    }),
  )

// Each batch reads the tables through; all of them are held at once.
const BATCH = 20_000

/** The leaves `[from, to)` made out of their rows, in batches. Throws if one has no row. */
export const leavesFrom = function* (store: Store, from: number, to: number): Generator<Uint8Array[]> {
  for (let at = from; at < to; at += BATCH) {
    const upto = Math.min(at + BATCH, to)
    const found = new Map(leavesOf(store, at, upto))
    yield Array.from({ length: upto - at }, (_, nth) => {
      const leaf = found.get(at + nth)
      if (leaf === undefined) throw new Error(`the ledger has no row for leaf ${at + nth}`)
      return leaf
    })
  }
}

const within = (column: SQL, from: number, to: number): SQL => sql`${column} >= ${from} AND ${column} < ${to}`

const leavesOf = function* ({ drizzle }: Store, from: number, to: number): Generator<[number, Uint8Array]> {
  const rowsOf = <Table extends typeof calls | typeof prices | typeof refusals | typeof admin_actions>(table: Table) =>
    drizzle
      .select()
      .from(table)
      .where(within(sql`${table.log_index}`, from, to))
      .all()
  const transfers = Map.groupBy(
    drizzle
      .select()
      .from(entries)
      .where(within(sql`${entries.log_index}`, from, to))
      .orderBy(asc(entries.id))
      .all(),
    (entry) => entry.log_index!,
  )
  for (const row of rowsOf(calls) as (typeof calls.$inferSelect)[]) {
    const tried = drizzle.select().from(attempts).where(eq(attempts.call_id, row.id)).orderBy(asc(attempts.n)).all()
    yield [row.log_index!, callLeaf(row, tried, transfers.get(row.log_index!) ?? [])]
    transfers.delete(row.log_index!)
  }
  for (const row of rowsOf(prices) as (typeof prices.$inferSelect)[]) yield [row.log_index!, priceLeaf(row)]
  for (const row of rowsOf(refusals) as (typeof refusals.$inferSelect)[]) yield [row.log_index!, refusalLeaf(row)]
  for (const row of rowsOf(admin_actions) as (typeof admin_actions.$inferSelect)[])
    yield [row.log_index!, adminActionLeaf(row)]
  for (const [log_index, members] of transfers) yield [log_index, entriesLeaf(log_index, members)]
}
