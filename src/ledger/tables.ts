import { sql } from 'drizzle-orm'
import { check, index, primaryKey, sqliteTable, text } from 'drizzle-orm/sqlite-core'
import { bytes, flag, money, whole } from './columns.ts'

/**
 * `ledger.db`. It has one writer, the accountant; every other process opens it to read. Times are milliseconds since
 * the epoch, money is integer nanodollars, prices are integer picodollars a token.
 */

/** One row for each call that had an intent, written once, when the call has ended, and never changed. */
export const calls = sqliteTable(
  'calls',
  {
    id: text('id').primaryKey(),
    at_ms: whole('at_ms').notNull(),
    tenant: text('tenant').notNull(),
    key_id: text('key_id').notNull(),
    end_user: text('end_user').notNull(),
    /** The configured model that answered, or was asked last: its price is charged. */
    model: text('model').notNull(),
    /** The model that the client asked for; another one if a fallback answered. */
    asked_model: text('asked_model').notNull().default(''),
    engine: text('engine').notNull(),
    engine_model: text('engine_model').notNull(),
    endpoint: text('endpoint').notNull(),
    stream: flag('stream').notNull(),
    /** The status that the client got; 0 if the process that would know has died. */
    status: whole('status').notNull(),
    finish_reason: text('finish_reason').notNull(),
    ending: text('ending', { enum: ['whole', 'cut_by_client', 'cut_by_engine', 'refused', 'recovered'] }).notNull(),
    /** A failure code, or empty. */
    failure: text('failure').notNull(),
    prompt_tokens: whole('prompt_tokens').notNull(),
    cached_tokens: whole('cached_tokens').notNull(),
    completion_tokens: whole('completion_tokens').notNull(),
    reasoning_tokens: whole('reasoning_tokens').notNull(),
    /** Of the prompt and of the completion, tokens that are sound. */
    audio_input_tokens: whole('audio_input_tokens').notNull().default(0),
    audio_output_tokens: whole('audio_output_tokens').notNull().default(0),
    /** Pictures in the prompt; counted where a price for them is in the configuration of the model or a fallback. */
    images: whole('images').notNull().default(0),
    usage_source: text('usage_source', { enum: ['engine', 'estimated'] }).notNull(),
    attempts: whole('attempts').notNull(),
    hold_nanodollars: money('hold_nanodollars').notNull(),
    /** Null says that no price was known; 0 that the call cost nothing. */
    charge_nanodollars: money('charge_nanodollars'),
    /** The version that made the charge; 0 if none did. */
    price_version: whole('price_version').notNull(),
    queue_ms: whole('queue_ms').notNull(),
    engine_ms: whole('engine_ms').notNull(),
    first_token_ms: whole('first_token_ms').notNull(),
    total_ms: whole('total_ms').notNull(),
    /** The journal series, so the worker's life, that the call was made in. */
    series: text('series').notNull().default(''),
    /** SHA-256(salt ‖ SHA-256 of the body); empty if the process that would know has died. The response likewise. */
    request_sha256: bytes('request_sha256').notNull(),
    response_sha256: bytes('response_sha256').notNull(),
    /** 16 random bytes; the one column that may change: to null, which cuts the link to the bodies for ever. */
    salt: bytes('salt'),
    /** The leaf of the Merkle log that holds this row. */
    log_index: whole('log_index'),
  },
  (row) => [index('calls_at').on(row.at_ms, row.id), index('calls_tenant_at').on(row.tenant, row.at_ms, row.id)],
)

/** The engines of a call, in order, for calls that needed more than one; for the others the call row says it all. */
export const attempts = sqliteTable(
  'attempts',
  {
    call_id: text('call_id').notNull(),
    /** From 1. */
    n: whole('n').notNull(),
    engine: text('engine').notNull(),
    engine_model: text('engine_model').notNull(),
    /** Why the engine before it was left: a failure code; empty for the first. */
    because: text('because').notNull(),
    at_ms: whole('at_ms').notNull(),
  },
  (row) => [primaryKey({ columns: [row.call_id, row.n] })],
)

/**
 * The books: transfers from the account `debit` to the account `credit`, append-only (triggers refuse changes). What an
 * account has is what it was credited less what it was debited; every transfer leaves the sum of all accounts at zero.
 * Accounts: `tenant:NAME`, `held:NAME`, `revenue`, `grants`. A call whose intent and ending were posted together has no hold,
 * only its capture from the tenant.
 */
export const entries = sqliteTable(
  'entries',
  {
    id: whole('id').primaryKey(),
    call_id: text('call_id'),
    at_ms: whole('at_ms').notNull(),
    kind: text('kind', { enum: ['grant', 'hold', 'capture', 'release', 'refund', 'adjustment'] }).notNull(),
    debit: text('debit').notNull(),
    credit: text('credit').notNull(),
    amount_nanodollars: money('amount_nanodollars').notNull(),
    /** Why, for those that a person made; empty for those of a call. */
    reason: text('reason').notNull(),
    /** The leaf of the Merkle log that holds this entry: that of its call, or one with others of the tenant and posting. */
    log_index: whole('log_index'),
  },
  (row) => [
    index('entries_call').on(row.call_id),
    check('entries_amount_positive', sql`${row.amount_nanodollars} > 0`),
    check('entries_accounts_differ', sql`${row.debit} <> ${row.credit}`),
  ],
)

/**
 * Per journal series: everything before this place is in the tables, but for what the records from `again` on say of calls
 * that are open: those are read again by a new accountant. Written in the transaction of those rows.
 */
export const positions = sqliteTable('positions', {
  series: text('series').primaryKey(),
  segment: whole('segment').notNull(),
  offset: whole('offset').notNull(),
  /** The series has ended, and its open calls are settled. */
  finished: flag('finished').notNull(),
  /** Null: nothing has to be read again. */
  again_segment: whole('again_segment'),
  again_offset: whole('again_offset'),
})

/** Calls that have records before the stored positions and no row in `calls` yet, but for young ones (`posting.ts`). */
export const open_calls = sqliteTable('open_calls', {
  call_id: text('call_id').primaryKey(),
  /** The series whose end settles the call. */
  series: text('series').notNull(),
  /** What is known of it, as `open-call.ts` encodes it. */
  state: text('state').notNull(),
})

/** What a model costs, by version. A version never changes; a new price is a new version. */
export const prices = sqliteTable(
  'prices',
  {
    model: text('model').notNull(),
    /** From 1. */
    version: whole('version').notNull(),
    valid_from_ms: whole('valid_from_ms').notNull(),
    input_picodollars: money('input_picodollars').notNull(),
    /** Null: cached tokens cost what others do. */
    cached_input_picodollars: money('cached_input_picodollars'),
    output_picodollars: money('output_picodollars').notNull(),
    /** Null: reasoning tokens cost what the rest of the completion does. */
    reasoning_picodollars: money('reasoning_picodollars'),
    /** Null: audio tokens cost what others do. */
    audio_input_picodollars: money('audio_input_picodollars'),
    audio_output_picodollars: money('audio_output_picodollars'),
    request_nanodollars: money('request_nanodollars').notNull(),
    /** For each picture in the prompt. */
    image_nanodollars: money('image_nanodollars')
      .notNull()
      .default(sql`0`),
    /** The model costs nothing, on purpose. */
    free: flag('free').notNull(),
    log_index: whole('log_index'),
  },
  (row) => [primaryKey({ columns: [row.model, row.version] })],
)

/** Sums by tenant, model and day (UTC, of the intent), kept in the transaction of the rows that they sum. */
export const rollups = sqliteTable(
  'rollups',
  {
    tenant: text('tenant').notNull(),
    model: text('model').notNull(),
    /** `YYYY-MM-DD`. */
    day: text('day').notNull(),
    calls: whole('calls').notNull(),
    /** Calls without a known price, which `charge_nanodollars` leaves out. */
    unpriced_calls: whole('unpriced_calls').notNull(),
    prompt_tokens: whole('prompt_tokens').notNull(),
    cached_tokens: whole('cached_tokens').notNull(),
    completion_tokens: whole('completion_tokens').notNull(),
    reasoning_tokens: whole('reasoning_tokens').notNull(),
    charge_nanodollars: money('charge_nanodollars').notNull(),
  },
  (row) => [primaryKey({ columns: [row.tenant, row.model, row.day] })],
)

/** How calls came to their engines, for those with anything to tell: an explanation, no part of the books or the log. */
export const decisions = sqliteTable('decisions', {
  call_id: text('call_id').primaryKey(),
  at_ms: whole('at_ms').notNull(),
  /** JSON of `balance/decision.ts`, at most 2 KiB. */
  text: text('text').notNull(),
})

/** What the admin API was used for: a copy of `admin_log` of `house.db`, row by row, made when it is logged. Append-only. */
export const admin_actions = sqliteTable('admin_actions', {
  /** That of `admin_log`. */
  id: whole('id').primaryKey(),
  at_ms: whole('at_ms').notNull(),
  actor: text('actor').notNull(),
  action: text('action').notNull(),
  subject: text('subject').notNull(),
  detail_json: text('detail_json').notNull(),
  log_index: whole('log_index'),
})

/**
 * Orders of `house.db` (a grant, refund or adjustment that a person made) that are in the books, each with its entry,
 * written in one transaction: an order is posted once, however often it is read.
 */
export const posted_orders = sqliteTable('posted_orders', {
  /** That of `orders`. */
  n: whole('n').primaryKey(),
  order_id: text('order_id').notNull().unique(),
  entry_id: whole('entry_id').notNull(),
})

export type CallRow = typeof calls.$inferSelect
export type AttemptRow = typeof attempts.$inferSelect
export type EntryRow = typeof entries.$inferSelect
/** An entry before it has its number and its leaf. */
export type NewEntry = Omit<EntryRow, 'id' | 'log_index'>
export type EntryKind = NewEntry['kind']
export type PriceRow = typeof prices.$inferSelect
export type RollupRow = typeof rollups.$inferSelect
export type DecisionRow = typeof decisions.$inferSelect
export type AdminActionRow = typeof admin_actions.$inferSelect
