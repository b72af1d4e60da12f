import { Failure } from '../base/failure.ts'
import { usd } from '../base/money.ts'
import { windowAt } from '../base/windows.ts'
import type { TenantConfig } from '../config/schema.ts'
import { ECHO_ENDPOINT } from '../journal/record.ts'
import type { Store } from './database.ts'
import { type PostedOrder, postedOrders, type UsageSum, usageSums } from './invoice-sums.ts'
import { isoOf } from './wire.ts'

/** The span of an invoice: a calendar month on the wall in a time zone. */
export type InvoicePeriod = {
  /** `YYYY-MM`. */
  readonly month: string
  readonly timezone: string
  readonly from_ms: number
  readonly to_ms: number
}

/** A line: the calls of one day and model that one version of its price was charged for. */
export type InvoiceLine = Omit<UsageSum, 'charge_nanodollars' | 'unpriced' | 'unmetered'> & {
  /** `YYYY-MM-DD` in the invoice's time zone. */
  readonly day: string
  readonly charge_usd: string
}

/**
 * An invoice. Money is decimal USD, exact to the nanodollar: the total is the sum of the charges as they were rounded,
 * call by call, less refunds, and with adjustments. Grants are money that was given, not owed, so they stand apart. Calls
 * without a known price are listed and not charged; so are, by their address, those that the gateway answered itself.
 */
export type Invoice = {
  readonly tenant: string
  readonly month: string
  readonly timezone: string
  readonly from: string
  readonly to: string
  /** `open` while the month is not over: what it comes to may still change. */
  readonly state: 'open' | 'closed'
  readonly issued_at: string
  readonly currency: 'USD'
  readonly lines: readonly InvoiceLine[]
  readonly unpriced: readonly Omit<InvoiceLine, 'charge_usd' | 'price_version'>[]
  readonly unmetered: readonly UnmeteredLine[]
  readonly refunds: readonly InvoiceOrder[]
  readonly adjustments: readonly InvoiceOrder[]
  readonly grants: readonly InvoiceOrder[]
  readonly totals: {
    readonly calls: number
    readonly unpriced_calls: number
    readonly unmetered_calls: number
    readonly charge_usd: string
    readonly refunds_usd: string
    readonly adjustments_usd: string
    readonly grants_usd: string
    /** Charges less refunds and less what adjustments give (plus what they take). */
    readonly total_usd: string
  }
}

/** Calls of one day that the gateway answered itself. */
export type UnmeteredLine = { readonly day: string; readonly endpoint: string; readonly calls: number }

/** An order on an invoice; `usd` is in the tenant's favour, below 0 to its cost. */
export type InvoiceOrder = Omit<PostedOrder, 'at_ms' | 'kind' | 'amount_nanodollars'> & {
  readonly at: string
  readonly usd: string
}

/**
 * The time zone of a tenant's invoices: that of its first monthly budget, so that invoice and budget speak of the same
 * month; else of its first budget; else UTC.
 */
export const invoiceTimezone = (tenant: Pick<TenantConfig, 'budgets'> | undefined): string =>
  (tenant?.budgets.find(({ per }) => per === 'month') ?? tenant?.budgets[0])?.timezone ?? 'UTC'

/** The span of a month; a failure if it is none, or the zone is unknown. */
export const invoicePeriod = (month: string, timezone: string): InvoicePeriod | Failure => {
  const found = /^(\d{4})-(0[1-9]|1[0-2])$/.exec(month)
  if (!found || Number(found[1]) < 1970)
    return new Failure('field_invalid', {
      says: `month: ${JSON.stringify(month.slice(0, 32))} is not a month; allowed: YYYY-MM from 1970-01 on`,
      param: 'month',
    })
  try {
    // The fifteenth is in the month wherever on earth.
    const { start_ms, end_ms } = windowAt('month', timezone, Date.UTC(Number(found[1]), Number(found[2]) - 1, 15))
    return { month, timezone, from_ms: start_ms, to_ms: end_ms }
  } catch (cause) {
    return new Failure('field_invalid', {
      says: `timezone: ${JSON.stringify(timezone.slice(0, 64))} is not a time zone; allowed: an IANA name such as UTC or Asia/Seoul`,
      param: 'timezone',
      cause,
    })
  }
}

/** Makes an invoice. Yields between days, so that a process that does more than this is not held up. */
export const makeInvoice = async (
  store: Store,
  tenant: string,
  period: InvoicePeriod,
  now_ms: number,
): Promise<Invoice> => {
  const { month, timezone, from_ms, to_ms } = period
  const sums: { day: string; sum: UsageSum }[] = []
  for (let at_ms = from_ms; at_ms < to_ms;) {
    const { end_ms } = windowAt('day', timezone, at_ms)
    const day = Temporal.Instant.fromEpochMilliseconds(at_ms).toZonedDateTimeISO(timezone).toPlainDate().toString()
    for (const sum of usageSums(store, tenant, at_ms, Math.min(end_ms, to_ms))) sums.push({ day, sum })
    at_ms = end_ms
    await Bun.sleep(0)
  }
  const priced = sums.filter(({ sum }) => !sum.unpriced && !sum.unmetered)
  const unmetered = sums.filter(({ sum }) => sum.unmetered)
  const unpriced = sums.filter(({ sum }) => sum.unpriced)
  const orders = postedOrders(store, tenant, from_ms, to_ms)
  const of = (kind: PostedOrder['kind']) => orders.filter((order) => order.kind === kind)
  const [refunds, adjustments, grants] = [of('refund'), of('adjustment'), of('grant')]
  const charged = priced.reduce((total, { sum }) => total + sum.charge_nanodollars, 0n)
  return {
    tenant,
    month,
    timezone,
    from: isoOf(from_ms),
    to: isoOf(to_ms),
    state: now_ms < to_ms ? 'open' : 'closed',
    issued_at: isoOf(Math.floor(now_ms)),
    currency: 'USD',
    lines: priced.map(({ day, sum }) => ({ day, ...countsOf(sum), charge_usd: usd(sum.charge_nanodollars) })),
    unpriced: unpriced.map(({ day, sum }) => {
      const { price_version: _none, ...counts } = countsOf(sum)
      return { day, ...counts }
    }),
    unmetered: unmetered.map(({ day, sum: { calls } }) => ({ day, endpoint: ECHO_ENDPOINT, calls })),
    refunds: refunds.map(orderOnInvoice),
    adjustments: adjustments.map(orderOnInvoice),
    grants: grants.map(orderOnInvoice),
    totals: {
      calls: callsOf(priced),
      unpriced_calls: callsOf(unpriced),
      unmetered_calls: callsOf(unmetered),
      charge_usd: usd(charged),
      refunds_usd: usd(sumOf(refunds)),
      adjustments_usd: usd(sumOf(adjustments)),
      grants_usd: usd(sumOf(grants)),
      total_usd: usd(charged - sumOf(refunds) - sumOf(adjustments)),
    },
  }
}

const countsOf = ({ charge_nanodollars: _, unpriced: _is, unmetered: _too, ...counts }: UsageSum) => counts

const callsOf = (sums: readonly { sum: UsageSum }[]): number => sums.reduce((total, { sum }) => total + sum.calls, 0)

const sumOf = (orders: readonly PostedOrder[]): bigint =>
  orders.reduce((sum, { amount_nanodollars }) => sum + amount_nanodollars, 0n)

const orderOnInvoice = ({ at_ms, kind: _, amount_nanodollars, ...order }: PostedOrder): InvoiceOrder => ({
  ...order,
  at: isoOf(at_ms),
  usd: usd(amount_nanodollars),
})
