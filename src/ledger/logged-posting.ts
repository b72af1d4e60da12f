import { saltedBodyHash } from '../audit/leaf.ts'
import type { LedgerLog } from './ledger-log.ts'
import { callLeaf, entriesLeaf, entryMember, refusalLeaf } from './leaves.ts'
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
  const calls = logCalls(posting.rows, posting.attempts, take)
  const entries = logEntries(posting.entries, next.entry, take)
  const refusals = logRefusals(posting.refusals, next.refusal, take)
  log.append(leaves)
  return { calls, entries, refusals }
}

type Take = (leaf: (log_index: number) => Uint8Array) => number

const NONE: readonly AttemptRow[] = []

const logCalls = (rows: readonly CallRow[], attempts: readonly AttemptRow[], take: Take): CallRow[] => {
  const tried = Map.groupBy(attempts, ({ call_id }) => call_id)
  const salts = crypto.getRandomValues(new Uint8Array(rows.length * SALT_BYTES))
  return rows.map((row, nth) => {
    const salt = salts.slice(nth * SALT_BYTES, (nth + 1) * SALT_BYTES)
    const stored: CallRow = {
      ...row,
      salt,
      request_sha256: salted(salt, row.request_sha256),
      response_sha256: salted(salt, row.response_sha256),
    }
    take((log_index) => {
      stored.log_index = log_index
      return callLeaf(stored, tried.get(row.id) ?? NONE)
    })
    return stored
  })
}

const salted = (salt: Uint8Array, sha256: Uint8Array): Uint8Array =>
  sha256.byteLength === 0 ? sha256 : saltedBodyHash(salt, sha256)

/** Entries of one tenant share a leaf: what is shown of it to prove one entry says nothing of other tenants. */
const logEntries = (entries: readonly NewEntry[], first_id: number, take: Take): EntryRow[] => {
  const rows = entries.map((entry, nth): EntryRow => ({ ...entry, id: first_id + nth, log_index: null }))
  for (const of_tenant of Map.groupBy(rows, tenantOf).values())
    for (let at = 0; at < of_tenant.length;) at = logOneLeaf(of_tenant, at, take)
  return rows
}

/** So that an entry of ordinary length never makes its leaf too long. */
const ENTRIES_MAX = 100

const logOneLeaf = (rows: readonly EntryRow[], from: number, take: Take): number => {
  const to = Math.min(from + ENTRIES_MAX, rows.length)
  const log_index = take((index) => entriesLeaf(index, rows.slice(from, to).map(entryMember)))
  for (let nth = from; nth < to; nth++) rows[nth]!.log_index = log_index
  return to
}

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
