import { saltedBodyHash } from '../audit/leaf.ts'
import type { LedgerLog } from './ledger-log.ts'
import { callLeaf } from './call-leaf.ts'
import { entriesLeaf, refusalLeaf } from './leaves.ts'
import type { Posting } from './posting.ts'
import type { AttemptRow, CallRow, EntryRow, NewEntry, NewRefusal, RefusalRow } from './tables.ts'

/** What of a posting becomes leaves. */
export type Loggable = Pick<Posting, 'rows' | 'attempts' | 'entries' | 'refusals'>

/** Rows as they are stored: with number, salt, salted hashes and the index of their leaf. */
export type Logged = {
  readonly calls: readonly CallRow[]
  readonly entries: readonly EntryRow[]
  readonly refusals: readonly RefusalRow[]
}

/** The numbers that the next entry and the next refusal get. */
export type NextIds = { readonly entry: number; readonly refusal: number }

const SALT_BYTES = 16

/**
 * Gives the rows of a posting their numbers and leaves, and appends the leaves. Without a log (tools and tests that need
 * none) rows have no leaf, no salt, and the hashes of the bodies as they are.
 */
export const logPosting = (log: LedgerLog | undefined, posting: Loggable, next: NextIds): Logged => {
  if (log === undefined)
    return {
      calls: posting.rows,
      entries: posting.entries.map((entry, nth) => ({ ...entry, id: next.entry + nth, log_index: null })),
      refusals: posting.refusals.map((row, nth) => ({ ...row, id: next.refusal + nth, log_index: null })),
    }
  const leaves: Uint8Array[] = []
  const first = log.next()
  const take = (leaf: (log_index: number) => Uint8Array): number => {
    const log_index = first + leaves.length
    leaves.push(leaf(log_index))
    return log_index
  }
  const entries: EntryRow[] = []
  const number = (entry: NewEntry): EntryRow => {
    const { call_id, at_ms, kind, debit, credit, amount_nanodollars, reason } = entry
    const id = next.entry + entries.length
    const row: EntryRow = { id, call_id, at_ms, kind, debit, credit, amount_nanodollars, reason, log_index: null }
    entries.push(row)
    return row
  }
  const { calls, left } = logCalls(posting, number, take)
  logEntries(left, number, take)
  const refusals = logRefusals(posting.refusals, next.refusal, take)
  log.append(leaves)
  return { calls, entries, refusals }
}

type Take = (leaf: (log_index: number) => Uint8Array) => number
/** Gives an entry its number. Must be asked in the order of the leaves: a table's last row has to be in its last leaf. */
type Numbering = (entry: NewEntry) => EntryRow

const NONE: readonly AttemptRow[] = []

/** A leaf for each call, which holds its entries as well; `left` are the entries of calls that have no row yet. */
const logCalls = ({ rows, attempts, entries }: Loggable, number: Numbering, take: Take) => {
  const tried = Map.groupBy(attempts, ({ call_id }) => call_id)
  const salts = crypto.getRandomValues(new Uint8Array(rows.length * SALT_BYTES))
  let at = 0
  const calls = rows.map((row, nth) => {
    const salt = salts.slice(nth * SALT_BYTES, (nth + 1) * SALT_BYTES)
    const stored: CallRow = {
      ...row,
      salt,
      request_sha256: salted(salt, row.request_sha256),
      response_sha256: salted(salt, row.response_sha256),
    }
    const posted: EntryRow[] = []
    for (; entries[at]?.call_id === row.id; at++) posted.push(number(entries[at]!))
    take((log_index) => {
      stored.log_index = log_index
      for (const entry of posted) entry.log_index = log_index
      return callLeaf(stored, tried.get(row.id) ?? NONE, posted)
    })
    return stored
  })
  return { calls, left: entries.slice(at) }
}

const salted = (salt: Uint8Array, sha256: Uint8Array): Uint8Array =>
  sha256.byteLength === 0 ? sha256 : saltedBodyHash(salt, sha256)

/** Entries of one tenant share a leaf: what is shown of it to prove one entry says nothing of other tenants. */
const logEntries = (entries: readonly NewEntry[], number: Numbering, take: Take): void => {
  for (const of_tenant of Map.groupBy(entries, tenantOf).values())
    for (let at = 0; at < of_tenant.length; at += ENTRIES_MAX) {
      const rows = of_tenant.slice(at, at + ENTRIES_MAX).map(number)
      take((log_index) => {
        for (const row of rows) row.log_index = log_index
        return entriesLeaf(log_index, rows)
      })
    }
}

/** So that an entry of ordinary length never makes its leaf too long. */
const ENTRIES_MAX = 100

const tenantOf = ({ debit, credit }: NewEntry): string => {
  const account = debit.includes(':') ? debit : credit
  return account.slice(account.indexOf(':') + 1)
}

const logRefusals = (refusals: readonly NewRefusal[], first_id: number, take: Take): RefusalRow[] =>
  refusals.map((refusal, nth) => {
    const row: RefusalRow = { ...refusal, id: first_id + nth, log_index: null }
    take((log_index) => {
      row.log_index = log_index
      return refusalLeaf(row)
    })
    return row
  })
