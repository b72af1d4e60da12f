import { usd } from '../base/money.ts'
import { Difference } from './check-note.ts'
import { amountOf, iso, type Json, listOf, numberOf, objectOf } from './proof-json.ts'

/** A line whose leaf is in the log. */
export type CheckedLine = { readonly index: number; readonly leaf: Json }

/** Money that people move: the account that it comes from, and the member of an invoice with the sum. */
const ORDERS = {
  refund: { from: 'revenue', sum: 'refunds_nanodollars' },
  adjustment: { from: 'revenue', sum: 'adjustments_nanodollars' },
  grant: { from: 'grants', sum: 'grants_nanodollars' },
} as const
type OrderKind = keyof typeof ORDERS
type Order = { readonly kind: OrderKind; readonly amount: bigint }

/**
 * Holds what an invoice claims against its lines, and says what it comes to. A line is a call of the tenant that began in
 * the invoice's time, or a leaf with orders of its: refunds, adjustments, grants. Bundles of before orders had a proof
 * (`weir-proof/1`) claim charges alone. Throws a {@link Difference} at the first thing that does not agree.
 */
export const checkInvoice = (invoice: Json, lines: readonly CheckedLine[]): string => {
  const has_orders = invoice['orders'] !== undefined
  const sums = { charge: 0n, refund: 0n, adjustment: 0n, grant: 0n }
  const counts = { calls: 0, orders: 0 }
  for (const [nth, { leaf }] of lines.entries()) {
    const name = `line ${nth}${typeof leaf['id'] === 'string' ? ` (${leaf['id']})` : ''}`
    if (has_orders && leaf['type'] === 'entries') {
      const orders = ordersIn(leaf, invoice, name)
      if (orders.length === 0) throw new Difference(`${name} has no order of the invoice`)
      for (const { kind, amount } of orders) sums[kind] += amount
      counts.orders += orders.length
    } else {
      sums.charge += chargeOf(leaf, invoice, name)
      counts.calls++
    }
  }
  for (const [what, count] of Object.entries(has_orders ? counts : { calls: counts.calls }))
    if (invoice[what] !== count)
      throw new Difference(`the invoice says ${String(invoice[what])} ${what}, and its lines are ${count}`)
  const owed = sums.charge - sums.refund - sums.adjustment
  mustBe(invoice, 'charge_nanodollars', sums.charge)
  const says = `invoice of ${String(invoice['tenant'])}, ${iso(Number(invoice['from_ms']))} to ${iso(Number(invoice['to_ms']))}: ${counts.calls} calls, ${usd(sums.charge)} USD of charges`
  if (!has_orders) return `${says}, every line in the log; refunds, adjustments and grants are not in this file`
  for (const kind of Object.keys(ORDERS) as OrderKind[]) mustBe(invoice, ORDERS[kind].sum, sums[kind])
  mustBe(invoice, 'total_nanodollars', owed)
  return `${says}; ${counts.orders} orders: ${usd(sums.refund)} USD of refunds, ${usd(sums.adjustment)} USD of adjustments, ${usd(sums.grant)} USD of grants; ${usd(owed)} USD owed, every line in the log`
}

const mustBe = (invoice: Json, member: string, sum: bigint): void => {
  if (String(invoice[member]) !== sum.toString())
    throw new Difference(`the invoice says ${String(invoice[member])} ${member}, and its lines make ${sum}`)
}

const chargeOf = (leaf: Json, { tenant, from_ms, to_ms }: Json, name: string): bigint => {
  if (leaf['type'] !== 'call') throw new Difference(`${name} is no call but "${String(leaf['type'])}"`)
  if (leaf['tenant'] !== tenant)
    throw new Difference(`${name} is of tenant "${String(leaf['tenant'])}", not "${String(tenant)}"`)
  const at_ms = numberOf(leaf['at_ms'], `${name}: at_ms`)
  if (at_ms < Number(from_ms) || at_ms >= Number(to_ms))
    throw new Difference(`${name} is of ${iso(at_ms)}, outside the invoice`)
  return amountOf(leaf['charge_nanodollars'] ?? 0, `${name}: charge_nanodollars`)
}

/** The orders of an invoice among the entries of a leaf, in the tenant's favour; below 0 to its cost. */
const ordersIn = (leaf: Json, { tenant, from_ms, to_ms }: Json, name: string): Order[] => {
  const account = `tenant:${String(tenant)}`
  return listOf(leaf['entries'], `${name}: entries`).flatMap((value, nth) => {
    const { kind, at_ms, debit, credit, amount_nanodollars } = objectOf(value, `${name}: entry ${nth}`)
    if (typeof kind !== 'string' || !Object.hasOwn(ORDERS, kind)) return []
    const { from } = ORDERS[kind as OrderKind]
    const gives = debit === from && credit === account
    if (!gives && !(debit === account && credit === from)) return []
    const when = numberOf(at_ms, `${name}: at_ms`)
    if (when < Number(from_ms) || when >= Number(to_ms)) return []
    const amount = amountOf(amount_nanodollars, `${name}: amount_nanodollars`)
    return [{ kind: kind as OrderKind, amount: gives ? amount : -amount }]
  })
}
