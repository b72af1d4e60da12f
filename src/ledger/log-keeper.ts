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
export const keepLog = (ports: KeeperPorts): { stop(): void } => {
  const tell = teller(ports.log)
  const copy = actionCopier(ports, tell)
  const signer = checkpointSigner(ports, tell)
  const tick = (): void => {
    try {
      copy()
      answerLetters(ports.letters, (letter) => act(ports, letter))
      signer.sign()
    } catch (cause) {
      tell('log_not_kept', cause)
    }
  }
  const timer = setInterval(tick, TICK_MS)
  tick()
  return {
    stop: () => {
      clearInterval(timer)
      signer.hurry()
      tick()
      ports.house_reader.sqlite.close()
      ports.ledger_log.log.close()
    },
  }
}

type Tell = (event: string, cause: unknown) => void

/** Says a trouble once, however often it comes in a row. */
const teller = (log: Log): Tell => {
  let last = ''
  return (event, cause) => {
    const said = `${event} ${cause instanceof Failure ? cause.detail.says : String(cause)}`
    if (said !== last) log('warn', event, { cause })
    last = said
  }
}

type Actions = Omit<AdminLogRow, 'id' | 'at_ms'> & { readonly id: bigint; readonly at_ms: bigint }

const actionCopier = ({ poster, house_reader }: KeeperPorts, tell: Tell): (() => void) => {
  const newer = house_reader.sqlite.prepare<Actions, [number, number]>(
    'SELECT * FROM admin_log WHERE id > ? ORDER BY id LIMIT ?',
  )
  let copied = poster.lastAdminAction()
  return () => {
    const found = newer.all(copied, ACTIONS_MAX)
    const last = found.at(-1)
    if (last === undefined) return
    const rows = found.map(({ id, at_ms, ...row }) => ({ ...row, id: Number(id), at_ms: Number(at_ms) }))
    const result = poster.adminActions(rows)
    if (result.is === 'posted') copied = Number(last.id)
    else tell('admin_actions_postponed', result.is === 'later' ? result.cause : 'another accountant has posted')
  }
}

const checkpointSigner = ({ ledger_log, cosign }: KeeperPorts, tell: Tell) => {
  const { log } = ledger_log
  let cosigning_since_ms: number | undefined
  let closed = false
  let signing = false
  // An answer that comes after the log was closed must not be written to it.
  const open_log: AuditLog = {
    ...log,
    keepSignatures: (text, signatures) =>
      closed ? new Failure('conflict', { says: 'The log is closed.' }) : log.keepSignatures(text, signatures),
  }
  const askWitness = async (): Promise<void> => {
    if (cosign === undefined || cosigning_since_ms !== undefined || closed) return
    cosigning_since_ms = tickMs()
    const cosigned = await cosign(open_log)
    cosigning_since_ms = undefined
    if (cosigned instanceof Failure && !closed) tell('checkpoint_not_cosigned', cosigned)
  }
  const signLater = async (): Promise<void> => {
    signing = true
    const signed = await ledger_log.checkpointLater()
    signing = false
    if (closed) return
    if (signed instanceof Failure) tell('checkpoint_not_signed', signed)
    else void askWitness()
  }
  return {
    sign: (): void => {
      const latest = log.latest()
      if (!(latest instanceof Failure) && latest?.checkpoint.size === log.size()) return
      // A cosignature is kept only of the newest checkpoint.
      if (cosigning_since_ms !== undefined && tickMs() - cosigning_since_ms < COSIGN_MS) return
      if (closed) {
        const last = ledger_log.checkpoint()
        if (last instanceof Failure) tell('checkpoint_not_signed', last)
      } else if (!signing) void signLater()
    },
    /** The next checkpoint waits for nobody and is the last one. */
    hurry: (): void => {
      closed = true
      cosigning_since_ms = undefined
    },
  }
}

const act = ({ store, ledger_log }: KeeperPorts, letter: Letter): Reply => {
  // Leaves are made of rows with their salts, so none may be missing when salts go.
  const signed = ledger_log.checkpoint()
  if (signed instanceof Failure) return { refused: signed.detail.says ?? signed.code }
  if (letter.kind === 'erase_salts') return { done: { erased: eraseSalts(store, letter.tenant) } }
  const keys = ledger_log.log.rotateKey()
  if (keys instanceof Failure) return { refused: keys.detail.says ?? keys.code }
  const by_both = ledger_log.checkpoint()
  if (by_both instanceof Failure) return { refused: by_both.detail.says ?? by_both.code }
  return { done: { verifier_key: formatVerifierKey(keys.at(-1)!), checkpoint: by_both } }
}
