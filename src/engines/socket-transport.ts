import { turnEnd } from '../base/turn.ts'
import { ConnectionPool, type PoolOptions } from './connection-pool.ts'
import { requestHead } from './request-head.ts'
import { type Address, type Holder, type Lane, SocketExchange } from './socket-exchange.ts'
import type { Transport } from './transport.ts'

/** How a transport over sockets keeps its connections: in a pool of its own, or in one that it shares with others. */
export type SocketTransportOptions = {
  /** Age at which an idle connection is closed; 0 closes each after its answer. */
  readonly idle_ms: number
} & (PoolOptions | { readonly pool: ConnectionPool })

const ADDRESSES_MAX = 1_024

/** Exchanges begun in this turn of the event loop, written one after the other at its end. */
class Outbox implements Holder {
  readonly #pool: ConnectionPool
  readonly #waiting = new Set<SocketExchange>()

  constructor(pool: ConnectionPool) {
    this.#pool = pool
  }

  add(exchange: SocketExchange): void {
    exchange.holder = this
    this.#waiting.add(exchange)
    if (this.#waiting.size === 1) void turnEnd().then(() => this.#flush())
  }

  drop(exchange: SocketExchange): void {
    this.#waiting.delete(exchange)
  }

  // Nothing comes before the request is out.
  pause(): void {}
  resume(): void {}

  #flush(): void {
    const exchanges = [...this.#waiting]
    this.#waiting.clear()
    for (const exchange of exchanges) if (exchange.holder === this) this.#pool.run(exchange)
  }
}

/**
 * The transport for `http://` engines: HTTP/1.1 over pooled TCP connections of its own. `sent` is exact: true once the
 * kernel took a byte of the request. An exchange whose pooled connection proves dead before that moves to another
 * connection by itself; after it nothing is repeated, and a `reset` with `reused` tells that a repeat is likely to work.
 * Throws a TypeError for a URL that is not `http://` and for headers that may not go out.
 */
export const openSocketTransport = (options: SocketTransportOptions): Transport => {
  const pool = 'pool' in options ? options.pool : new ConnectionPool(options)
  const lane: Lane = { idle_ms: options.idle_ms }
  const outbox = new Outbox(pool)
  const addresses = new Map<string, Address>()
  const addressOf = (url: string): Address => {
    const known = addresses.get(url)
    if (known) return known
    const address = parseAddress(url)
    // An engine has a handful of addresses; more than the bound means ids in paths, and those are not worth keeping.
    if (addresses.size >= ADDRESSES_MAX) addresses.clear()
    addresses.set(url, address)
    return address
  }
  return {
    send(request, deadlines) {
      const address = addressOf(request.url)
      const head = requestHead(request, address.target, address.authority)
      const exchange = new SocketExchange(request, deadlines, lane, address, head)
      outbox.add(exchange)
      return exchange
    },
    close() {
      // Connections under way are closed as they become free.
      lane.idle_ms = 0
      pool.close(lane)
    },
  }
}

const parseAddress = (text: string): Address => {
  const url = new URL(text)
  if (url.protocol !== 'http:') throw new TypeError(`not an http:// address: ${url.protocol}//${url.host}`)
  return {
    hostname: url.hostname.replace(/^\[|\]$/g, ''),
    port: url.port === '' ? 80 : Number(url.port),
    authority: url.host,
    target: url.pathname + url.search,
  }
}
