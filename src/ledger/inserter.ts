import type { Database, SQLQueryBindings } from 'bun:sqlite'
import { getTableColumns, getTableName } from 'drizzle-orm'
import type { SQLiteTable } from 'drizzle-orm/sqlite-core'

/** The columns of a table, named once, in its definition, and always in that order. */
export const namesOf = (table: SQLiteTable): string[] =>
  Object.values(getTableColumns(table)).map((column) => column.name)

/** Rows of one statement: a third less time than one by one; more make no difference. */
const ROWS = 32

/** Prepared inserts of whole rows, a fifth of what a query builder takes; `on_conflict` is SQL to end them with. */
export const inserter = <Row extends Readonly<Record<string, SQLQueryBindings>>>(
  sqlite: Database,
  table: SQLiteTable,
  on_conflict = '',
) => {
  const names = namesOf(table)
  const columns = names.map((name) => `"${name}"`).join(', ')
  const places = `(${names.map(() => '?').join(', ')})`
  // What fails leaves the transaction to its caller, who rolls it back: else a statement of several rows keeps a journal.
  const prepare = (rows: number) =>
    sqlite.prepare(
      `INSERT OR FAIL INTO "${getTableName(table)}" (${columns}) VALUES ${Array(rows).fill(places).join(', ')} ${on_conflict}`,
    )
  const one = prepare(1)
  const several = prepare(ROWS)
  // Compiled: looking up forty properties by variable names costs as much as a row's page.
  const fill = new Function(
    'into',
    'at',
    'row',
    names.map((name, nth) => `into[at + ${nth}] = row[${JSON.stringify(name)}] ?? null`).join('\n'),
  )
  return (rows: readonly Row[]): void => {
    let next = 0
    const values: SQLQueryBindings[] = []
    for (; next + ROWS <= rows.length; next += ROWS) {
      for (let nth = 0; nth < ROWS; nth++) fill(values, nth * names.length, rows[next + nth])
      several.run(...values)
    }
    values.length = names.length
    for (; next < rows.length; next++) {
      fill(values, 0, rows[next])
      one.run(...values)
    }
  }
}
