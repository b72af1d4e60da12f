import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buildCatalogue } from '../../src/balance/catalogue.ts'
import { nowMs, tickMs } from '../../src/base/clock.ts'
import { Failure } from '../../src/base/failure.ts'
import { loadConfig } from '../../src/config/load.ts'
import { openSocketTransport } from '../../src/engines/socket-transport.ts'
import { openJournal } from '../../src/journal/writer.ts'
import { openMetrics } from '../../src/observe/metrics.ts'
import { BodyRoom } from '../../src/pipeline/body-room.ts'
import type { House } from '../../src/pipeline/house.ts'
import { countRefusals } from '../../src/pipeline/refusals.ts'
import { openWatch } from '../../src/pipeline/watch.ts'
import { emptyKeyView } from '../../src/table/key-file.ts'
import { createTable } from '../../src/table/table.ts'
import { BENCH_KEY, houseConfig } from './servers.ts'

/** A worker's surroundings in this process, as a worker makes them: real table, catalogue, journal. */
export const houseHere = async (): Promise<{ house: House; close(): Promise<void> }> => {
  const folder = mkdtempSync(join(tmpdir(), 'weir-bench-'))
  const table = createTable(`${folder}/table`, 256, nowMs())
  const loaded = loadConfig({ text: JSON.stringify(houseConfig('http://127.0.0.1:9')), env: {} })
  if ('faults' in loaded) throw new Error(JSON.stringify(loaded.faults))
  const journal = await openJournal({ folder, worker_index: 0, incarnation: 1, durability: 'standard', sync_ms: 50 })
  if (journal instanceof Failure) throw new Error('the journal does not open', { cause: journal.detail.cause })
  const watch = openWatch(tickMs)
  const keys = emptyKeyView()
  const sha256 = Bun.SHA256.hash(BENCH_KEY, 'hex')
  keys.by_sha256.set(sha256, {
    ...{ id: 'key_bench', sha256, tenant: 'bench', name: 'bench', requests_per_minute: 1_000_000_000 },
  })
  const house: House = {
    worker: 0,
    table,
    keys,
    journal,
    metrics: openMetrics(table, 0),
    watch,
    refusals: countRefusals(journal),
    askProof: async () => new Failure('not_found'),
    bodies: new BodyRoom(),
    log: () => undefined,
    catalogue: buildCatalogue(
      loaded.config,
      1,
      table,
      ({ idle_ms }) => openSocketTransport({ idle_ms, sockets_max: 8 }),
      nowMs(),
    ),
    other_tenants: new Map(),
    leaving: false,
    isCrowded: () => false,
    draining: false,
    now: nowMs,
    tick: tickMs,
    random: Math.random,
  }
  return {
    house,
    close: async () => {
      watch.stop()
      await journal.close()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}
