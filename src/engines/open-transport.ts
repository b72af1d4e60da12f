import { ConnectionPool } from './connection-pool.ts'
import type { DescriptorReserve } from './descriptor-reserve.ts'
import { openFetchTransport } from './fetch-transport.ts'
import { openSocketTransport } from './socket-transport.ts'
import type { Transport } from './transport.ts'

/** What of an engine's configuration decides its transport. */
export type EngineAddress = { readonly url: string; readonly idle_ms: number; readonly ca?: string }

/**
 * Gives a function that opens the transport of an engine: sockets for `http://`, `fetch` for `https://`. All engines over
 * `http://` share one pool, so `sockets_max` bounds their connections together; `reserve` lends them descriptors.
 */
export const transportOpener = (
  sockets_max: number,
  reserve?: DescriptorReserve,
): ((engine: EngineAddress) => Transport) => {
  const pool = new ConnectionPool({ sockets_max, reserve })
  return ({ url, idle_ms, ca }) =>
    url.startsWith('http://')
      ? openSocketTransport({ idle_ms, pool })
      : openFetchTransport({ idle_ms, sockets_max, ...(ca !== undefined && { ca }) })
}
