import { tickMs } from '../base/clock.ts'
import { Failure } from '../base/failure.ts'
import type { Log } from '../observe/log.ts'
import type { Store } from './database.ts'
import type { AdminLogRow } from './house-tables.ts'
import { leafCounter } from './leaf-numbers.ts'
import { signedSize } from './ledger-log.ts'
import { answerLetters, type Letter, type Reply } from './mailbox.ts'
import type { Poster } from './poster.ts'
import { emptyWal, eraseSalts } from './salts.ts'
import { type Tell, teller } from './teller.ts'

export type ChorePorts = {
  /** `ledger.db`, of which the caller is the one writer. */
  readonly store: Store
  readonly poster: Poster
  /** All that was in the journals at this time is posted. */
  readonly posted_until_ms: () => number
  /** `house.db`, read for its log of admin actions. */
  readonly house_reader: Store
  /** Where letters to the house's writers lie. */
  readonly letters: string
  /** The folder of the audit log. */
  readonly audit: string
  readonly log: Log
}

const LOOK_MS = 250
const ACTIONS_MAX = 500
/** How long after its end a minute may still grow: workers write down what they refused within a beat of 100 ms. */
const LATE_MS = 5_000
const MINUTE_MS = 60_000
const REFUSALS_MAX = 1_000
/** How long an erasure waits for the log to sign the rows that there are, and for readers; a letter's sender waits a little longer. */
const ERASED_MS = 8_000
const POLL_MS = 50
/** Between two tries to empty the write-ahead log, of which each holds up the postings for a quarter of a second. */
const READER_MS = 500

/**
 * What the ledger's writer does beside the posting of calls: it copies the admin actions, makes refused calls rows once
 * their minute is over, and erases salts when asked to. Stopped with everything posted, it makes rows of all minutes.
 */
export const doChores = (ports: ChorePorts): { stop(all_posted: boolean): void } => {
  const tell = teller(ports.log)
  const over_ms = () => ports.posted_until_ms() - MINUTE_MS - LATE_MS
  const newer = actionCopier(ports, tell)
  const copy = (): void => {
    try {
      newer()
    } catch (cause) {
      tell('admin_actions_not_copied', cause)
    }
  }
  let erasing = false
  const erase = async (): Promise<void> => {
    if (erasing) return
    erasing = true
    try {
      await answerLetters(ports.letters, 'accountant', (letter) => act(ports, letter))
    } catch (cause) {
      tell('letters_not_answered', cause)
    }
    erasing = false
  }
  const look = (): void => {
    copy()
    logRefusals(ports.poster, over_ms(), tell)
    void erase()
  }
  const timer = setInterval(look, LOOK_MS)
  look()
  return {
    stop: (all_posted) => {
      clearInterval(timer)
      copy()
      while (logRefusals(ports.poster, all_posted ? Number.POSITIVE_INFINITY : over_ms(), tell));
      ports.house_reader.sqlite.close()
    },
  }
}

/** Makes some lines of minutes that began before then rows. True if it did, so there may be more. */
const logRefusals = (poster: Poster, before_ms: number, tell: Tell): boolean => {
  try {
    const oldest_ms = poster.oldestRefusals()
    if (oldest_ms === undefined || oldest_ms >= before_ms) return false
    const result = poster.logRefusals(before_ms, REFUSALS_MAX)
    if (result.is === 'posted') return true
    tell('refusals_postponed', result.is === 'later' ? result.cause : 'another accountant has posted')
  } catch (cause) {
    tell('refusals_not_logged', cause)
  }
  return false
}

type Actions = Omit<AdminLogRow, 'id' | 'at_ms'> & { readonly id: bigint; readonly at_ms: bigint }

const actionCopier = ({ poster, house_reader }: ChorePorts, tell: Tell): (() => void) => {
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

// A leaf is made of its row with the salt, so a row keeps its salt until a checkpoint covers it.
const act = async ({ store, audit }: ChorePorts, { tenant }: Letter<'erase_salts'>): Promise<Reply> => {
  const wanted = leafCounter(store.sqlite)()
  const until_tick_ms = tickMs() + ERASED_MS
  let erased: number | undefined
  for (;;) {
    const signed = signedSize(audit)
    if (signed instanceof Failure) return { refused: signed.detail.says ?? signed.code }
    if (signed >= wanted) erased ??= eraseSalts(store, tenant, signed)
    if (erased !== undefined && emptyWal(store)) return { done: { erased } }
    if (tickMs() >= until_tick_ms)
      return erased === undefined
        ? { refused: `The audit log has signed ${signed} of the ${wanted} leaves that there are: try again later.` }
        : {
            refused: `${erased} salts are erased, and still in the write-ahead log, which has a reader: try again later.`,
          }
    await Bun.sleep(erased === undefined ? POLL_MS : READER_MS)
  }
}
