import { callIdOf } from '../../src/journal/record.ts'
import type { Store } from '../../src/ledger/database.ts'
import { fold, settle, advance, type JournaledRecord } from '../../src/ledger/posting.ts'
import type { Poster } from '../../src/ledger/poster.ts'
import { PRICES } from './make.ts'

/** Everything in the ledger, to compare two of them; of entries what they come to, as holds depend on the batches. */
export const contents = ({ sqlite }: Store): Record<string, unknown[]> => ({
  ...Object.fromEntries(
    ['calls', 'attempts', 'positions', 'open_calls', 'rollups'].map((table) => [
      table,
      sqlite.prepare(`SELECT * FROM ${table} ORDER BY 1, 2, 3`).all(),
    ]),
  ),
  entries: sqlite
    .prepare(
      `SELECT call_id, account, sum(amount) AS amount FROM (
         SELECT call_id, credit AS account, amount_nanodollars AS amount FROM entries
         UNION ALL SELECT call_id, debit, -amount_nanodollars FROM entries)
       GROUP BY 1, 2 HAVING sum(amount) <> 0 ORDER BY 1, 2`,
    )
    .all(),
})

/** Posts records as a process does that has just started: books from the tables, batches of the given size, no settling. */
export const postAll = (
  poster: Poster,
  records: readonly JournaledRecord[],
  batch_records: number,
  pause = () => {},
) => {
  const books = poster.books()
  for (let at = 0; at < records.length; at += batch_records) {
    const batch = records.slice(at, at + batch_records)
    const posted = poster.posted(batch.flatMap(({ record }) => (record ? [callIdOf(record)] : [])))
    if (!(posted instanceof Set)) throw posted.cause
    const posting = fold(books, posted, PRICES, batch)
    const result = poster.post(posting)
    if (result.is !== 'posted') throw new Error(`post: ${result.is}`)
    advance(books, posting)
    pause()
  }
}

/** Settles what a dead series left open. */
export const settleAll = (poster: Poster, series: string) => {
  const books = poster.books()
  const result = poster.post(settle(books, PRICES, series, books.positions.get(series) ?? { segment: 0, offset: 64 }))
  if (result.is !== 'posted') throw new Error(`settle: ${result.is}`)
}
