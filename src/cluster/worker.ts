import { buildCatalogue, type OpenTransport } from '../balance/catalogue.ts'
import { nowMs, tickMs } from '../base/clock.ts'
import { Failure } from '../base/failure.ts'
import { DescriptorReserve } from '../engines/descriptor-reserve.ts'
import { transportOpener } from '../engines/open-transport.ts'
import { openTokenCounter } from '../engines/token-counter.ts'
import { proofAsker } from '../http/call-proof.ts'
import { dataPlane } from '../http/data-plane.ts'
import { renderFailure } from '../http/render.ts'
import { type Journal, openJournal } from '../journal/writer.ts'
import type { Log } from '../observe/log.ts'
import { openJobs } from '../jobs/open-jobs.ts'
import { openMetrics } from '../observe/metrics.ts'
import { BodyRoom } from '../pipeline/body-room.ts'
import type { House } from '../pipeline/house.ts'
import { openShelf } from '../pipeline/idempotency-store.ts'
import { hotPath } from '../pipeline/pipeline.ts'
import { countRefusals } from '../pipeline/refusals.ts'
import { openWatch } from '../pipeline/watch.ts'
import { openKeyView, refreshKeys } from '../table/key-file.ts'
import { WORKER, WORKER_STATE } from '../table/layout.ts'
import { openTable, workerF64, workerI32 } from '../table/table.ts'
import { lengthenBacklog } from './backlog.ts'
import type { ChildContext, ChildLife } from './child.ts'
import { openCrowd } from './crowd.ts'
import { planDescriptors } from './descriptors.ts'
import type { Boot } from './messages.ts'
import { journalWatch } from './journal-watch.ts'
import { drainWorker } from './worker-drain.ts'

/** How often a worker beats, reads new keys and writes its gauges. */
const BEAT_MS = 100
/** Bun's idle timer, seconds; streams switch it off and have their own deadlines. */
const IDLE_S = 60

/** A worker: serves the data plane until it is told to drain. */
export const runWorker = async ({ boot, log, ready }: ChildContext): Promise<ChildLife> => {
  const { files, index, config } = boot
  const journal = await openJournal({
    folder: files.journal,
    worker_index: index,
    incarnation: boot.incarnation,
    durability: config.ledger.durability,
    sync_ms: config.ledger.sync_ms,
  })
  if (journal instanceof Failure) throw new Error('the journal cannot be opened', { cause: journal.detail.cause })
  const { allowed, needed, upstream_sockets } = planDescriptors(config, boot.descriptors_max)
  const reserve = allowed < needed ? new DescriptorReserve(upstream_sockets) : undefined
  const openTransport = transportOpener(upstream_sockets, reserve)
  const house = openHouse(boot, journal, log, openTransport)
  const { table } = house
  refreshKeys(house.keys, files.keys, table)
  const { durability, sync_ms } = config.ledger
  const jobs = openJobs(house, { folder: `${files.data}/jobs`, incarnation: boot.incarnation, durability, sync_ms })
  const app = dataPlane(house, hotPath(renderFailure, jobs.accept), jobs).listen({
    port: boot.port,
    hostname: config.server.host,
    reusePort: true,
    idleTimeout: IDLE_S,
    // Our own limits answer with a JSON error; Bun's would answer with none.
    maxRequestBodySize: Number.MAX_SAFE_INTEGER,
  })
  const server = app.server!
  if (!lengthenBacklog(server.port!)) log('info', 'backlog_not_lengthened')
  const hasRoom = journalWatch(journal, log)
  const beat = setInterval(() => {
    table.f64[workerF64(index, WORKER.heartbeat_ms)] = nowMs()
    table.f64[workerF64(index, WORKER.loop_lag_ms)] = house.watch.lag_ms()
    Atomics.store(table.i32, workerI32(index, WORKER.journal_full), hasRoom() ? 0 : 1)
    house.refusals.flush(nowMs())
    try {
      table.f64[workerF64(index, WORKER.rss_bytes)] = process.memoryUsage.rss()
      refreshKeys(house.keys, files.keys, table)
    } catch (cause) {
      void cause // Clients hold every descriptor, so no file can be opened: the next beat does it.
    }
  }, BEAT_MS)
  if (reserve !== undefined) house.isCrowded = openCrowd(allowed, tickMs)
  Atomics.store(table.i32, workerI32(index, WORKER.state), WORKER_STATE.live)
  ready(server.port!)

  return {
    onConfig: (message) => {
      const { generation } = message
      house.catalogue = buildCatalogue(message.config, generation, table, openTransport, nowMs(), house.catalogue)
      log('info', 'configuration_swapped', { generation })
    },
    drain: async (grace_ms, linger_ms) => {
      Atomics.store(table.i32, workerI32(index, WORKER.state), WORKER_STATE.draining)
      jobs.stop()
      await drainWorker(house, server, grace_ms, linger_ms)
      await jobs.close()
      clearInterval(beat)
      house.watch.stop()
      house.counter?.stop()
      house.refusals.flush(Number.POSITIVE_INFINITY)
      const failed = await journal.close()
      if (failed) log('error', 'journal_not_on_disk', { cause: failed.detail.cause })
    },
  }
}

const openHouse = (boot: Boot, journal: Journal, log: Log, openTransport: OpenTransport): House => {
  const { files, index, config } = boot
  const table = openTable(files.table)
  return {
    worker: index,
    table,
    keys: openKeyView(files.keys, table),
    journal,
    metrics: openMetrics(table, index),
    watch: openWatch(tickMs),
    refusals: countRefusals(journal),
    askProof: proofAsker(`${files.data}/run/control.sock`),
    bodies: new BodyRoom(),
    log,
    counter: openTokenCounter(log, tickMs),
    shelf: openShelf(files.idempotency, `w${index}-${boot.incarnation}`),
    catalogue: buildCatalogue(config, boot.generation, table, openTransport, nowMs()),
    other_tenants: new Map(),
    leaving: false,
    isCrowded: () => false,
    draining: false,
    now: nowMs,
    tick: tickMs,
    random: Math.random,
  }
}
