import type { Database } from 'bun:sqlite'
import { Difference } from './check-note.ts'

/** What the ledger's tables must say of each other, and of the log of admin actions they copy. */

type Row = Readonly<Record<string, bigint | string | null>>

/** Queries whose rows are faults: what each row is, by its columns. */
const FAULTS: readonly (readonly [sql: string, says: (row: Row) => string])[] = [
  [
    `SELECT c.id, c.hold_nanodollars AS want, coalesce(sum(e.amount_nanodollars), 0) AS got FROM calls c
       JOIN entries e ON e.call_id = c.id AND e.kind = 'hold' GROUP BY c.id HAVING want <> got`,
    ({ id, want, got }) => `call ${id} holds ${want} nanodollars and its entries ${got}`,
  ],
  [
    `SELECT c.id, coalesce(c.charge_nanodollars, 0) AS want, coalesce(sum(e.amount_nanodollars), 0) AS got FROM calls c
       LEFT JOIN entries e ON e.call_id = c.id AND e.kind = 'capture' GROUP BY c.id HAVING want <> got`,
    ({ id, want, got }) => `call ${id} is charged ${want} nanodollars and its entries capture ${got}`,
  ],
  [
    `SELECT c.id, sum(CASE WHEN e.credit LIKE 'held:%' THEN e.amount_nanodollars WHEN e.debit LIKE 'held:%'
       THEN -e.amount_nanodollars ELSE 0 END) AS got
       FROM calls c JOIN entries e ON e.call_id = c.id GROUP BY c.id HAVING got <> 0`,
    ({ id, got }) => `call ${id} has ended and its entries still hold ${got} nanodollars`,
  ],
  [
    `SELECT e.id, e.call_id FROM entries e WHERE e.call_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM calls c
       WHERE c.id = e.call_id) AND NOT EXISTS (SELECT 1 FROM open_calls o WHERE o.call_id = e.call_id) LIMIT 1`,
    ({ id, call_id }) => `entry ${id} is of call ${call_id}, which has no row and is not open`,
  ],
  [
    `SELECT o.call_id FROM open_calls o WHERE EXISTS (SELECT 1 FROM calls c WHERE c.id = o.call_id) LIMIT 1`,
    ({ call_id }) => `call ${call_id} has a row and is still open`,
  ],
  [
    `SELECT o.n, o.entry_id FROM posted_orders o WHERE NOT EXISTS (SELECT 1 FROM entries e WHERE e.id = o.entry_id) LIMIT 1`,
    ({ n, entry_id }) => `order ${n} is posted as entry ${entry_id}, which is not in the ledger`,
  ],
  [
    `SELECT 1 + max(id) - min(id) AS span, count(*) AS n, min(id) AS first FROM entries
       HAVING n > 0 AND (span <> n OR first <> 1)`,
    ({ span, n }) => `the numbers of the entries have gaps: ${n} entries, ${span} numbers`,
  ],
]

const SUMS = `count(*), sum(charge_nanodollars IS NULL), sum(prompt_tokens), sum(cached_tokens), sum(completion_tokens),
  sum(reasoning_tokens), coalesce(sum(charge_nanodollars), 0)`
const OF_CALLS = `SELECT tenant, model, date(at_ms / 1000, 'unixepoch') AS day, ${SUMS} FROM calls GROUP BY 1, 2, 3`
const OF_ROLLUPS = `SELECT tenant, model, day, calls, unpriced_calls, prompt_tokens, cached_tokens, completion_tokens,
  reasoning_tokens, charge_nanodollars FROM rollups`

/** Checks entries against calls, roll-ups against the sums of calls, and that no number is missing. */
export const checkBooks = (db: Database): void => {
  for (const [sql, says] of FAULTS) {
    const row = db.prepare<Row, []>(sql).get()
    if (row !== null) throw new Difference(says(row))
  }
  for (const sql of [`${OF_CALLS} EXCEPT ${OF_ROLLUPS}`, `${OF_ROLLUPS} EXCEPT ${OF_CALLS}`]) {
    const row = db.prepare<Row, []>(sql).get()
    if (row !== null)
      throw new Difference(
        `the roll-up of ${row['tenant']}, ${row['model']}, ${row['day']} is not the sum of its calls`,
      )
  }
}

const COLUMNS = ['id', 'at_ms', 'actor', 'action', 'subject', 'detail_json'] as const

/** Checks the ledger's copies of admin actions against the log they are of. Answers how many are not copied yet. */
export const checkAdminLog = (ledger: Database, house: Database): number => {
  const copies = ledger.prepare<Row, []>(`SELECT ${COLUMNS.join(', ')} FROM admin_actions ORDER BY id`)
  const original = house.prepare<Row, [bigint]>(`SELECT ${COLUMNS.join(', ')} FROM admin_log WHERE id = ?`)
  let last = 0n
  for (const copy of copies.iterate()) {
    last = copy['id'] as bigint
    const row = original.get(last)
    if (row === null) throw new Difference(`admin action ${last} is in the ledger and not in the admin log`)
    for (const name of COLUMNS)
      if (row[name] !== copy[name])
        throw new Difference(
          `admin action ${last}: ${name} is ${JSON.stringify(String(row[name]))} in the admin log and ${JSON.stringify(String(copy[name]))} in the ledger`,
        )
  }
  const count = (db: Database, table: string) =>
    db.prepare<{ n: bigint }, [bigint]>(`SELECT count(*) AS n FROM ${table} WHERE id <= ?`).get(last)?.n ?? 0n
  if (count(house, 'admin_log') !== count(ledger, 'admin_actions'))
    throw new Difference(
      `the admin log has ${count(house, 'admin_log')} actions up to ${last}, the ledger ${count(ledger, 'admin_actions')}`,
    )
  const newer = house.prepare<{ n: bigint }, [bigint]>('SELECT count(*) AS n FROM admin_log WHERE id > ?').get(last)
  return Number(newer?.n ?? 0n)
}
