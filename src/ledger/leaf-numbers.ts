import type { Database } from 'bun:sqlite'
import { getTableName } from 'drizzle-orm'
import type { SQLiteTable } from 'drizzle-orm/sqlite-core'
import { refusals } from './refusal-tables.ts'
import { admin_actions, calls, entries, prices } from './tables.ts'

/**
 * The tables whose rows are leaves. Each is written in the order of its leaves, so its last row has its highest index:
 * neither an index on `log_index` nor a count beside the rows is needed.
 */
export const LOGGED: readonly SQLiteTable[] = [calls, entries, prices, refusals, admin_actions]

/** Asks how many leaves the rows of a ledger make up, which is the number of the next one. */
export const leafCounter = (sqlite: Database): (() => number) => {
  const lasts = LOGGED.map(
    (table) => `ifnull((SELECT log_index FROM "${getTableName(table)}" ORDER BY rowid DESC LIMIT 1), -1)`,
  )
  const statement = sqlite.prepare<{ size: bigint }, []>(`SELECT max(${lasts.join(', ')}) + 1 AS size`)
  return () => Number(statement.get()?.size ?? 0)
}
