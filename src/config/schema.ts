import { type Static, Type } from '@sinclair/typebox'

/**
 * The configuration: the single source of types, defaults, checks, the JSON Schema and the README's table.
 * Durations end in `_ms`, sizes in `_bytes`. Money is decimal strings in USD.
 */

const Name = Type.String({
  pattern: '^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}$',
  description: 'Letters, digits and . _ : / @ -, at most 128.',
})
const Usd = Type.String({ pattern: '^[0-9]{1,12}(\\.[0-9]{1,9})?$', description: 'USD as a decimal string.' })
const UsdPerMillion = Type.String({
  pattern: '^[0-9]{1,12}(\\.[0-9]{1,6})?$',
  description: 'USD per million tokens as a decimal string.',
})
const closed = { additionalProperties: false } as const

export const Engine = Type.Object(
  {
    name: Name,
    url: Type.String({
      pattern: '^https?://',
      description: 'Base address, with or without /v1, a path prefix or a query.',
    }),
    dialect: Type.Union([Type.Literal('openai'), Type.Literal('anthropic'), Type.Literal('json')], {
      default: 'openai',
      description: 'How the engine speaks.',
    }),
    key: Type.Optional(Type.String({ minLength: 1, description: 'Credential sent to the engine. Secret.' })),
    capacity: Type.Integer({
      minimum: 1,
      maximum: 100_000,
      default: 256,
      description: 'Simultaneous calls the engine takes.',
    }),
    can: Type.Array(
      Type.Union([
        Type.Literal('prefix_continuation'),
        Type.Literal('continuous_usage'),
        Type.Literal('no_stream_options'),
      ]),
      {
        default: [],
        description: 'What the engine can do beyond the dialect.',
      },
    ),
    on_disconnect: Type.Union([Type.Literal('cancel'), Type.Literal('drain')], {
      default: 'cancel',
      description: 'What happens at the engine when the client leaves.',
    }),
    idle_ms: Type.Integer({
      minimum: 0,
      maximum: 3_600_000,
      default: 4_000,
      description: 'Age at which an idle connection to the engine is closed; keep it below the engine’s own.',
    }),
  },
  closed,
)

export const Target = Type.Object(
  {
    engine: Type.String({ description: 'Name of an engine.' }),
    model: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 256,
        description: 'The model’s name at the engine; the same name if absent.',
      }),
    ),
    weight: Type.Number({ exclusiveMinimum: 0, maximum: 1_000_000, default: 1, description: 'Share of traffic.' }),
  },
  closed,
)

export const Price = Type.Object(
  {
    input: UsdPerMillion,
    cached_input: Type.Optional(UsdPerMillion),
    output: UsdPerMillion,
    reasoning: Type.Optional(UsdPerMillion),
    request: Type.Optional(Usd),
  },
  closed,
)

export const Timeouts = Type.Object(
  {
    connect_ms: Type.Integer({
      minimum: 1,
      maximum: 600_000,
      default: 5_000,
      description: 'Until the engine has accepted the connection.',
    }),
    first_byte_ms: Type.Integer({
      minimum: 1,
      maximum: 3_600_000,
      default: 300_000,
      description: 'Until the engine’s status line.',
    }),
    first_token_ms: Type.Integer({
      minimum: 1,
      maximum: 3_600_000,
      default: 300_000,
      description: 'Until the first event of a stream.',
    }),
    between_tokens_ms: Type.Integer({
      minimum: 1,
      maximum: 3_600_000,
      default: 120_000,
      description: 'Between two reads of an answer; every byte restarts it.',
    }),
    total_ms: Type.Integer({ minimum: 1, maximum: 86_400_000, default: 3_600_000, description: 'The whole call.' }),
  },
  { ...closed, default: {} },
)

export const Model = Type.Object(
  {
    name: Name,
    targets: Type.Array(Target, { minItems: 1, maxItems: 256, description: 'The engines that serve the model.' }),
    fallbacks: Type.Array(Type.String(), {
      default: [],
      maxItems: 16,
      description: 'Models to try when no target can answer.',
    }),
    price: Type.Optional(Price),
    free: Type.Boolean({
      default: false,
      description: 'The model costs nothing, on purpose. Without this a missing price is a fault.',
    }),
    rewrite_model: Type.Boolean({
      default: false,
      description: 'Show the asked-for name in the answer instead of the engine’s.',
    }),
    timeouts: Type.Optional(Type.Partial(Type.Omit(Timeouts, []), closed)),
  },
  closed,
)

export const Limits = Type.Object(
  {
    requests_per_minute: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: 1_000_000_000,
        description: 'Requests a minute (GCRA, burst of one minute’s worth).',
      }),
    ),
    tokens_per_minute: Type.Optional(
      Type.Integer({ minimum: 0, maximum: 1_000_000_000_000, description: 'Tokens a minute.' }),
    ),
    concurrent: Type.Optional(
      Type.Integer({ minimum: 0, maximum: 10_000_000, description: 'Calls at once; a stream counts until it ends.' }),
    ),
  },
  { ...closed, default: {} },
)

export const Budget = Type.Object(
  {
    usd: Usd,
    per: Type.Union([Type.Literal('total'), Type.Literal('day'), Type.Literal('week'), Type.Literal('month')], {
      default: 'total',
      description: 'The window.',
    }),
    timezone: Type.String({ default: 'UTC', description: 'IANA name of the zone in which windows begin.' }),
  },
  closed,
)

export const Tenant = Type.Object(
  {
    name: Name,
    budgets: Type.Array(Budget, { default: [], maxItems: 8 }),
    limits: Limits,
    models: Type.Optional(Type.Array(Type.String(), { description: 'Models the tenant may use; all if absent.' })),
  },
  closed,
)

export const Server = Type.Object(
  {
    port: Type.Integer({
      minimum: 0,
      maximum: 65_535,
      default: 8080,
      description: 'Port of the data plane; 0 takes a free one.',
    }),
    host: Type.String({ default: '0.0.0.0', description: 'Address of the data plane.' }),
    ops_port: Type.Integer({
      minimum: 0,
      maximum: 65_535,
      default: 9090,
      description: 'Port of the ops plane; 0 takes a free one.',
    }),
    ops_host: Type.String({ default: '127.0.0.1', description: 'Address of the ops plane.' }),
    data: Type.String({ default: './data', description: 'Folder of the journal, the ledger and the log.' }),
    workers: Type.Union([Type.Literal('auto'), Type.Integer({ minimum: 1, maximum: 32 })], {
      default: 'auto',
      description: 'Worker processes; auto is the CPUs of the cgroup.',
    }),
    grace_ms: Type.Integer({
      minimum: 0,
      maximum: 3_600_000,
      default: 30_000,
      description: 'How long running calls may go on after SIGTERM.',
    }),
    body_bytes_max: Type.Integer({
      minimum: 1_024,
      maximum: 1_073_741_824,
      default: 33_554_432,
      description: 'Largest request body, before and after decompression.',
    }),
    body_ms: Type.Integer({
      minimum: 100,
      maximum: 3_600_000,
      default: 60_000,
      description: 'Until the request body is complete.',
    }),
    in_flight_max: Type.Integer({
      minimum: 1,
      maximum: 1_000_000,
      default: 20_000,
      description: 'Calls at once in one worker.',
    }),
    upstream_sockets_max: Type.Integer({
      minimum: 1,
      maximum: 65_535,
      default: 4_096,
      description: 'Connections to engines from one worker.',
    }),
    ping_ms: Type.Integer({
      minimum: 100,
      maximum: 240_000,
      default: 15_000,
      description: 'Silence after which a stream gets a comment line.',
    }),
    subjects_max: Type.Integer({
      minimum: 64,
      maximum: 1_000_000,
      default: 16_384,
      description: 'Keys, tenants, models and engines tracked at once.',
    }),
  },
  { ...closed, default: {} },
)

export const Ledger = Type.Object(
  {
    durability: Type.Union([Type.Literal('standard'), Type.Literal('strict')], {
      default: 'standard',
      description:
        'standard survives a killed process; strict makes the end of an answer wait for the disk and survives power loss.',
    }),
    sync_ms: Type.Integer({
      minimum: 1,
      maximum: 60_000,
      default: 50,
      description: 'Longest time until a record is on disk in standard mode.',
    }),
    journal_keep_ms: Type.Integer({
      minimum: 0,
      maximum: 31_536_000_000,
      default: 3_600_000,
      description: 'How long a posted journal segment is kept.',
    }),
  },
  { ...closed, default: {} },
)

export const Cors = Type.Object(
  {
    origins: Type.Array(Type.String({ minLength: 1 }), {
      default: [],
      description: 'Browser origins that may call; * for any. Empty switches CORS off.',
    }),
  },
  { ...closed, default: {} },
)

export const Config = Type.Object(
  {
    server: Server,
    ledger: Ledger,
    cors: Cors,
    timeouts: Timeouts,
    engines: Type.Array(Engine, { default: [], maxItems: 256 }),
    models: Type.Array(Model, { default: [], maxItems: 4_096 }),
    tenants: Type.Array(Tenant, { default: [], maxItems: 16_384 }),
  },
  closed,
)

export type Config = Static<typeof Config>
export type EngineConfig = Static<typeof Engine>
export type ModelConfig = Static<typeof Model>
export type TenantConfig = Static<typeof Tenant>
export type TargetConfig = Static<typeof Target>
export type TimeoutsConfig = Static<typeof Timeouts>
export type PriceConfig = Static<typeof Price>
export type LimitsConfig = Static<typeof Limits>
