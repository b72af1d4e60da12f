import { tickMs } from '../base/clock.ts'
import type { House } from '../pipeline/house.ts'
import { WORKER } from '../table/layout.ts'
import { workerI32 } from '../table/table.ts'

/** How long calls that are cut may take to tell their clients, and to be written down. */
const CUT_MS = 2_000

/** What is needed of Bun's server. */
type Server = { stop(now?: boolean): Promise<void>; readonly pendingRequests: number }

/**
 * Stops accepting and lets what runs come to its end; after the grace the rest is cut, so that its clients can tell.
 * Resolves when nothing will be journaled any more. With a `linger_ms` a successor serves already: connections are
 * served on for so long, and each is asked to leave, before any is closed.
 */
export const drainWorker = async (house: House, server: Server, grace_ms: number, linger_ms: number): Promise<void> => {
  house.leaving = true
  await Bun.sleep(linger_ms)
  house.draining = linger_ms === 0
  const closed = server.stop()
  // A call is over when its ending is written; its last bytes may still wait for a slow reader.
  const in_flight = workerI32(house.worker, WORKER.in_flight)
  const idle = () => Atomics.load(house.table.i32, in_flight) === 0 && server.pendingRequests === 0
  await until(idle, grace_ms)
  if (!idle()) {
    // Their clients are told, and they end in the journal like any other.
    house.log('warn', 'calls_cut_by_drain', { count: server.pendingRequests })
    house.watch.cutAll()
    await until(idle, CUT_MS)
  }
  // Open connections on which nothing was asked keep a server from being done; they had their time.
  await Promise.race([closed, Bun.sleep(idle() ? Math.min(linger_ms, grace_ms) : 0)])
  // A client that does not even read the end of its answer is cut off.
  void server.stop(true)
  await until(idle, CUT_MS)
}

/** Looks often, since an exit waits for it. */
const until = async (reached: () => boolean, within_ms: number): Promise<void> => {
  const due_tick_ms = tickMs() + within_ms
  while (!reached() && tickMs() < due_tick_ms) await Bun.sleep(10)
}
