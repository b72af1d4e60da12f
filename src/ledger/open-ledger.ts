import { originOf } from '../audit/origin.ts'
import { lockForWriter } from '../audit/writer-lock.ts'
import { Failure } from '../base/failure.ts'
import { openWriter, type Store } from './database.ts'
import { type LedgerLog, openLedgerLog } from './ledger-log.ts'

/** The ledger and its log, opened for their one writer. */
export type OpenLedger = { readonly store: Store; readonly ledger_log: LedgerLog; close(): void }

/** How long a predecessor that is just dying may still hold the log. */
const LOCK_MS = 10_000

/**
 * Opens `ledger.db` and the Merkle log in `audit_folder` for writing and mends what a crash left between them. Throws an
 * error that says why it cannot: another writer, damage under a signed root, a key that is gone.
 */
export const openLedger = (data: string, audit_folder: string, wanted_origin: string | undefined): OpenLedger => {
  const lock = lockForWriter(audit_folder, LOCK_MS)
  if (lock === undefined) throw new Error(`the audit log in ${audit_folder} has another writer`)
  const store = openWriter(data, 'ledger')
  const origin = originOf(audit_folder, wanted_origin)
  const ledger_log = origin instanceof Failure ? origin : openLedgerLog(store, audit_folder, origin)
  if (ledger_log instanceof Failure) {
    store.sqlite.close()
    lock.release()
    throw new Error(ledger_log.detail.says ?? ledger_log.code, { cause: ledger_log.detail.cause })
  }
  return {
    store,
    ledger_log,
    close: () => {
      store.sqlite.close()
      lock.release()
    },
  }
}
