import { type Static, Type } from '@sinclair/typebox'
import { limits } from '../base/limits.ts'
import { Audit } from './audit-schema.ts'
import { Idempotency } from './idempotency-schema.ts'
import { Budget, Limits, PriorityMax } from './limits-schema.ts'
import { Jobs, Webhook } from './jobs-schema.ts'
import type { Price } from './price-schema.ts'
import { choice, closed, host, int, name, section, strings } from './kinds.ts'
import { Engine } from './engine-schema.ts'
import { Model, type Target, Timeouts } from './serving-schema.ts'

/**
 * The configuration: the single source of types, defaults, checks, the JSON Schema and the README's table.
 * Durations end in `_ms`, sizes in `_bytes`. Money is decimal strings in USD. Every setting carries a description;
 * `writeOnly` marks a secret; `title` and `x-allowed` are the words of a fault where a pattern decides.
 */

export const Tenant = Type.Object(
  {
    name: name('Name of the tenant.'),
    budgets: Type.Array(Budget, { default: [], maxItems: 8, description: 'All of them hold; none is no budget.' }),
    limits: Limits,
    end_user: Type.Optional(
      Type.Object(
        {
          budgets: Type.Array(Budget, { default: [], maxItems: 8, description: 'What each may spend.' }),
          limits: Limits,
        },
        { ...closed, description: 'What holds for each end user, told apart by the request’s `user`.' },
      ),
    ),
    priority_max: Type.Optional({
      ...PriorityMax,
      description: 'The highest class that x-weir-priority may ask for while calls wait; normal if absent.',
    }),
    models: Type.Optional(
      Type.Array(Type.String({ minLength: 1, maxLength: 128 }), {
        maxItems: 4_096,
        description: 'Models the tenant may use; all if absent.',
      }),
    ),
    webhook: Type.Optional(Webhook),
  },
  closed,
)

export const Server = Type.Object(
  {
    port: int(0, 65_535, 8080, 'Port of the data plane; 0 takes a free one.'),
    host: host('0.0.0.0', 'Address of the data plane.'),
    ops_port: int(0, 65_535, 9090, 'Port of the ops plane; 0 takes a free one.'),
    ops_host: host('127.0.0.1', 'Address of the ops plane.'),
    data: Type.String({
      minLength: 1,
      maxLength: 1_024,
      default: './data',
      description: 'Folder of the journal, the ledger and the log.',
    }),
    workers: Type.Union([Type.Literal('auto'), Type.Integer({ minimum: 1, maximum: limits.workers_at_once_max })], {
      default: 'auto',
      description: 'Worker processes; auto is the CPUs of the cgroup.',
    }),
    grace_ms: int(0, 3_600_000, 30_000, 'How long running calls may go on after SIGTERM.'),
    body_bytes_max: int(1_024, 1_073_741_824, 33_554_432, 'Largest request body, before and after decompression.'),
    body_ms: int(100, 3_600_000, 60_000, 'Until the request body is complete.'),
    in_flight_max: int(1, 1_000_000, 20_000, 'Calls at once in one worker.'),
    upstream_sockets_max: int(1, 65_535, 4_096, 'Connections to engines from one worker.'),
    ping_ms: int(100, 240_000, 15_000, 'Silence after which a stream gets a comment line.'),
    subjects_max: int(64, 1_000_000, 16_384, 'Keys, tenants, models and engines tracked at once.'),
  },
  section,
)

export const Ledger = Type.Object(
  {
    durability: choice(
      ['standard', 'strict'],
      'standard',
      'standard survives a killed process; strict makes the end of an answer wait for the disk and survives power loss.',
    ),
    sync_ms: int(
      1,
      60_000,
      50,
      'Longest time until a record goes to the disk in standard mode. A loss of power takes no call that was answered more than this before it, and the time of the sync then running and of one more (a few ms on an SSD); a killed process takes none.',
    ),
    journal_keep_ms: int(0, 31_536_000_000, 3_600_000, 'How long a posted journal segment is kept.'),
  },
  section,
)

export const Cors = Type.Object(
  { origins: strings(256, 'Browser origins that may call; * for any. Empty switches CORS off.') },
  section,
)

export const Config = Type.Object(
  {
    server: Server,
    ledger: Ledger,
    audit: Audit,
    idempotency: Idempotency,
    jobs: Jobs,
    cors: Cors,
    timeouts: Timeouts,
    engines: Type.Array(Engine, { default: [], maxItems: limits.engines_max, description: 'The engines.' }),
    models: Type.Array(Model, { default: [], maxItems: 4_096, description: 'The models on offer.' }),
    tenants: Type.Array(Tenant, { default: [], maxItems: 16_384, description: 'Who may call, and how much.' }),
  },
  closed,
)

export type Config = Static<typeof Config>
export type EngineConfig = Static<typeof Engine>
export type ModelConfig = Static<typeof Model>
export { Budget, Limits, PriorityMax }
export type { PriorityClass } from './limits-schema.ts'
export type BudgetConfig = Static<typeof Budget>
export type TenantConfig = Static<typeof Tenant>
export type TargetConfig = Static<typeof Target>
export type TimeoutsConfig = Static<typeof Timeouts>
export type PriceConfig = Static<typeof Price>
export type LimitsConfig = Static<typeof Limits>

/** The timeouts of one model: its own, and the house's where it names none. */
export const timeoutsOf = (config: Config, model: ModelConfig): TimeoutsConfig => ({
  ...config.timeouts,
  ...model.timeouts,
})
