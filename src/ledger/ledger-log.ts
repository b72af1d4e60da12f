import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { CheckpointStore } from '../audit/checkpoint-store.ts'
import { type Log, openLog } from '../audit/log.ts'
import { onDisk } from '../audit/log-files.ts'
import { Failure } from '../base/failure.ts'
import type { Store } from './database.ts'
import { leavesFrom, loggedRows } from './relog.ts'

/** The log could not be written; the transaction that wanted it must be rolled back and can be repeated. */
export class LogTrouble extends Error {
  readonly code = 'LOG_UNWRITTEN'
  constructor(failure: Failure) {
    super(failure.detail.says ?? failure.code, { cause: failure.detail.cause })
  }
}

/**
 * The Merkle log as the ledger's other half: leaves are appended within the transaction that stores their rows, and
 * before its commit. What a transaction appended that did not commit is cut before anything else is appended or signed.
 */
export type LedgerLog = {
  readonly log: Log
  /** Begins a transaction: cuts what the last one left. Throws {@link LogTrouble}. */
  begin(): void
  /** Appends leaves; answers the index of the first. Throws {@link LogTrouble}. */
  append(leaves: readonly Uint8Array[]): number
  /** The index of the next leaf. */
  next(): number
  /** The transaction is committed: its leaves stay. */
  committed(): void
  /** Signs what is committed, if it is new; answers the newest checkpoint. */
  checkpoint(): string | Failure
  /** The same without holding up the process; one at a time. */
  checkpointLater(): Promise<string | Failure>
}

/**
 * Opens the log of a ledger and brings the two together, whatever a crash has left: leaves whose rows were not committed
 * are cut, leaves of committed rows that a loss of power took are made again out of the rows. A failure if more is
 * signed than the ledger has: then the ledger is an older copy, or was tampered with.
 */
export const openLedgerLog = (store: Store, folder: string, origin: string): LedgerLog | Failure => {
  const ledger_size = loggedRows(store)
  const signed = signedSize(folder)
  if (signed instanceof Failure) return signed
  if (signed > ledger_size)
    return new Failure('internal', {
      says: `The audit log has signed ${signed} leaves and the ledger has ${ledger_size}: the ledger is an older copy or was changed. "weir fsck" tells where they differ; to begin a new log, move ${folder} away.`,
    })
  const log = openLog(folder, { origin, ledger_size })
  if (log instanceof Failure) return log
  const joined = ledgerLog(log)
  try {
    for (const leaves of leavesFrom(store, log.size(), ledger_size)) joined.append(leaves)
  } catch (cause) {
    log.close()
    return new Failure('internal', { says: 'The missing leaves of the audit log cannot be made again.', cause })
  }
  joined.committed()
  return joined
}

const signedSize = (folder: string): number | Failure => {
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

const ledgerLog = (log: Log): LedgerLog => {
  let committed = log.size()
  const cut = (): Failure | undefined => (log.size() > committed ? log.truncate(committed) : undefined)
  const orThrow = <T>(done: T | Failure): T => {
    if (done instanceof Failure) throw new LogTrouble(done)
    return done
  }
  return {
    log,
    begin: () => orThrow(cut()),
    append: (leaves) => (leaves.length === 0 ? log.size() : orThrow(log.append(leaves))),
    next: () => log.size(),
    committed: () => {
      committed = log.size()
    },
    checkpoint: () => cut() ?? log.checkpoint(),
    checkpointLater: async () => cut() ?? log.checkpointLater(),
  }
}
