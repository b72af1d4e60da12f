import type { Database } from 'bun:sqlite'
import { Difference } from './check-note.ts'
import type { FrameRecord } from './fsck-frames.ts'

/** Refused calls: what the journal says of a minute, key and reason is in the ledger, however many rows it is in. */

type Line = { readonly at_ms: bigint; readonly key_id: string; readonly tenant: string; readonly failure: string }
type Counted = Line & { readonly count: bigint }

const COLUMNS = 'at_ms, key_id, tenant, failure, count'

/** Adds up what the journal says; the ledger must have all of it in the end, and may have more: journals are not kept for ever. */
export const refusalCheck = (db: Database): { said(fields: FrameRecord['fields']): void; finish(): void } => {
  const lacking = new Map<string, Counted>()
  return {
    said: (fields) => {
      const line = {
        at_ms: minuteOf(Number(fields['at_ms'])),
        key_id: String(fields['key_id']),
        tenant: String(fields['tenant']),
        failure: String(fields['failure']),
      }
      const name = nameOf(line)
      lacking.set(name, { ...line, count: (lacking.get(name)?.count ?? 0n) + BigInt(Number(fields['count'])) })
    },
    finish: () => {
      if (lacking.size === 0) return
      for (const table of tablesOf(db))
        for (const line of db.prepare<Counted, []>(`SELECT ${COLUMNS} FROM ${table}`).iterate()) {
          const name = nameOf(line)
          const still = lacking.get(name)
          if (still !== undefined) lacking.set(name, { ...still, count: still.count - line.count })
        }
      for (const { at_ms, key_id, failure, count } of lacking.values())
        if (count > 0n)
          throw new Difference(
            `the ledger lacks ${count} refused calls of the journal: ${failure} of key "${key_id}" in the minute ${at_ms}`,
          )
    },
  }
}

/** Lines of refused calls that are no leaves yet. */
export const openRefusals = (db: Database): number =>
  tablesOf(db).includes('open_refusals')
    ? Number(db.prepare<{ n: bigint }, []>('SELECT count(*) AS n FROM open_refusals').get()?.n ?? 0n)
    : 0

// A ledger that this version has not opened yet lacks the table of open ones.
const tablesOf = (db: Database): string[] =>
  db
    .prepare<{ name: string }, []>("SELECT name FROM sqlite_schema WHERE name IN ('refusals', 'open_refusals')")
    .all()
    .map(({ name }) => name)

const TIME_MAX_MS = 8.64e15

// As the ledger says it bounds times.
const minuteOf = (at_ms: number): bigint => (at_ms > 0 ? BigInt(Math.min(Math.round(at_ms), TIME_MAX_MS)) : 0n)

const nameOf = ({ at_ms, key_id, tenant, failure }: Line): string =>
  [at_ms, key_id, tenant, failure].map(String).join('\n')
