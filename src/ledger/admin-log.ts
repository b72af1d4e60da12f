import { desc, lt, sql } from 'drizzle-orm'
import { Failure } from '../base/failure.ts'
import { limits } from '../base/limits.ts'
import type { Store } from './database.ts'
import { admin_log } from './house-tables.ts'
import type { Page } from './queries.ts'

/** Who did what on the admin API. */
export type AdminAction = {
  readonly at_ms: number
  /** `admin`, or the id of an operator key. */
  readonly actor: string
  /** A verb and its kind: `keys.create`. */
  readonly action: string
  readonly subject: string
  /** Goes to the log as JSON; never put a secret in. */
  readonly detail: Readonly<Record<string, unknown>>
}

/**
 * Does a piece of admin work and logs it, both or neither: if the work fails or throws, nothing of it stays. The action
 * is made from what the work returned. A failure too if another process holds the database for longer than it may.
 */
export const logged = <Done>(
  { drizzle }: Store,
  work: () => Done | Failure,
  actionOf: (done: Done) => AdminAction,
): Done | Failure => {
  let failed: Failure | undefined
  try {
    return drizzle.transaction(
      (tx) => {
        const done = work()
        if (done instanceof Failure) {
          failed = done
          throw done
        }
        const { detail, ...action } = actionOf(done)
        tx.insert(admin_log)
          .values({ id: sql`NULL`, ...action, detail_json: JSON.stringify(detail) })
          .run()
        return done
      },
      { behavior: 'immediate' },
    )
  } catch (cause) {
    if (failed !== undefined && cause === failed) return failed
    if (isBusy(cause)) return new Failure('overloaded', { says: 'The store is busy.', retry_after_s: 1, cause })
    throw cause
  }
}

/** The log, newest first; `cursor` is the `next_cursor` of the page before. */
export const adminLogPage = ({ drizzle }: Store, limit: number, cursor?: string): Page<AdminAction> | Failure => {
  if (cursor !== undefined && !/^\d{1,15}$/.test(cursor))
    return new Failure('field_invalid', { param: 'cursor', says: 'cursor must be the next_cursor of the page before.' })
  const rows_max = Math.min(Math.max(Math.floor(limit), 1), limits.page_rows_max)
  const rows = drizzle
    .select()
    .from(admin_log)
    .where(cursor === undefined ? undefined : lt(admin_log.id, Number(cursor)))
    .orderBy(desc(admin_log.id))
    .limit(rows_max + 1)
    .all()
  const page = rows.slice(0, rows_max)
  return {
    data: page.map(({ id: _id, detail_json, ...row }) => ({ ...row, detail: JSON.parse(detail_json) })),
    next_cursor: rows.length > rows_max ? String(page.at(-1)?.id) : null,
  }
}

const isBusy = (cause: unknown): boolean =>
  cause instanceof Error && 'code' in cause && String(cause.code).startsWith('SQLITE_BUSY')
