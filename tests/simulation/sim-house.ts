import { buildCatalogue, type Catalogue } from '../../src/balance/catalogue.ts'
import { Failure } from '../../src/base/failure.ts'
import { loadConfig } from '../../src/config/load.ts'
import type { Config } from '../../src/config/schema.ts'
import type { JournalRecord } from '../../src/journal/record.ts'
import type { Journal } from '../../src/journal/writer.ts'
import { openMetrics } from '../../src/observe/metrics.ts'
import { BodyRoom } from '../../src/pipeline/body-room.ts'
import { parseBody } from '../../src/pipeline/body.ts'
import type { Arrival, Routed } from '../../src/pipeline/call.ts'
import { ENDPOINTS } from '../../src/pipeline/endpoints.ts'
import type { House } from '../../src/pipeline/house.ts'
import { emptyKeyView, type KeyRecord } from '../../src/table/key-file.ts'
import type { Table } from '../../src/table/table.ts'

/** The surroundings of a simulated worker: the real ones, with its clock and its journal behind a fuse. */

/** What a process throws at the moment at which it is killed. */
export const KILLED = new Error('killed')

/** Calls of a port until the process is killed in the middle of what it does. */
export type Fuse = { left: number }

const burn = (fuse: Fuse): void => {
  if (fuse.left-- <= 0) throw KILLED
}

export const LIMITS = { requests_per_minute: 15, concurrent: 9, tokens_per_minute: 6_000 } as const

const PRICE = { input: '2.00', cached_input: '0.50', output: '8.00', reasoning: '9.00', request: '0.00001' }
const day = (usd: string, timezone: string) => ({ usd, per: 'day', timezone })

const loaded = loadConfig({
  text: JSON.stringify({
    engines: [{ name: 'e', url: 'http://127.0.0.1:9/v1' }],
    models: [
      {
        name: 'm0',
        targets: [{ engine: 'e' }],
        price: PRICE,
        limits: { requests_per_minute: LIMITS.requests_per_minute, concurrent: LIMITS.concurrent },
        budgets: [{ usd: '0.06', per: 'week', timezone: 'Europe/Berlin' }],
      },
    ],
    tenants: ['t0', 't1'].map((name) => ({
      name,
      budgets: [day('0.03', 'Asia/Seoul'), { usd: '0.09' }],
      limits: { tokens_per_minute: LIMITS.tokens_per_minute },
      end_user: { budgets: [day('0.02', 'UTC')], limits: {} },
    })),
  }),
  env: {},
})
if ('faults' in loaded) throw new Error(JSON.stringify(loaded.faults))
export const CONFIG: Config = loaded.config

const transport = { send: () => Promise.reject(new Error('there are no engines here')) } as never

/** The catalogue as a worker builds it. */
export const catalogueOf = (table: Table, now_ms: number): Catalogue =>
  buildCatalogue(CONFIG, 1, table, () => transport, now_ms)

export const simHouse = (
  table: Table,
  worker: number,
  catalogue: Catalogue,
  journal: Journal,
  fuse: Fuse,
  now: () => number,
  alter: (record: JournalRecord) => JournalRecord | undefined,
  log: House['log'],
): House => ({
  worker,
  table,
  catalogue,
  keys: emptyKeyView(),
  journal: {
    append: (record) => {
      burn(fuse)
      const altered = alter(record)
      const position = altered === undefined ? 0 : journal.append(altered)
      burn(fuse)
      return position
    },
    synced: journal.synced,
    has_room: journal.has_room,
  },
  metrics: openMetrics(table, worker),
  watch: undefined as never,
  refusals: undefined as never,
  askProof: async () => new Failure('not_found'),
  bodies: new BodyRoom(),
  log,
  other_tenants: new Map(),
  leaving: false,
  isCrowded: () => false,
  draining: false,
  now: () => {
    burn(fuse)
    return now()
  },
  tick: now,
  random: () => 0.5,
})

const KEYS = new Map<string, KeyRecord>()
const keyOf = (tenant: string): KeyRecord => {
  let key = KEYS.get(tenant)
  if (key === undefined) KEYS.set(tenant, (key = { id: `key_${tenant}`, sha256: tenant, tenant, name: 'k' }))
  return key
}
const arrival = { endpoint: ENDPOINTS.chat } as Arrival

/** A call as it is when its body has been read. */
export const simCall = (id: string, house: House, now_ms: number, tenant: string, user: string, tokens_max: number) => {
  const text = `{"model":"m0","max_tokens":${tokens_max},"user":"${user}","messages":[{"role":"user","content":"hi"}]}`
  const body = parseBody(Buffer.from(text), true)
  if (body instanceof Failure) throw body
  const call = {
    id,
    arrival,
    headers: new Headers(),
    catalogue: house.catalogue,
    received_at_ms: now_ms,
    started_tick_ms: now_ms,
    deadline_tick_ms: Number.POSITIVE_INFINITY,
    at: 'route',
    key: keyOf(tenant),
    tenant: house.catalogue.tenants.get(tenant)!,
    body,
    model: house.catalogue.models.get('m0')!,
    target: house.catalogue.models.get('m0')!.targets[0]!,
    decision: undefined,
    ask: undefined,
    queue_ms: 0,
    claims: [],
    body_held_bytes: 0,
    keeping: undefined,
    rate: undefined,
    token_rate: undefined,
    images: 0,
    held: undefined,
    intended: false,
    open: true,
    client_gone: false,
  }
  return call as unknown as Routed
}
