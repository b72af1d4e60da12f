import { and, desc, eq, gte, lt, ne, sql } from 'drizzle-orm'
import { Failure } from '../base/failure.ts'
import { newId } from '../base/ids.ts'
import { limits } from '../base/limits.ts'
import { usd } from '../base/money.ts'
import type { TenantIncrease } from '../config/budgets.ts'
import type { Store } from './database.ts'
import { budget_increases, type BudgetIncreaseRow, orders, type OrderRow } from './house-tables.ts'
import type { Page } from './queries.ts'

/**
 * Grants, refunds, adjustments and budget increases as `house.db` has them. Only the control process may call what
 * writes. The accountant reads the orders and posts each once (`adjustment-posting.ts`).
 */
export type NewOrder = Omit<OrderRow, 'n' | 'id'> & {
  /** The operator's own name for the order; absent: a new one. */
  readonly id?: string
}

/** What was charged, in nanodollars: the bound of what can be given back. */
export type Charged = {
  /** To the tenant, by all its calls: refunds and adjustments together give back no more. */
  readonly to_tenant: bigint
  /** By the call that is refunded, if the order names one: its refunds together are no more. */
  readonly by_call?: bigint
}

/**
 * Takes an order down. One with an `id` that is there already is the same order, and nothing is done, if it says the
 * same; else it is a conflict. Refunds and adjustments give back what was charged and no more: see {@link Charged}.
 */
export const placeOrder = (
  store: Store,
  wanted: NewOrder,
  charged: Charged,
): { readonly order: OrderRow; readonly is_new: boolean } | Failure => {
  const id = wanted.id ?? newId('order')
  const before = readOrder(store, id)
  if (before !== undefined)
    return isSame(before, wanted)
      ? { order: before, is_new: false }
      : new Failure('conflict', { says: `There is another order ${id} already.`, param: 'id' })
  const excess = wanted.kind === 'grant' ? undefined : excessOf(store, wanted, charged)
  if (excess) return excess
  const order = store.drizzle
    .insert(orders)
    .values({ ...wanted, id, n: sql`NULL` })
    .returning()
    .get()
  return { order, is_new: true }
}

/** One order; undefined if there is none of this id. */
export const readOrder = ({ drizzle }: Store, id: string): OrderRow | undefined =>
  drizzle.select().from(orders).where(eq(orders.id, id)).get()

/** Orders, newest first, of one tenant or all, of one kind or all. */
export const ordersPage = (
  { drizzle }: Store,
  { tenant, kind }: { readonly tenant?: string; readonly kind?: OrderRow['kind'] },
  limit: number,
  cursor?: string,
): Page<OrderRow> | Failure => {
  if (cursor !== undefined && !/^\d{1,15}$/.test(cursor))
    return new Failure('field_invalid', { param: 'cursor', says: 'cursor must be the next_cursor of the page before.' })
  const rows_max = Math.min(Math.max(Math.floor(limit), 1), limits.page_rows_max)
  const rows = drizzle
    .select()
    .from(orders)
    .where(
      and(
        tenant === undefined ? undefined : eq(orders.tenant, tenant),
        kind === undefined ? undefined : eq(orders.kind, kind),
        cursor === undefined ? undefined : lt(orders.n, Number(cursor)),
      ),
    )
    .orderBy(desc(orders.n))
    .limit(rows_max + 1)
    .all()
  const data = rows.slice(0, rows_max)
  return { data, next_cursor: rows.length > rows_max ? String(data.at(-1)?.n) : null }
}

/** What was refunded of a call so far, posted or not. */
export const refundedOf = ({ drizzle }: Store, call_id: string): bigint =>
  drizzle
    .select({ sum: sql`coalesce(sum(${orders.amount_nanodollars}), 0)`.mapWith(BigInt) })
    .from(orders)
    .where(and(eq(orders.call_id, call_id), eq(orders.kind, 'refund')))
    .get()?.sum ?? 0n

/** What refunds and adjustments gave a tenant so far, posted or not, less what adjustments took from it. */
export const givenBackTo = ({ drizzle }: Store, tenant: string): bigint =>
  drizzle
    .select({ sum: sql`coalesce(sum(${orders.amount_nanodollars}), 0)`.mapWith(BigInt) })
    .from(orders)
    .where(and(eq(orders.tenant, tenant), ne(orders.kind, 'grant')))
    .get()?.sum ?? 0n

const excessOf = (
  store: Store,
  { call_id, tenant, amount_nanodollars }: NewOrder,
  charged: Charged,
): Failure | undefined => {
  const fault = (says: string): Failure => new Failure('field_invalid', { param: 'usd', says: `usd: ${says}` })
  if (call_id !== null && charged.by_call !== undefined) {
    const left = charged.by_call - refundedOf(store, call_id)
    if (amount_nanodollars > left)
      return fault(`more than is left of the charge of ${call_id}: ${usd(left)} USD can be refunded.`)
  }
  const given = givenBackTo(store, tenant)
  const left = charged.to_tenant > given ? charged.to_tenant - given : 0n
  if (amount_nanodollars <= left) return undefined
  return fault(
    `more than ${tenant} can be given back: its calls were charged ${usd(charged.to_tenant)} USD in all, refunds and adjustments gave back ${usd(given)} USD so far, which leaves ${usd(left)} USD. Other money is a grant.`,
  )
}

/** Takes a budget increase down. */
export const addIncrease = ({ drizzle }: Store, increase: Omit<BudgetIncreaseRow, 'n'>): BudgetIncreaseRow =>
  drizzle
    .insert(budget_increases)
    .values({ ...increase, n: sql`NULL` })
    .returning()
    .get()

/** Increases that have not run out, of one tenant or all, oldest first. */
export const openIncreases = ({ drizzle }: Store, now_ms: number, tenant?: string): BudgetIncreaseRow[] =>
  drizzle
    .select()
    .from(budget_increases)
    .where(
      and(
        gte(budget_increases.until_ms, Math.ceil(now_ms)),
        tenant === undefined ? undefined : eq(budget_increases.tenant, tenant),
      ),
    )
    .orderBy(budget_increases.n)
    .all()

/** Increases that have not run out, as a configuration takes them. */
export const tenantIncreases = (store: Store, now_ms: number): TenantIncrease[] =>
  openIncreases(store, now_ms).map(({ tenant, per, timezone, usd, until_ms, reason }) => ({
    tenant,
    per,
    timezone,
    usd,
    until: new Date(until_ms).toISOString(),
    reason,
  }))

const SAID = ['kind', 'tenant', 'amount_nanodollars', 'call_id', 'reason'] as const

const isSame = (one: OrderRow, other: NewOrder): boolean => SAID.every((name) => one[name] === other[name])
