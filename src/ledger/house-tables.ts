import { index, sqliteTable, text } from 'drizzle-orm/sqlite-core'
import { money, whole } from './columns.ts'

/** `house.db`: what the admin API creates. It has one writer, the control process; workers open it to read. */

/** API keys. The secret itself is never stored. */
export const keys = sqliteTable(
  'keys',
  {
    id: text('id').primaryKey(),
    /** SHA-256 of the secret in lower-case hex. */
    sha256: text('sha256').notNull().unique(),
    /** The first characters of the secret, to recognise it by. */
    prefix: text('prefix').notNull(),
    tenant: text('tenant').notNull(),
    name: text('name').notNull(),
    /** JSON array of model names, or null for all that the tenant may use. */
    models_json: text('models_json'),
    /** JSON object of limits, see the configuration's `limits`. */
    limits_json: text('limits_json').notNull(),
    expires_at_ms: whole('expires_at_ms'),
    revoked_at_ms: whole('revoked_at_ms'),
    created_at_ms: whole('created_at_ms').notNull(),
  },
  (row) => [index('keys_tenant').on(row.tenant, row.id)],
)

/** Tenants made by the API, beside those of the configuration. */
export const tenants = sqliteTable('tenants', {
  name: text('name').primaryKey(),
  /** JSON of the configuration's tenant: budgets, limits, models. */
  body_json: text('body_json').notNull(),
  created_at_ms: whole('created_at_ms').notNull(),
})

/** Who did what on the admin API, append-only (triggers refuse changes). */
export const admin_log = sqliteTable('admin_log', {
  id: whole('id').primaryKey(),
  at_ms: whole('at_ms').notNull(),
  /** Who asked: `admin`, or the id of an operator key. */
  actor: text('actor').notNull(),
  action: text('action').notNull(),
  /** What it was done to. */
  subject: text('subject').notNull(),
  /** JSON with the rest; never a secret. */
  detail_json: text('detail_json').notNull(),
})

/**
 * Money that a person moves: handed to the accountant, who reads them here in the order of their numbers and posts each
 * as one entry of the ledger. Append-only (triggers refuse changes).
 */
export const orders = sqliteTable(
  'orders',
  {
    n: whole('n').primaryKey(),
    /** The operator's own, or a new one; an order that is sent twice is one. */
    id: text('id').notNull().unique(),
    at_ms: whole('at_ms').notNull(),
    actor: text('actor').notNull(),
    kind: text('kind', { enum: ['grant', 'refund', 'adjustment'] }).notNull(),
    tenant: text('tenant').notNull(),
    /** In the tenant's favour; below 0 (adjustments only) to its cost. */
    amount_nanodollars: money('amount_nanodollars').notNull(),
    /** The call that a refund is of. */
    call_id: text('call_id'),
    reason: text('reason').notNull(),
  },
  (row) => [index('orders_tenant').on(row.tenant, row.n), index('orders_call').on(row.call_id)],
)

/** Temporary increases of a tenant's budgets. Append-only: an increase is ended by its time. */
export const budget_increases = sqliteTable('budget_increases', {
  n: whole('n').primaryKey(),
  at_ms: whole('at_ms').notNull(),
  actor: text('actor').notNull(),
  tenant: text('tenant').notNull(),
  /** The window of the budgets that are raised. */
  per: text('per', { enum: ['total', 'day', 'week', 'month'] }).notNull(),
  timezone: text('timezone').notNull(),
  usd: text('usd').notNull(),
  until_ms: whole('until_ms').notNull(),
  reason: text('reason').notNull(),
})

export type OrderRow = typeof orders.$inferSelect
export type BudgetIncreaseRow = typeof budget_increases.$inferSelect
export type KeyRow = typeof keys.$inferSelect
export type TenantRow = typeof tenants.$inferSelect
export type AdminLogRow = typeof admin_log.$inferSelect
