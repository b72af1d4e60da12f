import { LEAF_BYTES_MAX, sha256 } from '../audit/hash.ts'
import type { AdminActionRow, AttemptRow, CallRow, EntryRow, PriceRow, RefusalRow } from './tables.ts'

/**
 * Rows of the ledger as leaves of the Merkle log: RFC 8785 JSON of the row as it is stored, under a `type`. Integers are
 * JSON numbers up to 2^53 − 1 and decimal strings beyond, flags 0 or 1, bytes lower-case hex. Members
 * stand in the order that the RFC asks for, so nothing has to be sorted; a test compares every type with `canonicalJson`.
 *
 *   call          the row without its salt, `salt_sha256` in its place; `tried`: its rows of `attempts`; `entries`: those
 *                 that were posted with it, without their call's id
 *   entries       entries that were posted without the row of a call, of one tenant and posting, in order
 *   price, refusal, admin_action   the row
 *
 * A row too long for a leaf is there by its hash: `{"log_index", "sha256", "type"}`, the hash being that of the JSON
 * that the leaf would have been. Leaves may share memory; they are not to be written to.
 */

/**
 * The leaf of a call. Requires that `row` has its salt, its salted hashes and its `log_index`, and of its entries those of
 * this leaf, in the order of their numbers.
 */
export const callLeaf = (
  row: CallRow,
  tried: readonly AttemptRow[],
  posted: readonly Omit<EntryRow, 'log_index'>[],
): Uint8Array => {
  const q = isPlain(row) ? bare : quoted
  // Put together by hand: an object for the platform's printer costs twice as much, and this is made for every call.
  return leaf(
    row.log_index,
    `{"asked_model":${q(row.asked_model)},"at_ms":${row.at_ms},"attempts":${row.attempts},"audio_input_tokens":${row.audio_input_tokens},"audio_output_tokens":${row.audio_output_tokens},"cached_tokens":${row.cached_tokens},"charge_nanodollars":${orNull(row.charge_nanodollars)},"completion_tokens":${row.completion_tokens},"end_user":${q(row.end_user)},"ending":"${row.ending}","endpoint":${q(row.endpoint)},"engine":${q(row.engine)},"engine_model":${q(row.engine_model)},"engine_ms":${row.engine_ms},"entries":[${posted.map(postedMember).join(',')}],"failure":${q(row.failure)},"finish_reason":${q(row.finish_reason)},"first_token_ms":${row.first_token_ms},"hold_nanodollars":${integer(row.hold_nanodollars)},"id":${q(row.id)},"images":${row.images},"key_id":${q(row.key_id)},"log_index":${row.log_index},"model":${q(row.model)},"price_version":${row.price_version},"prompt_tokens":${row.prompt_tokens},"queue_ms":${row.queue_ms},"reasoning_tokens":${row.reasoning_tokens},"request_sha256":"${row.request_sha256.toHex()}","response_sha256":"${row.response_sha256.toHex()}","salt_sha256":"${row.salt === null ? '' : sha256(row.salt).toHex()}","series":${q(row.series)},"status":${row.status},"stream":${flag(row.stream)},"tenant":${q(row.tenant)},"total_ms":${row.total_ms},"tried":[${tried.map(triedMember).join(',')}],"type":"call","usage_source":"${row.usage_source}"}`,
  )
}

const triedMember = ({ at_ms, because, engine, engine_model, n }: AttemptRow): string =>
  `{"at_ms":${at_ms},"because":${quoted(because)},"engine":${quoted(engine)},"engine_model":${quoted(engine_model)},"n":${n}}`

const postedMember = (row: Omit<EntryRow, 'log_index'>): string =>
  `{"amount_nanodollars":${integer(row.amount_nanodollars)},"at_ms":${row.at_ms},${restOfEntry(row)}`

const entryMember = (row: Omit<EntryRow, 'log_index'>): string =>
  `{"amount_nanodollars":${integer(row.amount_nanodollars)},"at_ms":${row.at_ms},"call_id":${row.call_id === null ? 'null' : quoted(row.call_id)},${restOfEntry(row)}`

const restOfEntry = ({ credit, debit, id, kind, reason }: Omit<EntryRow, 'log_index'>): string =>
  `"credit":${quoted(credit)},"debit":${quoted(debit)},"id":${id},"kind":"${kind}","reason":${quoted(reason)}}`

/** The leaf of entries in the order of their numbers. */
export const entriesLeaf = (log_index: number, rows: readonly Omit<EntryRow, 'log_index'>[]): Uint8Array =>
  leaf(log_index, `{"entries":[${rows.map(entryMember).join(',')}],"log_index":${log_index},"type":"entries"}`)

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

/** The leaf of refused calls. */
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

const money = (amount: bigint): number | string =>
  amount <= MAX && amount >= -MAX ? Number(amount) : amount.toString()
const moneyOrNull = (amount: bigint | null): number | string | null => (amount === null ? null : money(amount))
const integer = (amount: bigint): number | string => (amount <= MAX && amount >= -MAX ? Number(amount) : `"${amount}"`)
const orNull = (amount: bigint | null): number | string => (amount === null ? 'null' : integer(amount))
const flag = (value: boolean): number => (value ? 1 : 0)

// A lone surrogate is stored as U+FFFD, so it enters the log as that.
const text = (value: string): string => (value.isWellFormed() ? value : value.toWellFormed())

const quoted = (value: string): string => JSON.stringify(text(value))
const bare = (value: string): string => `"${value}"`

// Printable ASCII without quote and backslash: text that JSON writes as it is.
const PLAIN = /^[ !#-[\]-~]*$/

const isPlain = (row: CallRow): boolean =>
  PLAIN.test(
    row.asked_model +
      row.end_user +
      row.endpoint +
      row.engine +
      row.engine_model +
      row.failure +
      row.finish_reason +
      row.id +
      row.key_id +
      row.model +
      row.series +
      row.tenant,
  )

const leafOf = (log_index: number | null, row: object): Uint8Array => leaf(log_index, JSON.stringify(row))

const leaf = (log_index: number | null, json: string): Uint8Array => {
  const bytes = utf8(json)
  if (bytes.byteLength <= LEAF_BYTES_MAX) return bytes
  return utf8(JSON.stringify({ log_index, sha256: sha256(bytes).toHex(), type: 'too_long' }))
}

// Leaves stand one after the other in a common piece of memory: one of its own for each costs more than writing it.
const ARENA_BYTES = 1024 * 1024
let arena = Buffer.allocUnsafe(0)
let used = 0

const utf8 = (json: string): Uint8Array => {
  if (json.length * 3 > ARENA_BYTES) return Buffer.from(json, 'utf8')
  if (json.length * 3 > arena.byteLength - used) {
    arena = Buffer.allocUnsafeSlow(ARENA_BYTES)
    used = 0
  }
  const start = used
  used += arena.write(json, start, 'utf8')
  return arena.subarray(start, used)
}
