import { setPriority } from 'node:os'
import { parseVerifierKey } from '../audit/note-key.ts'
import { cosigner } from '../audit/witness.ts'
import { nowMs } from '../base/clock.ts'
import { Failure } from '../base/failure.ts'
import type { Config } from '../config/schema.ts'
import { openLedgerLog } from '../ledger/ledger-log.ts'
import { keepLog } from '../ledger/log-keeper.ts'
import type { Log } from '../observe/log.ts'
import { HEADER } from '../table/layout.ts'
import { openTable } from '../table/table.ts'
import type { ChildContext, ChildLife } from './child.ts'

const WITNESS_MS = 2_000
const REPORT_MS = 500
/** Calls and their rows go first: the log can be behind for a moment, and costs no memory while it is. */
export const AUDITOR_NICE = 5

/**
 * The auditor: the one writer of the Merkle log. Appends a leaf for every row that the accountant posts, and signs. It is
 * ready when log and ledger are open and fit together; what it has to catch up with, and a disk without room for it, keep
 * no house from starting.
 */
export const runAuditor = async ({ boot, log, ready }: ChildContext): Promise<ChildLife> => {
  const { files, config } = boot
  setPriority(0, AUDITOR_NICE)
  const ledger_log = openLedgerLog(files.data, files.audit, config.audit.origin)
  const { repaired } = ledger_log.log
  if (repaired.leaves_cut > 0) log('info', 'audit_log_repaired', { ...repaired })
  const table = openTable(files.table)
  const report = setInterval(() => {
    try {
      table.f64[HEADER.leaves_behind] = ledger_log.behind()
      table.f64[HEADER.auditor_seen_ms] = nowMs()
    } catch (cause) {
      log('warn', 'auditor_not_reported', { cause })
    }
  }, REPORT_MS)
  const keeper = keepLog({ ledger_log, letters: files.letters, cosign: cosignerOf(config, log), log })
  ready(0)
  return {
    // The log's name and its witness need a restart.
    onConfig: () => undefined,
    drain: async () => {
      clearInterval(report)
      keeper.stop()
      ledger_log.close()
    },
  }
}

/** What has checkpoints cosigned, if the configuration names a witness whose key can be read. */
const cosignerOf = ({ audit: { witness } }: Config, log: Log) => {
  if (witness === undefined) return undefined
  const key = parseVerifierKey(witness.key)
  if (!(key instanceof Failure)) return cosigner({ url: witness.url, keys: [key], timeout_ms: WITNESS_MS })
  log('error', 'witness_not_used', { says: key.detail.says })
  return undefined
}
