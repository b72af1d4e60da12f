import type { Failure } from '../base/failure.ts'
import type { JournalRecord } from '../journal/record.ts'

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

type Sink = { append(record: JournalRecord): number | Failure }

/** Begins to count. `journal` gets the records; one that is full loses them. */
export const countRefusals = (journal: Sink): Refusals => {
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
