import { LEAF_BYTES_MAX, sha256 } from '../audit/hash.ts'
import type { AdminActionRow, AttemptRow, CallRow, EntryRow, PriceRow, RefusalRow } from './tables.ts'

/**
 * Rows of the ledger as leaves of the Merkle log: RFC 8785 JSON of the row as it is stored, under a `type`. Integers are
 * JSON numbers up to 2^53 − 1 and decimal strings beyond, flags 0 or 1, bytes lower-case hex. Members
 * stand in the order that the RFC asks for, so nothing has to be sorted and the platform's own printer, which is the
 * fastest, does the rest; a test compares every type with `canonicalJson`.
 *
 *   call          the row without its salt, `salt_sha256` in its place, and `tried`: its rows of `attempts`
 *   entries       entries of one tenant and posting, in order
 *   price, refusal, admin_action   the row
 *
 * A row too long for a leaf is there by its hash: `{"log_index", "sha256", "type"}`, the hash being that of the JSON
 * that the leaf would have been.
 */

/** The leaf of a call. Requires that `row` has its salt, its salted hashes and its `log_index`. */
export const callLeaf = (row: CallRow, tried: readonly AttemptRow[]): Uint8Array =>
  leaf(row.log_index, {
    asked_model: text(row.asked_model),
    at_ms: row.at_ms,
    attempts: row.attempts,
    audio_input_tokens: row.audio_input_tokens,
    audio_output_tokens: row.audio_output_tokens,
    cached_tokens: row.cached_tokens,
    charge_nanodollars: orNull(row.charge_nanodollars),
    completion_tokens: row.completion_tokens,
    end_user: text(row.end_user),
    ending: row.ending,
    endpoint: text(row.endpoint),
    engine: text(row.engine),
    engine_model: text(row.engine_model),
    engine_ms: row.engine_ms,
    failure: text(row.failure),
    finish_reason: text(row.finish_reason),
    first_token_ms: row.first_token_ms,
    hold_nanodollars: integer(row.hold_nanodollars),
    id: text(row.id),
    key_id: text(row.key_id),
    log_index: row.log_index,
    model: text(row.model),
    price_version: row.price_version,
    prompt_tokens: row.prompt_tokens,
    queue_ms: row.queue_ms,
    reasoning_tokens: row.reasoning_tokens,
    request_sha256: row.request_sha256.toHex(),
    response_sha256: row.response_sha256.toHex(),
    salt_sha256: row.salt === null ? '' : sha256(row.salt).toHex(),
    series: text(row.series),
    status: row.status,
    stream: flag(row.stream),
    tenant: text(row.tenant),
    total_ms: row.total_ms,
    tried: tried.map(({ at_ms, because, engine, engine_model, n }) => ({
      at_ms,
      because: text(because),
      engine: text(engine),
      engine_model: text(engine_model),
      n,
    })),
    type: 'call',
    usage_source: row.usage_source,
  })

/** An entry as it stands in the list of its leaf. */
export const entryMember = (row: Omit<EntryRow, 'log_index'>) => ({
  amount_nanodollars: integer(row.amount_nanodollars),
  at_ms: row.at_ms,
  call_id: row.call_id === null ? null : text(row.call_id),
  credit: text(row.credit),
  debit: text(row.debit),
  id: row.id,
  kind: row.kind,
  reason: text(row.reason),
})

/** The leaf of entries in the order of their numbers. */
export const entriesLeaf = (log_index: number, members: readonly ReturnType<typeof entryMember>[]): Uint8Array =>
  leaf(log_index, { entries: members, log_index, type: 'entries' })

/** The leaf of a version of a price. */
export const priceLeaf = (row: PriceRow): Uint8Array =>
  leaf(row.log_index, {
    audio_input_picodollars: orNull(row.audio_input_picodollars),
    audio_output_picodollars: orNull(row.audio_output_picodollars),
    cached_input_picodollars: orNull(row.cached_input_picodollars),
    free: flag(row.free),
    input_picodollars: integer(row.input_picodollars),
    log_index: row.log_index,
    model: text(row.model),
    output_picodollars: integer(row.output_picodollars),
    reasoning_picodollars: orNull(row.reasoning_picodollars),
    request_nanodollars: integer(row.request_nanodollars),
    type: 'price',
    valid_from_ms: row.valid_from_ms,
    version: row.version,
  })

/** The leaf of refused calls. */
export const refusalLeaf = (row: RefusalRow): Uint8Array =>
  leaf(row.log_index, {
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
  leaf(row.log_index, {
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

const integer = (amount: bigint): number | string =>
  amount <= MAX && amount >= -MAX ? Number(amount) : amount.toString()
const orNull = (amount: bigint | null): number | string | null => (amount === null ? null : integer(amount))
const flag = (value: boolean): number => (value ? 1 : 0)

// A lone surrogate is stored as U+FFFD, so it enters the log as that.
const text = (value: string): string => (value.isWellFormed() ? value : value.toWellFormed())

const leaf = (log_index: number | null, row: object): Uint8Array => {
  const bytes = Buffer.from(JSON.stringify(row), 'utf8')
  if (bytes.byteLength <= LEAF_BYTES_MAX) return bytes
  return Buffer.from(JSON.stringify({ log_index, sha256: sha256(bytes).toHex(), type: 'too_long' }), 'utf8')
}
