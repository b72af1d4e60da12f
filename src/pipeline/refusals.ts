import type { Failure } from '../base/failure.ts'
import type { Call } from './call.ts'
import { credential } from './identify.ts'
import type { House, JournalPort } from './house.ts'

/**
 * Refused calls (401, 403, 429) of one worker, counted by key, reason and minute: a minute is one journal record for each
 * key and reason, however many callers there are. Callers without a known key are all one. What is counted since the
 * last full minute is lost with a killed process.
 */
export type Refusals = {
  /** Counts one refused call. */
  count(key_id: string, tenant: string, failure: string, now_ms: number): void
  /** Writes down the minutes that are over by then; `Infinity` writes all. */
  flush(now_ms: number): void
}

const MINUTE_MS = 60_000
/** Lines of one minute; what comes beyond is counted without its key. */
const LINES_MAX = 4_096

type Line = { readonly key_id: string; readonly tenant: string; readonly failure: string; count: number }

/** Begins to count. `journal` gets the records; one that is full loses them. */
export const countRefusals = (journal: Pick<JournalPort, 'append'>): Refusals => {
  let minute_ms = 0
  const lines = new Map<string, Line>()
  const lineOf = (key_id: string, tenant: string, failure: string): Line => {
    const name = `${key_id} ${failure}`
    const known = lines.get(name)
    if (known !== undefined) return known
    if (key_id !== '' && lines.size >= LINES_MAX) return lineOf('', '', failure)
    const line = { key_id, tenant, failure, count: 0 }
    lines.set(name, line)
    return line
  }
  const flush = (now_ms: number): void => {
    if (lines.size === 0 || now_ms < minute_ms + MINUTE_MS) return
    for (const line of lines.values()) journal.append({ kind: 'refusals', at_ms: minute_ms, ...line })
    lines.clear()
  }
  return {
    count: (key_id, tenant, failure, now_ms) => {
      flush(now_ms)
      if (lines.size === 0) minute_ms = Math.floor(now_ms / MINUTE_MS) * MINUTE_MS
      lineOf(key_id, tenant, failure).count += 1
    },
    flush,
  }
}

/** Counts a refusal if it is of those that are counted; a call that has its intent in the journal is there anyway. */
export const noteRefusal = (failure: Failure, call: Call | undefined, house: House): void => {
  if ((failure.status !== 401 && failure.status !== 403 && failure.status !== 429) || call?.intended) return
  const key = call?.key ?? (KNOWN.has(failure.code) && call ? keyOf(call, house) : undefined)
  house.refusals.count(key?.id ?? '', key?.tenant ?? '', failure.code, house.now())
}

/** Failures of a key that is known, and not used for the call. */
const KNOWN: ReadonlySet<string> = new Set(['key_revoked', 'key_expired'])

const keyOf = (call: Call, house: House) => {
  const secret = credential(call.headers)
  return typeof secret === 'string' ? house.keys.by_sha256.get(Bun.SHA256.hash(secret, 'hex')) : undefined
}
