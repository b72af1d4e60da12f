import { ConnectionPool, type PoolOptions } from './connection-pool.ts'
import { requestHead } from './request-head.ts'
import { type Address, type Lane, SocketExchange } from './socket-exchange.ts'
import type { Transport } from './transport.ts'

/** How a transport over sockets keeps its connections: in a pool of its own, or in one that it shares with others. */
export type SocketTransportOptions = {
  /** Age at which an idle connection is closed; 0 closes each after its answer. */
  readonly idle_ms: number
} & (PoolOptions | { readonly pool: ConnectionPool })

const ADDRESSES_MAX = 1_024

/**
 * The transport for `http://` engines: HTTP/1.1 over pooled TCP connections of its own. `sent` is exact: true once the
 * kernel took a byte of the request. An exchange whose pooled connection proves dead before that moves to another
 * connection by itself; after it nothing is repeated, and a `reset` with `reused` tells that a repeat is likely to work.
 * Throws a TypeError for a URL that is not `http://` and for headers that may not go out.
 */
export const openSocketTransport = (options: SocketTransportOptions): Transport => {
  const pool = 'pool' in options ? options.pool : new ConnectionPool(options)
  const lane: Lane = { idle_ms: options.idle_ms }
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
      pool.run(exchange)
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
