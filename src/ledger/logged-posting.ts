import { saltedBodyHash } from '../audit/leaf.ts'
import type { Posting } from './posting.ts'
import type { CallRow, EntryRow, NewEntry } from './tables.ts'

/** What of a posting becomes leaves at once. */
export type Loggable = Pick<Posting, 'rows' | 'entries'>

/** Rows as they are stored: with number, salt, salted hashes and the number of their leaf. */
export type Logged = {
  readonly calls: readonly CallRow[]
  readonly entries: readonly EntryRow[]
}

/** The numbers that the next entry and the next leaf get; without a log there are no leaves. */
export type NextIds = { readonly entry: number; readonly leaf: number | undefined }

const SALT_BYTES = 16

/**
 * Gives the rows of a posting their numbers and those of their leaves, which are made of the rows once they are committed
 * (`leaf-source.ts`). Without a log (tools and tests that need none) rows have no leaf, no salt, and the hashes of the
 * bodies as they are.
 */
export const logPosting = (posting: Loggable, next: NextIds): Logged => {
  let leaf = next.leaf
  if (leaf === undefined)
    return {
      calls: posting.rows,
      entries: posting.entries.map((entry, nth) => ({ ...entry, id: next.entry + nth, log_index: null })),
    }
  const calls = salted(posting.rows, leaf)
  const entries: EntryRow[] = []
  // In the order of the leaves: a table's last row has to be in its last leaf.
  const number = ({ call_id, at_ms, kind, debit, credit, amount_nanodollars, reason }: NewEntry, log_index: number) => {
    const id = next.entry + entries.length
    entries.push({ id, call_id, at_ms, kind, debit, credit, amount_nanodollars, reason, log_index })
  }
  let at = 0
  for (const { id } of calls) {
    for (; posting.entries[at]?.call_id === id; at++) number(posting.entries[at]!, leaf)
    leaf++
  }
  for (const of_leaf of entryLeaves(posting.entries.slice(at))) {
    for (const entry of of_leaf) number(entry, leaf)
    leaf++
  }
  return { calls, entries }
}

/** Rows of calls with salt, salted hashes and the number of their leaf. */
const salted = (rows: readonly CallRow[], first: number): CallRow[] => {
  const salts = crypto.getRandomValues(new Uint8Array(rows.length * SALT_BYTES))
  return rows.map((row, nth) => {
    const salt = salts.slice(nth * SALT_BYTES, (nth + 1) * SALT_BYTES)
    return {
      ...row,
      salt,
      request_sha256: saltedOr(salt, row.request_sha256),
      response_sha256: saltedOr(salt, row.response_sha256),
      log_index: first + nth,
    }
  })
}

// Nothing is known of the body if the process that would know has died.
const saltedOr = (salt: Uint8Array, sha256: Uint8Array): Uint8Array =>
  sha256.byteLength === 0 ? sha256 : saltedBodyHash(salt, sha256)

/** Entries of one tenant share a leaf: what is shown of it to prove one entry says nothing of other tenants. */
const entryLeaves = function* (entries: readonly NewEntry[]): Generator<readonly NewEntry[]> {
  for (const of_tenant of Map.groupBy(entries, tenantOf).values())
    for (let at = 0; at < of_tenant.length; at += ENTRIES_MAX) yield of_tenant.slice(at, at + ENTRIES_MAX)
}

/** So that an entry of ordinary length never makes its leaf too long. */
const ENTRIES_MAX = 100

const tenantOf = ({ debit, credit }: NewEntry): string => {
  const account = debit.includes(':') ? debit : credit
  return account.slice(account.indexOf(':') + 1)
}
