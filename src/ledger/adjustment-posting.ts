import type { Log } from '../observe/log.ts'
import { GRANTS, REVENUE, tenant } from './call-row.ts'
import type { Store } from './database.ts'
import type { OrderRow } from './house-tables.ts'
import type { Poster } from './poster.ts'
import type { NewEntry } from './tables.ts'

/** The transfer that an order makes. Money in a tenant's favour is taken from the grants, or given back of what was earned. */
export const entryOfOrder = ({
  kind,
  tenant: name,
  amount_nanodollars,
  call_id,
  at_ms,
  reason,
}: OrderRow): NewEntry => {
  const from = kind === 'grant' ? GRANTS : REVENUE
  const [debit, credit] = amount_nanodollars > 0n ? [from, tenant(name)] : [tenant(name), from]
  const amount = amount_nanodollars > 0n ? amount_nanodollars : -amount_nanodollars
  return { call_id, at_ms, kind, debit, credit, amount_nanodollars: amount, reason }
}

export type OrderPorts = {
  readonly poster: Poster
  /** `house.db`, opened to read. */
  readonly house_reader: Store
  readonly log: Log
  /** Told of each order once it is in the books: money that a budget counts comes back. May be told again after a crash. */
  readonly on_posted?: (order: OrderRow) => void
}

const LOOK_MS = 200
const ORDERS_MAX = 200

/**
 * Posts orders of `house.db` in the accountant: looks five times a second, posts each in a transaction of its own that
 * says so, in the order of their numbers. What cannot be posted now is tried again. `stop` posts once more and ends.
 */
export const keepOrders = ({ poster, house_reader, log, on_posted }: OrderPorts): { stop(): void } => {
  const newer = house_reader.sqlite.prepare<StoredOrder, [number, number]>(
    'SELECT * FROM orders WHERE n > ? ORDER BY n LIMIT ?',
  )
  let done = poster.lastOrder()
  const post = (): void => {
    for (const stored of newer.all(done, ORDERS_MAX)) {
      const order: OrderRow = { ...stored, n: Number(stored.n), at_ms: Number(stored.at_ms) }
      const result = poster.order({ n: order.n, order_id: order.id }, entryOfOrder(order))
      if (result.is === 'later') return log('warn', 'order_postponed', { order: order.id, cause: result.cause })
      // Stale: it is there already.
      done = order.n
      if (result.is !== 'posted') continue
      log('info', 'order_posted', { order: order.id, kind: order.kind, tenant: order.tenant })
      on_posted?.(order)
    }
  }
  const look = (): void => {
    try {
      post()
    } catch (cause) {
      log('error', 'orders_not_posted', { cause })
    }
  }
  const timer = setInterval(look, LOOK_MS)
  look()
  return {
    stop: () => {
      clearInterval(timer)
      look()
      house_reader.sqlite.close()
    },
  }
}

type StoredOrder = Omit<OrderRow, 'n' | 'at_ms'> & { readonly n: bigint; readonly at_ms: bigint }
