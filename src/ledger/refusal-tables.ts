import { primaryKey, sqliteTable, text } from 'drizzle-orm/sqlite-core'
import { whole } from './columns.ts'

/** Calls that were refused before an engine was asked (401, 403, 429), in `ledger.db`: how many, by key, reason and minute. */

const line = () => ({
  /** The minute's beginning. */
  at_ms: whole('at_ms').notNull(),
  /** Empty for callers without a known key. */
  key_id: text('key_id').notNull(),
  tenant: text('tenant').notNull(),
  /** A failure code. */
  failure: text('failure').notNull(),
  /** Of all workers. */
  count: whole('count').notNull(),
})

/**
 * Minutes that may still grow. Each worker writes down for itself what it refused; what the journals say of one minute,
 * key and reason is added up here, in the transaction that moves their positions. Once everything that was written within
 * five seconds of the minute's end is posted, a line becomes a row of `refusals` and goes. What a journal tells of the
 * minute later than that (its worker stood still, it could not be read before, the house was stopped and started again
 * within the minute) becomes a line again and then a supplementary row with a leaf of its own: the log is append-only, so
 * a row that is in it cannot grow. The sum of a minute's rows and lines is always what the journals said.
 */
export const open_refusals = sqliteTable('open_refusals', line(), (row) => [
  primaryKey({ columns: [row.at_ms, row.key_id, row.tenant, row.failure] }),
])

/** Minutes that are over, a leaf of the log each: one row for each key and reason, but for supplementary ones. Append-only. */
export const refusals = sqliteTable('refusals', {
  id: whole('id').primaryKey(),
  ...line(),
  log_index: whole('log_index'),
})

export type RefusalRow = typeof refusals.$inferSelect
/** Refused calls of a minute, key and reason as a journal tells of them, and as they are added up. */
export type NewRefusal = typeof open_refusals.$inferSelect
