import type { Cosigned } from '../audit/witness.ts'
import { formatVerifierKey } from '../audit/note-key.ts'
import type { Log as AuditLog } from '../audit/log.ts'
import { tickMs } from '../base/clock.ts'
import { Failure } from '../base/failure.ts'
import type { Log } from '../observe/log.ts'
import type { Store } from './database.ts'
import type { AdminLogRow } from './house-tables.ts'
import type { LedgerLog } from './ledger-log.ts'
import { answerLetters, type Letter, type Reply } from './mailbox.ts'
import type { Poster } from './poster.ts'
import { eraseSalts } from './salts.ts'

export type KeeperPorts = {
  readonly store: Store
  readonly poster: Poster
  readonly ledger_log: LedgerLog
  /** `house.db`, read for its log of admin actions. */
  readonly house_reader: Store
  /** Where letters to the accountant lie. */
  readonly letters: string
  /** Has the newest checkpoint cosigned; undefined without a witness. */
  readonly cosign: ((log: AuditLog) => Promise<Cosigned | Failure>) | undefined
  readonly log: Log
}

/** How often the log is looked after: a new leaf is signed within twice this. */
const TICK_MS = 250
/** How long the next checkpoint waits for a witness that is still at the last one. */
const COSIGN_MS = 700
const ACTIONS_MAX = 500

/**
 * Looks after the log beside the posting of calls: copies the admin actions, signs a checkpoint while there are new
 * leaves, has it cosigned, and does what other processes ask for. `stop` does all that once more and ends.
 */
export const keepLog = (ports: KeeperPorts) => {
  const { poster, ledger_log, house_reader, letters, cosign, log } = ports
  const { log: audit } = ledger_log
  const newer = house_reader.sqlite.prepare<Actions, [number, number]>(
    'SELECT * FROM admin_log WHERE id > ? ORDER BY id LIMIT ?',
  )
  let copied = poster.lastAdminAction()
  let cosigning_since_ms: number | undefined
  let trouble = ''
  const tell = (event: string, cause: unknown): void => {
    const said = `${event} ${cause instanceof Failure ? cause.detail.says : String(cause)}`
    if (said !== trouble) log('warn', event, { cause })
    trouble = said
  }

  const copyActions = (): void => {
    const rows = newer.all(copied, ACTIONS_MAX).map(({ id, at_ms, ...row }) => ({
      ...row,
      id: Number(id),
      at_ms: Number(at_ms),
    }))
    const last = rows.at(-1)
    if (last === undefined) return
    const result = poster.adminActions(rows)
    if (result.is === 'posted') copied = last.id
    else tell('admin_actions_postponed', result.is === 'later' ? result.cause : 'another accountant has posted')
  }

  const sign = (): void => {
    const latest = audit.latest()
    if (!(latest instanceof Failure) && latest?.checkpoint.size === audit.size()) return
    if (cosigning_since_ms !== undefined && tickMs() - cosigning_since_ms < COSIGN_MS) return
    const signed = ledger_log.checkpoint()
    if (signed instanceof Failure) tell('checkpoint_not_signed', signed)
    else void askWitness()
  }

  const askWitness = async (): Promise<void> => {
    if (cosign === undefined || cosigning_since_ms !== undefined) return
    cosigning_since_ms = tickMs()
    const cosigned = await cosign(audit)
    cosigning_since_ms = undefined
    if (cosigned instanceof Failure) tell('checkpoint_not_cosigned', cosigned)
    else trouble = ''
  }

  const act = (letter: Letter): Reply => {
    // Leaves are made of rows with their salts, so none may be missing when salts go.
    const signed = ledger_log.checkpoint()
    if (signed instanceof Failure) return { refused: signed.detail.says ?? signed.code }
    if (letter.kind === 'erase_salts') return { done: { erased: eraseSalts(ports.store, letter.tenant) } }
    const keys = audit.rotateKey()
    const both = keys instanceof Failure ? keys : ledger_log.checkpoint()
    if (keys instanceof Failure || both instanceof Failure)
      return { refused: (both as Failure).detail.says ?? 'The key was not rotated.' }
    return { done: { verifier_key: formatVerifierKey(keys.at(-1)!), checkpoint: both } }
  }

  const tick = (): void => {
    try {
      copyActions()
      answerLetters(letters, act)
      sign()
    } catch (cause) {
      tell('log_not_kept', cause)
    }
  }
  const timer = setInterval(tick, TICK_MS)
  tick()
  return {
    stop: (): void => {
      clearInterval(timer)
      cosigning_since_ms = undefined
      tick()
      house_reader.sqlite.close()
      audit.close()
    },
  }
}

type Actions = Omit<AdminLogRow, 'id' | 'at_ms'> & { readonly id: bigint; readonly at_ms: bigint }
