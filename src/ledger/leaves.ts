import type { Cells } from './columns.ts'
import { leafOfText } from './leaf-bytes.ts'
import type { RefusalRow } from './refusal-tables.ts'
import type { AdminActionRow, EntryRow, PriceRow } from './tables.ts'

/**
 * Rows of the ledger as leaves of the Merkle log: RFC 8785 JSON of the row as it is stored, under a `type`. Integers are
 * JSON numbers up to 2^53 − 1 and decimal strings beyond, flags 0 or 1, bytes lower-case hex. Members
 * stand in the order that the RFC asks for, so nothing has to be sorted; a test compares every type with `canonicalJson`.
 *
 *   call          `call-leaf.ts`: the row without its salt, `salt_sha256` in its place; `tried`: its rows of `attempts`; `entries`: those
 *                 that were posted with it, without their call's id
 *   entries       entries that were posted without the row of a call, of one tenant and posting, in order
 *   price, refusal, admin_action   the row
 *
 * A row too long for a leaf is there by its hash: `{"log_index", "sha256", "type"}`, the hash being that of the JSON
 * that the leaf would have been.
 */

/** The leaf of entries in the order of their numbers. */
export const entriesLeaf = (log_index: number, rows: readonly Omit<Cells<EntryRow>, 'log_index'>[]): Uint8Array =>
  leafOf(log_index, {
    entries: rows.map((row) => ({
      amount_nanodollars: money(row.amount_nanodollars),
      at_ms: row.at_ms,
      call_id: row.call_id === null ? null : text(row.call_id),
      credit: text(row.credit),
      debit: text(row.debit),
      id: row.id,
      kind: row.kind,
      reason: text(row.reason),
    })),
    log_index,
    type: 'entries',
  })

/** The leaf of a version of a price. */
export const priceLeaf = (row: PriceRow): Uint8Array =>
  leafOf(row.log_index, {
    audio_input_picodollars: moneyOrNull(row.audio_input_picodollars),
    audio_output_picodollars: moneyOrNull(row.audio_output_picodollars),
    cached_input_picodollars: moneyOrNull(row.cached_input_picodollars),
    free: flag(row.free),
    image_nanodollars: money(row.image_nanodollars),
    input_picodollars: money(row.input_picodollars),
    log_index: row.log_index,
    model: text(row.model),
    output_picodollars: money(row.output_picodollars),
    reasoning_picodollars: moneyOrNull(row.reasoning_picodollars),
    request_nanodollars: money(row.request_nanodollars),
    type: 'price',
    valid_from_ms: row.valid_from_ms,
    version: row.version,
  })

/** The leaf of the refused calls of a key, reason and minute. */
export const refusalLeaf = (row: RefusalRow): Uint8Array =>
  leafOf(row.log_index, {
    at_ms: row.at_ms,
    count: row.count,
    failure: text(row.failure),
    id: row.id,
    key_id: text(row.key_id),
    log_index: row.log_index,
    tenant: text(row.tenant),
    type: 'refusal',
  })

/** The leaf of an action on the admin API. */
export const adminActionLeaf = (row: AdminActionRow): Uint8Array =>
  leafOf(row.log_index, {
    action: text(row.action),
    actor: text(row.actor),
    at_ms: row.at_ms,
    detail_json: text(row.detail_json),
    id: row.id,
    log_index: row.log_index,
    subject: text(row.subject),
    type: 'admin_action',
  })

const MAX = BigInt(Number.MAX_SAFE_INTEGER)

const money = (amount: bigint | number | string): number | string =>
  typeof amount !== 'bigint' ? amount : amount <= MAX && amount >= -MAX ? Number(amount) : amount.toString()
const moneyOrNull = (amount: bigint | null): number | string | null => (amount === null ? null : money(amount))
const flag = (value: boolean): number => (value ? 1 : 0)

// A lone surrogate is stored as U+FFFD, so it enters the log as that.
const text = (value: string): string => (value.isWellFormed() ? value : value.toWellFormed())

const leafOf = (log_index: number | null, row: object): Uint8Array => leafOfText(log_index, JSON.stringify(row))
