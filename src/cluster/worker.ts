import { buildCatalogue, type OpenTransport } from '../balance/catalogue.ts'
import { nowMs, tickMs } from '../base/clock.ts'
import { Failure } from '../base/failure.ts'
import { transportOpener } from '../engines/open-transport.ts'
import { proofAsker } from '../http/call-proof.ts'
import { dataPlane } from '../http/data-plane.ts'
import { renderFailure } from '../http/render.ts'
import { openJournal } from '../journal/writer.ts'
import { openMetrics } from '../observe/metrics.ts'
import { BodyRoom } from '../pipeline/body-room.ts'
import type { House } from '../pipeline/house.ts'
import { openShelf } from '../pipeline/idempotency-store.ts'
import { hotPath } from '../pipeline/pipeline.ts'
import { countRefusals } from '../pipeline/refusals.ts'
import { openWatch } from '../pipeline/watch.ts'
import { emptyKeyView, refreshKeys } from '../table/key-file.ts'
import { WORKER, WORKER_STATE } from '../table/layout.ts'
import { openTable, workerF64, workerI32 } from '../table/table.ts'
import type { ChildContext, ChildLife } from './child.ts'
import { planDescriptors } from './descriptors.ts'

/** How often a worker beats, reads new keys and writes its gauges. */
const BEAT_MS = 100
/** Bun's idle timer, seconds; streams switch it off and have their own deadlines. */
const IDLE_S = 60
/** How long calls that are cut may take to be written down. */
const CUT_MS = 2_000

/** A worker: serves the data plane until it is told to drain. */
export const runWorker = async ({ boot, log, ready }: ChildContext): Promise<ChildLife> => {
  const { files, index, config } = boot
  const table = openTable(files.table)
  const journal = await openJournal({
    folder: files.journal,
    worker_index: index,
    incarnation: boot.incarnation,
    durability: config.ledger.durability,
    sync_ms: config.ledger.sync_ms,
  })
  if (journal instanceof Failure) throw new Error('the journal cannot be opened', { cause: journal.detail.cause })
  const sockets_max = planDescriptors(config, boot.descriptors_max).upstream_sockets
  const openTransport: OpenTransport = transportOpener(sockets_max)
  const watch = openWatch(tickMs)
  const house: House = {
    worker: index,
    table,
    keys: emptyKeyView(),
    journal,
    metrics: openMetrics(table, index),
    watch,
    refusals: countRefusals(journal),
    askProof: proofAsker(`${files.data}/run/control.sock`),
    bodies: new BodyRoom(),
    log,
    shelf: openShelf(files.idempotency, `w${index}-${boot.incarnation}`),
    catalogue: buildCatalogue(config, boot.generation, table, openTransport, nowMs()),
    other_tenants: new Map(),
    leaving: false,
    draining: false,
    now: nowMs,
    tick: tickMs,
    random: Math.random,
  }
  refreshKeys(house.keys, files.keys, table)
  const app = dataPlane(house, hotPath(renderFailure)).listen({
    port: boot.port,
    hostname: config.server.host,
    reusePort: true,
    idleTimeout: IDLE_S,
    // Our own limits answer with a JSON error; Bun's would answer with none.
    maxRequestBodySize: Number.MAX_SAFE_INTEGER,
  })
  const server = app.server!
  const cell = (name: 'state' | 'open_streams' | 'in_flight' | 'journal_full') => workerI32(index, WORKER[name])
  const beat = setInterval(() => {
    table.f64[workerF64(index, WORKER.heartbeat_ms)] = nowMs()
    table.f64[workerF64(index, WORKER.loop_lag_ms)] = watch.lag_ms()
    table.f64[workerF64(index, WORKER.rss_bytes)] = process.memoryUsage.rss()
    Atomics.store(table.i32, cell('journal_full'), journal.has_room() ? 0 : 1)
    refreshKeys(house.keys, files.keys, table)
    house.refusals.flush(nowMs())
  }, BEAT_MS)
  Atomics.store(table.i32, cell('state'), WORKER_STATE.live)
  ready(server.port!)

  return {
    onConfig: ({ config, generation }) => {
      house.catalogue = buildCatalogue(config, generation, table, openTransport, nowMs(), house.catalogue)
      log('info', 'configuration_swapped', { generation })
    },
    drain: async (grace_ms, linger_ms) => {
      Atomics.store(table.i32, cell('state'), WORKER_STATE.draining)
      house.leaving = true
      // A successor serves already: clients are asked to leave before anything is closed under them.
      await Bun.sleep(linger_ms)
      house.draining = linger_ms === 0
      const closed = server.stop()
      // A call is over when its ending is written; its last bytes may still wait for a slow reader.
      const idle = () => Atomics.load(table.i32, cell('in_flight')) === 0 && server.pendingRequests === 0
      await until(idle, grace_ms)
      if (!idle()) log('warn', 'calls_cut_by_drain', { count: server.pendingRequests })
      // Open connections on which nothing was asked keep a server from being done; they had their time.
      await Promise.race([closed, Bun.sleep(idle() ? Math.min(linger_ms, grace_ms) : 0)])
      // Calls that overstay see their client leave, and end in the journal like any other.
      void server.stop(true)
      await until(idle, CUT_MS)
      clearInterval(beat)
      watch.stop()
      house.refusals.flush(Number.POSITIVE_INFINITY)
      const failed = await journal.close()
      if (failed) log('error', 'journal_not_on_disk', { cause: failed.detail.cause })
    },
  }
}

/** Looks often, since an exit waits for it. */
const until = async (reached: () => boolean, within_ms: number): Promise<void> => {
  const due_tick_ms = tickMs() + within_ms
  while (!reached() && tickMs() < due_tick_ms) await Bun.sleep(10)
}
