import type { Store } from './database.ts'

const BATCH = 5_000

/**
 * Erases the salts of a tenant's calls: nobody can tell any more whether a body belongs to a row, while the rows and
 * their leaves, which hold only the salted hashes, stay and verify. The old bytes are overwritten in the file, once
 * {@link emptyWal} has succeeded. Rows whose leaf is not before `leaf` keep theirs. Answers how many rows had one. Only the
 * writer of `ledger.db` may call it.
 */
export const eraseSalts = ({ sqlite }: Store, tenant: string, leaf: number): number => {
  sqlite.run('PRAGMA secure_delete = ON')
  const erase = sqlite.prepare<unknown, [string, number, number]>(
    'UPDATE calls SET salt = NULL WHERE rowid IN (SELECT rowid FROM calls WHERE tenant = ? AND salt IS NOT NULL AND log_index < ? LIMIT ?)',
  )
  let erased = 0
  for (let changes = BATCH; changes === BATCH; erased += changes)
    changes = Number(erase.run(tenant, leaf, BATCH).changes)
  sqlite.run('PRAGMA secure_delete = OFF')
  return erased
}

/** Empties the write-ahead log, where the old bytes are still. False if a reader is in the way, after a quarter of a second. */
export const emptyWal = ({ sqlite }: Store): boolean =>
  sqlite.prepare<{ busy: bigint }, []>('PRAGMA wal_checkpoint(TRUNCATE)').get()?.busy === 0n
