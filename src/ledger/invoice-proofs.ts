import { bundleText, type BundleLine, type InvoiceHead } from '../audit/bundle.ts'
import type { LogReader } from '../audit/read-side.ts'
import type { Failure } from '../base/failure.ts'
import type { Store } from './database.ts'
import { type PostedOrder, postedOrders } from './invoice-sums.ts'

/** Whose calls, and from when to when: half-open, [from_ms, to_ms). `from` is the size of a checkpoint that was kept. */
export type InvoiceAsked = {
  readonly tenant: string
  readonly from_ms: number
  readonly to_ms: number
  readonly from?: number
}

const WHOSE = 'FROM calls WHERE tenant = ? AND at_ms >= ? AND at_ms < ? AND log_index < ?'

/**
 * The text of an invoice's bundle (`audit/bundle.ts`), piece by piece: every call of a tenant in a time as a line with its
 * proof, then its orders, and their sums. What no checkpoint covers yet (of the last second) is left out, and of the claim
 * as well.
 */
export const invoiceBundle = (
  store: Store,
  reader: LogReader,
  public_keys: readonly string[],
  { tenant, from_ms, to_ms, from }: InvoiceAsked,
): Generator<string, Failure | undefined> => {
  const size = reader.size()
  const asked: [string, number, number, number] = [tenant, from_ms, to_ms, size]
  const { sqlite } = store
  const sums = sqlite
    .prepare<{ n: bigint; sum: bigint }, typeof asked>(
      `SELECT count(*) AS n, coalesce(sum(charge_nanodollars), 0) AS sum ${WHOSE}`,
    )
    .get(...asked)
  const charged = sums?.sum ?? 0n
  const orders = postedOrders(store, tenant, from_ms, to_ms).filter(({ log_index }) => (log_index ?? size) < size)
  const given = (kind: PostedOrder['kind']): bigint =>
    orders.reduce((sum, order) => (order.kind === kind ? sum + order.amount_nanodollars : sum), 0n)
  const invoice: InvoiceHead = {
    tenant,
    from_ms,
    to_ms,
    calls: Number(sums?.n ?? 0n),
    charge_nanodollars: String(charged),
    orders: orders.length,
    refunds_nanodollars: String(given('refund')),
    adjustments_nanodollars: String(given('adjustment')),
    grants_nanodollars: String(given('grant')),
    total_nanodollars: String(charged - given('refund') - given('adjustment')),
  }
  const rows = sqlite.prepare<{ log_index: bigint; salt: Uint8Array | null }, typeof asked>(
    `SELECT log_index, salt ${WHOSE} ORDER BY at_ms, id`,
  )
  const lines = function* (): Generator<BundleLine> {
    for (const { log_index, salt } of rows.iterate(...asked))
      yield { index: Number(log_index), salt: salt?.toHex() ?? null }
    for (const index of new Set(orders.map(({ log_index }) => log_index!))) yield { index, salt: null }
  }
  return bundleText(reader, public_keys, { kind: 'invoice', invoice, ...(from !== undefined && { from }) }, lines())
}
