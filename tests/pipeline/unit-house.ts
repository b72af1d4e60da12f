import { buildCatalogue } from '../../src/balance/catalogue.ts'
import { tickMs } from '../../src/base/clock.ts'
import { Failure } from '../../src/base/failure.ts'
import { loadConfig } from '../../src/config/load.ts'
import { openFetchTransport } from '../../src/engines/fetch-transport.ts'
import { openJournal } from '../../src/journal/writer.ts'
import { openMetrics } from '../../src/observe/metrics.ts'
import type { Arrival, Call } from '../../src/pipeline/call.ts'
import { type Endpoint, ENDPOINTS } from '../../src/pipeline/endpoints.ts'
import { BodyRoom } from '../../src/pipeline/body-room.ts'
import type { House } from '../../src/pipeline/house.ts'
import { countRefusals } from '../../src/pipeline/refusals.ts'
import { openWatch } from '../../src/pipeline/watch.ts'
import { emptyKeyView, type KeyRecord } from '../../src/table/key-file.ts'
import { WORKER } from '../../src/table/layout.ts'
import { createTable, workerI32 } from '../../src/table/table.ts'
import { startHostileEngine } from '../kit/hostile-engine.ts'
import { CH, D, DONE, end, json, script, sse200, US, WHOLE } from '../kit/script.ts'
import { tempFolder } from '../kit/wait.ts'

export const NOW_MS = Date.UTC(2026, 0, 31, 9, 30)
export const SECRET = 'weir_secret-of-the-test'

export type UnitSettings = {
  readonly config?: object
  readonly subjects_max?: number
  readonly bodies_bytes_max?: number
  readonly keys?: readonly Partial<KeyRecord & { readonly secret: string }>[]
}

/** A unit house in front of a real engine that answers a text, whole or as a stream, under a watch of real time. */
export const unitHouseAtEngine = async (text: string) => {
  const engine = startHostileEngine({
    answers: (request) =>
      request.json().stream
        ? script(sse200, D(CH({ content: text })), D(CH({}, 'stop')), D(US(5, 1)), DONE, end)
        : json(200, WHOLE(text, 5, 1)),
  })
  const unit = await unitHouse({ config: { engines: [{ name: 'e', url: engine.url, probe_ms: 0 }] } })
  const watch = openWatch(tickMs)
  return {
    engine,
    unit,
    watch,
    async [Symbol.asyncDispose]() {
      watch.stop()
      await unit[Symbol.asyncDispose]()
      await engine[Symbol.asyncDispose]()
    },
  }
}

/** A worker's surroundings with a real table, catalogue and journal, and a clock that stands until it is moved. */
export const unitHouse = async (settings: UnitSettings = {}) => {
  const folder = tempFolder('weir-unit')
  const table = createTable(`${folder.path}/table`, settings.subjects_max ?? 64, NOW_MS)
  const loaded = loadConfig({ text: JSON.stringify({ ...DEFAULTS, ...settings.config }), env: {} })
  if ('faults' in loaded) throw new Error(JSON.stringify(loaded.faults))
  const journal = await openJournal({
    folder: folder.path,
    worker_index: 0,
    incarnation: 1,
    durability: 'standard',
    sync_ms: 50,
  })
  if (journal instanceof Failure) throw journal.detail.cause
  const clock = { now_ms: NOW_MS, tick_ms: 1_000 }
  const watch = openWatch(() => clock.tick_ms)
  const logged: string[] = []
  const keys = emptyKeyView()
  for (const { secret = SECRET, ...key } of settings.keys ?? [{}]) {
    const sha256 = Bun.SHA256.hash(secret, 'hex')
    keys.by_sha256.set(sha256, { id: `key_${keys.by_sha256.size}`, sha256, tenant: 'acme', name: 'k', ...key })
  }
  const house: House = {
    worker: 0,
    table,
    keys,
    journal,
    metrics: openMetrics(table, 0),
    watch,
    refusals: countRefusals(journal),
    askProof: async () => new Failure('not_found'),
    bodies: new BodyRoom(settings.bodies_bytes_max),
    log: (_level, event) => void logged.push(event),
    catalogue: buildCatalogue(
      loaded.config,
      1,
      table,
      (engine) => openFetchTransport({ idle_ms: engine.idle_ms, sockets_max: 8 }),
      NOW_MS,
    ),
    other_tenants: new Map(),
    leaving: false,
    isCrowded: () => false,
    draining: false,
    now: () => clock.now_ms,
    tick: () => clock.tick_ms,
    random: () => 0.5,
  }
  return {
    house,
    clock,
    logged,
    inFlight: () => Atomics.load(table.i32, workerI32(0, WORKER.in_flight)),
    [Symbol.asyncDispose]: async () => {
      watch.stop()
      await journal.close()
      folder[Symbol.dispose]()
    },
  }
}

const DEFAULTS = {
  engines: [{ name: 'e', url: 'http://127.0.0.1:9/v1' }],
  models: [
    { name: 'm1', targets: [{ engine: 'e' }], free: true },
    { name: 'm2', targets: [{ engine: 'e' }], free: true },
  ],
  tenants: [{ name: 'acme' }],
}

/** A request as the HTTP layer hands it in. */
export const arrival = (
  init: RequestInit = {},
  endpoint: Endpoint = ENDPOINTS.chat,
  path = endpoint.path,
): Arrival => ({
  request: new Request(`http://localhost${path}`, {
    method: 'POST',
    ...init,
    headers: { host: 'localhost', authorization: `Bearer ${SECRET}`, ...(init.headers as Record<string, string>) },
  }),
  endpoint,
  keepOpen: () => undefined,
})

/** The code of a failure, or `ok`. */
export const codeOf = (result: Failure | Call | object | undefined): string =>
  result instanceof Failure ? result.code : 'ok'
