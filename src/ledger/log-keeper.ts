import type { Cosigned } from '../audit/witness.ts'
import { formatVerifierKey } from '../audit/note-key.ts'
import type { Log as AuditLog } from '../audit/log.ts'
import { tickMs } from '../base/clock.ts'
import { errorOf, Failure } from '../base/failure.ts'
import type { Log } from '../observe/log.ts'
import type { LedgerLog } from './ledger-log.ts'
import { answerLetters, type Reply } from './mailbox.ts'
import { type Tell, teller } from './teller.ts'

export type KeeperPorts = {
  readonly ledger_log: LedgerLog
  /** Where letters to the house's writers lie. */
  readonly letters: string
  /** Has the newest checkpoint cosigned; undefined without a witness. */
  readonly cosign: ((log: AuditLog) => Promise<Cosigned | Failure>) | undefined
  readonly log: Log
}

/** How soon a committed row has its leaf. */
const FOLLOW_MS = 150
/** Leaves made at once: some milliseconds of work. */
const LEAVES_MAX = 1_000
/** How often the log is signed: a committed row is within a second. Each time its files are synced, for which the ledger waits as well. */
const SIGN_MS = 600
/** How long the next checkpoint waits for a witness that is still at the last one. */
const COSIGN_MS = 700

/** The keeping of a log. */
export type LogKeeper = {
  /** Appends and signs whatever is left, and ends. Throws if that cannot be done; the next start does it then. */
  stop(): void
}

/**
 * Keeps the log of a ledger: appends the leaves of the rows that are posted, signs a checkpoint while there are new
 * leaves, has it cosigned, and does what other processes ask of the log.
 */
export const keepLog = (ports: KeeperPorts): LogKeeper => {
  const { ledger_log } = ports
  const tell = teller(ports.log)
  const signer = checkpointSigner(ports, tell)
  const following = keepFollowing(ledger_log, tell)
  const look = (): void => {
    signer.sign()
    answerLetters(ports.letters, 'auditor', () => rotateKey(ledger_log)).catch((cause: unknown) =>
      tell('letters_not_answered', cause),
    )
  }
  const timer = setInterval(look, SIGN_MS)
  look()
  return {
    stop: () => {
      clearInterval(timer)
      following.stop()
      signer.stop()
    },
  }
}

const keepFollowing = (ledger_log: LedgerLog, tell: Tell) => {
  let timer: Timer | undefined
  const turn = (): void => {
    const appended = ledger_log.follow(LEAVES_MAX)
    if (appended instanceof Failure) tell('log_not_followed', appended)
    // Fewer than asked for are all that there were, or all the entries that a step reads.
    const more = !(appended instanceof Failure) && appended >= LEAVES_MAX / 4
    timer = setTimeout(turn, more ? 0 : FOLLOW_MS)
  }
  timer = setTimeout(turn, 0)
  return {
    stop: () => {
      clearTimeout(timer)
      for (;;) {
        const appended = ledger_log.follow(LEAVES_MAX)
        if (appended instanceof Failure) throw errorOf(appended)
        if (appended === 0) return
      }
    },
  }
}

const checkpointSigner = ({ ledger_log: { log }, cosign }: KeeperPorts, tell: Tell) => {
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
    const signed = await log.checkpointLater()
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
      if (!signing) void signLater()
    },
    /** Signs the last checkpoint, which waits for nobody. */
    stop: (): void => {
      closed = true
      const last = log.checkpoint()
      if (last instanceof Failure) throw errorOf(last)
    },
  }
}

// The checkpoint before it is signed by the old key alone, the one after it by both.
const rotateKey = ({ log }: LedgerLog): Reply => {
  const before = log.checkpoint()
  if (before instanceof Failure) return { refused: before.detail.says ?? before.code }
  const keys = log.rotateKey()
  if (keys instanceof Failure) return { refused: keys.detail.says ?? keys.code }
  const by_both = log.checkpoint()
  if (by_both instanceof Failure) return { refused: by_both.detail.says ?? by_both.code }
  return { done: { verifier_key: formatVerifierKey(keys.at(-1)!), checkpoint: by_both } }
}
