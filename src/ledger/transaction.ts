import type { Database } from 'bun:sqlite'

/**
 * What came of a write. `stale`: somebody else has posted since the books were loaded, nothing was written; load them
 * again. `later`: the database is locked, full or failing, nothing was written; the very same call can be repeated.
 */
export type PostResult = { readonly is: 'posted' } | { readonly is: 'stale' } | PostponedResult
export type PostponedResult = { readonly is: 'later'; readonly cause: unknown }

/** Transactions: what `work` writes stays as a whole if it answers true, and goes as a whole if it answers false (`stale`) or throws. */
export const transactions = (sqlite: Database) => {
  const begin = sqlite.prepare('BEGIN IMMEDIATE')
  const commit = sqlite.prepare('COMMIT')
  const rollback = sqlite.prepare('ROLLBACK')
  return (work: () => boolean): PostResult => {
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
}

const LATER = /^SQLITE_(BUSY|LOCKED|FULL|IOERR|CANTOPEN|READONLY|NOMEM)/

// A row that is there already means that another poster was faster. Everything else is a bug.
const resultOf = (cause: unknown): PostResult =>
  codeOf(cause) === 'SQLITE_CONSTRAINT_PRIMARYKEY' ? { is: 'stale' } : postponed(cause)

/** The answer to an error that time may cure; any other is a bug and is thrown on. */
export const postponed = (cause: unknown): PostponedResult => {
  if (LATER.test(codeOf(cause))) return { is: 'later', cause }
  throw cause
}

const codeOf = (cause: unknown): string => (cause instanceof Error && 'code' in cause ? String(cause.code) : '')
