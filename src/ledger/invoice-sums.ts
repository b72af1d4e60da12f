import { ECHO_ENDPOINT } from '../journal/record.ts'
import type { Store } from './database.ts'
import { dayOf } from './rollup.ts'
import type { EntryKind } from './tables.ts'

/** The sums that invoices, budgets and reconciliation are made of. Money is nanodollars; spans are half-open, [from, to). */

/** What the calls of a tenant in a span came to, by model and price. */
export type UsageSum = {
  readonly model: string
  /** 0 if no price made the charge. */
  readonly price_version: number
  /** Calls without a known price; their charge is 0 here and unknown in truth. */
  readonly unpriced: boolean
  /** Calls that the gateway answered itself and that cost nothing; they name no model. */
  readonly unmetered: boolean
  readonly calls: number
  readonly prompt_tokens: number
  readonly cached_tokens: number
  readonly completion_tokens: number
  readonly reasoning_tokens: number
  readonly audio_input_tokens: number
  readonly audio_output_tokens: number
  /** Pictures in prompts. */
  readonly images: number
  readonly charge_nanodollars: bigint
}

/** An order of a person's as the books have it. */
export type PostedOrder = {
  readonly entry_id: number
  readonly order_id: string
  readonly at_ms: number
  readonly kind: EntryKind
  readonly call_id: string | null
  readonly reason: string
  /** In the tenant's favour; below 0 to its cost. */
  readonly amount_nanodollars: bigint
  readonly log_index: number | null
}

// Older rows of it have no charge at all, or that of the model that their body named.
const UNMETERED = `(endpoint = '${ECHO_ENDPOINT}' AND coalesce(charge_nanodollars, 0) = 0)`

/** Calls of a tenant that began in a span, summed. */
export const usageSums = ({ sqlite }: Store, tenant: string, from_ms: number, to_ms: number): UsageSum[] =>
  sqlite
    .query<Stored<UsageSum>, [string, number, number]>(
      `SELECT iif(${UNMETERED}, '', model) AS model, price_version, ${UNMETERED} AS unmetered,
         charge_nanodollars IS NULL AND NOT ${UNMETERED} AS unpriced, count(*) AS calls,
         sum(prompt_tokens) AS prompt_tokens, sum(cached_tokens) AS cached_tokens,
         sum(completion_tokens) AS completion_tokens, sum(reasoning_tokens) AS reasoning_tokens,
         sum(audio_input_tokens) AS audio_input_tokens, sum(audio_output_tokens) AS audio_output_tokens,
         sum(images) AS images,
         coalesce(sum(charge_nanodollars), 0) AS charge_nanodollars
       FROM calls INDEXED BY calls_tenant_at WHERE tenant = ? AND at_ms >= ? AND at_ms < ?
       GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4`,
    )
    .all(tenant, from_ms, to_ms)
    .map(({ unpriced, unmetered, charge_nanodollars, model, ...counts }) => ({
      ...numbers(counts),
      model,
      unpriced: unpriced === 1n,
      unmetered: unmetered === 1n,
      charge_nanodollars,
    }))

/** Grants, refunds and adjustments of a tenant in a span, in the order in which they were posted. */
export const postedOrders = ({ sqlite }: Store, tenant: string, from_ms: number, to_ms: number): PostedOrder[] =>
  sqlite
    .query<Stored<PostedOrder> & { credit: string }, [string, number, number]>(
      `SELECT p.entry_id, p.order_id, e.at_ms, e.kind, e.call_id, e.reason, e.amount_nanodollars, e.log_index, e.credit
       FROM posted_orders p JOIN entries e ON e.id = p.entry_id
       WHERE ?1 IN (e.debit, e.credit) AND e.at_ms >= ?2 AND e.at_ms < ?3 ORDER BY p.n`,
    )
    .all(`tenant:${tenant}`, from_ms, to_ms)
    .map(({ entry_id, at_ms, log_index, credit, amount_nanodollars, ...order }) => ({
      ...order,
      entry_id: Number(entry_id),
      at_ms: Number(at_ms),
      log_index: log_index === null ? null : Number(log_index),
      amount_nanodollars: credit === `tenant:${tenant}` ? amount_nanodollars : -amount_nanodollars,
    }))

/** What a tenant spent in a span: charges of the calls that began in it, less refunds that were ordered in it. */
export const spentBetween = (store: Store, tenant: string, from_ms: number, to_ms: number): bigint => {
  const first_ms = Math.ceil(from_ms / DAY_MS) * DAY_MS
  const last_ms = Math.floor(Math.min(to_ms, TIME_MAX_MS) / DAY_MS) * DAY_MS
  const charged =
    first_ms >= last_ms
      ? chargedIn(store, tenant, from_ms, Math.min(to_ms, TIME_MAX_MS))
      : chargedIn(store, tenant, from_ms, first_ms) +
        chargedOn(store, tenant, dayOf(first_ms), dayOf(last_ms)) +
        chargedIn(store, tenant, last_ms, Math.min(to_ms, TIME_MAX_MS))
  return postedOrders(store, tenant, from_ms, Math.min(to_ms, TIME_MAX_MS))
    .filter(({ kind }) => kind === 'refund')
    .reduce((sum, { amount_nanodollars }) => sum - amount_nanodollars, charged)
}

const DAY_MS = 86_400_000
/** The last whole day whose name has four digits for the year. */
const TIME_MAX_MS = Date.UTC(9999, 11, 31)

const chargedIn = ({ sqlite }: Store, tenant: string, from_ms: number, to_ms: number): bigint =>
  from_ms >= to_ms
    ? 0n
    : (sqlite
        .query<{ sum: bigint }, [string, number, number]>(
          `SELECT coalesce(sum(charge_nanodollars), 0) AS sum FROM calls INDEXED BY calls_tenant_at
           WHERE tenant = ? AND at_ms >= ? AND at_ms < ?`,
        )
        .get(tenant, from_ms, to_ms)?.sum ?? 0n)

const chargedOn = ({ sqlite }: Store, tenant: string, from_day: string, to_day: string): bigint =>
  sqlite
    .query<{ sum: bigint }, [string, string, string]>(
      'SELECT coalesce(sum(charge_nanodollars), 0) AS sum FROM rollups WHERE tenant = ? AND day >= ? AND day < ?',
    )
    .get(tenant, from_day, to_day)?.sum ?? 0n

/** A row as SQLite hands it out with safe integers. */
type Stored<Row> = {
  [name in keyof Row]: Row[name] extends number | boolean | bigint
    ? bigint
    : Row[name] extends number | null
      ? bigint | null
      : Row[name]
}

const numbers = <Row extends Record<string, bigint>>(row: Row): { [name in keyof Row]: number } =>
  Object.fromEntries(Object.entries(row).map(([name, value]) => [name, Number(value)])) as {
    [name in keyof Row]: number
  }
