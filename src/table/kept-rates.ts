import { BUDGET, SUBJECT } from './layout.ts'
import { openTable, slotOf, type Subject, subjectAt, type Table } from './table.ts'

/**
 * What an earlier house of the same data folder leaves to the next one: how much of each limit a minute is used, so that a
 * restart, after whatever end, does not grant a second burst. Nothing else of the old table counts: places and holds were
 * of calls that are over, and what was spent the ledger knows.
 *
 * A theoretical arrival time is a time, not a number of requests: with a limit that was changed meanwhile the same share
 * of the minute is used. After a power failure the file may be older than its last use, or no table at all.
 */

/** How far ahead a subject's theoretical arrival times lie; 0n for none. `hash` is that of its kind and name. */
export type KeptRate = { readonly hash: bigint; readonly rate_tat_ns: bigint; readonly token_tat_ns: bigint }

/**
 * Cells of engines lie over these: a Float64, as an integer far beyond this, and two ages, which may by chance look like a
 * time. Taken over they only say when an average was measured that the new table does not have. More than a minute ahead is
 * what calls took beyond what they had held.
 */
const AHEAD_NS_MAX = 2n ** 53n

/** The limits of an older table that are not free again at that time. No process may use the table. */
export const ratesIn = (table: Table, now_ms: number): KeptRate[] => {
  const now_ns = BigInt(Math.floor(now_ms)) * 1_000_000n
  const ahead = (cell: number): bigint => {
    const tat = table.i64[cell]!
    return tat > now_ns && tat - now_ns < AHEAD_NS_MAX ? tat : 0n
  }
  const kept: KeptRate[] = []
  for (let number = 0; number < table.subjects_max; number++) {
    const subject: Subject = subjectAt(number)
    const hash = table.i64[subject + SUBJECT.hash]!
    if (hash === 0n || table.i32[subject * 2 + BUDGET.window] !== 0) continue
    const rate_tat_ns = ahead(subject + SUBJECT.rate_tat_ns)
    const token_tat_ns = ahead(subject + SUBJECT.token_tat_ns)
    if (rate_tat_ns > 0n || token_tat_ns > 0n) kept.push({ hash, rate_tat_ns, token_tat_ns })
  }
  return kept
}

/** {@link ratesIn} of a file; none if there is no table of this version. */
export const keptRates = (path: string, now_ms: number): KeptRate[] => {
  let table: Table
  try {
    table = openTable(path)
  } catch {
    return [] // There was no house before, or one of another version.
  }
  return ratesIn(table, now_ms)
}

/** Puts them into a new table, before any other process has it; answers how many found a place. */
export const restoreRates = (table: Table, rates: readonly KeptRate[]): number => {
  let restored = 0
  for (const { hash, rate_tat_ns, token_tat_ns } of rates) {
    const subject = slotOf(table, hash)
    if (subject === undefined) break
    Atomics.store(table.i64, subject + SUBJECT.rate_tat_ns, rate_tat_ns)
    Atomics.store(table.i64, subject + SUBJECT.token_tat_ns, token_tat_ns)
    restored++
  }
  return restored
}
