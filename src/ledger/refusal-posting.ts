import type { Database } from 'bun:sqlite'
import { inserter } from './inserter.ts'
import { type NewRefusal, open_refusals, type RefusalRow, refusals } from './refusal-tables.ts'

/** How the tables of refused calls are written; all but `oldest` inside a transaction of the caller's. */
export type RefusalWriter = {
  /** Adds what a journal said to the lines of its minutes. */
  add(said: readonly NewRefusal[]): void
  /** The oldest minute that has a line, by its beginning; undefined if none has. */
  oldest(): number | undefined
  /** Makes lines of minutes that began before then rows of `refusals`, the oldest first, at most so many. */
  move(before_ms: number, lines_max: number): void
}

/** Prepares the statements. `nextLeaf` answers the number of the next leaf, or undefined if the ledger has no log. */
export const refusalWriter = (sqlite: Database, nextLeaf: () => number | undefined): RefusalWriter => {
  const add = inserter<NewRefusal>(
    sqlite,
    open_refusals,
    'ON CONFLICT (at_ms, key_id, tenant, failure) DO UPDATE SET "count" = "count" + excluded."count"',
  )
  const insert = inserter<RefusalRow>(sqlite, refusals)
  const oldest = sqlite.prepare<{ at_ms: bigint | null }, []>('SELECT min(at_ms) AS at_ms FROM open_refusals')
  const last = sqlite.prepare<{ id: bigint | null }, []>('SELECT max(id) AS id FROM refusals')
  const OLDEST = 'FROM open_refusals WHERE at_ms < ? ORDER BY at_ms, key_id, tenant, failure LIMIT ?'
  const lines = sqlite.prepare<NewRefusal, [number, number]>(`SELECT * ${OLDEST}`).safeIntegers(false)
  const drop = sqlite.prepare<unknown, [number, number]>(
    `DELETE FROM open_refusals WHERE rowid IN (SELECT rowid ${OLDEST})`,
  )
  return {
    add,
    oldest: () => {
      const at_ms = oldest.get()?.at_ms ?? null
      return at_ms === null ? undefined : Number(at_ms)
    },
    move: (before_ms, lines_max) => {
      const leaf = nextLeaf()
      const id = Number(last.get()?.id ?? 0) + 1
      insert(
        lines
          .all(before_ms, lines_max)
          .map((line, nth) => ({ ...line, id: id + nth, log_index: leaf === undefined ? null : leaf + nth })),
      )
      drop.run(before_ms, lines_max)
    },
  }
}
