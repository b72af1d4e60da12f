import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { CheckpointStore } from '../audit/checkpoint-store.ts'
import { type Log, openLog } from '../audit/log.ts'
import { onDisk } from '../audit/log-files.ts'
import { originOf } from '../audit/origin.ts'
import { lockForWriter } from '../audit/writer-lock.ts'
import { errorOf, Failure } from '../base/failure.ts'
import { openReader, type Store } from './database.ts'
import { leafCounter } from './leaf-numbers.ts'
import { type LeafSource, openLeafSource } from './leaf-source.ts'

/**
 * The Merkle log as the ledger's other half. It follows the ledger: a row gets the number of its leaf in the transaction
 * that stores it, and its leaf is made of the committed row. So a leaf without a row cannot come to be, and a row without
 * a leaf, which is all that a crash can leave, gets it when the log is followed again.
 */
export type LedgerLog = {
  readonly log: Log
  /** Appends the leaves of rows that were committed since, at most so many; answers how many. The same can be tried again after a failure. */
  follow(leaves_max: number): number | Failure
  /** Leaves that the rows make up and the log does not have yet. */
  behind(): number
  close(): void
}

/** How long a predecessor that is just dying may still hold the log. */
const LOCK_MS = 10_000

/**
 * Opens the log in `audit_folder` for its one writer, and the ledger of `data` to read, and mends what a crash left in the
 * log's files. Throws an error that says why it cannot: another writer, damage under a signed root, a key that is gone,
 * a ledger that has fewer rows than are signed, as an older copy of it has.
 */
export const openLedgerLog = (data: string, audit_folder: string, wanted_origin: string | undefined): LedgerLog => {
  const lock = lockForWriter(audit_folder, LOCK_MS)
  if (lock === undefined) throw new Error(`the audit log in ${audit_folder} has another writer`)
  const store = openReader(data, 'ledger')
  const close = (): void => {
    store.sqlite.close()
    lock.release()
  }
  const rows = leafCounter(store.sqlite)
  const log = openOver(rows(), audit_folder, wanted_origin)
  if (log instanceof Failure) {
    close()
    throw errorOf(log)
  }
  return {
    log,
    follow: follower(store, log),
    behind: () => Math.max(0, rows() - log.size()),
    close: () => {
      log.close()
      close()
    },
  }
}

const openOver = (ledger_size: number, folder: string, wanted_origin: string | undefined): Log | Failure => {
  const origin = originOf(folder, wanted_origin)
  if (origin instanceof Failure) return origin
  const signed = signedSize(folder)
  if (signed instanceof Failure) return signed
  if (signed > ledger_size)
    return new Failure('internal', {
      says: `The audit log has signed ${signed} leaves and the ledger has ${ledger_size}: the ledger is an older copy or was changed. "weir fsck" tells where they differ; to begin a new log, move ${folder} away.`,
    })
  return openLog(folder, { origin, ledger_size })
}

const follower = (store: Store, log: Log): LedgerLog['follow'] => {
  let source: LeafSource | undefined
  // Made and not appended yet: while the disk is full the rows behind them are not read again and again.
  let leaves: readonly Uint8Array[] = []
  return (leaves_max) => {
    try {
      if (leaves.length === 0) {
        const from = source ?? openLeafSource(store, log.size())
        source = undefined
        leaves = from.next(leaves_max)
        source = from
      }
      const first = leaves.length === 0 ? 0 : log.append(leaves)
      if (first instanceof Failure) return first
      const appended = leaves.length
      leaves = []
      return appended
    } catch (cause) {
      return new Failure('internal', { says: 'The leaves of the audit log cannot be made of the rows.', cause })
    }
  }
}

/** Leaves that the newest checkpoint in a log's folder signs; 0 if there is none. */
export const signedSize = (folder: string): number | Failure => {
  if (!existsSync(join(folder, 'checkpoints.index'))) return 0
  return onDisk('The checkpoints of the audit log cannot be read.', () => {
    const checkpoints = new CheckpointStore(folder, 'read_only')
    try {
      return checkpoints.latest()?.checkpoint.size ?? 0
    } finally {
      checkpoints.close()
    }
  })
}
