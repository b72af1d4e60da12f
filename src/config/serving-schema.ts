import { Type } from '@sinclair/typebox'
import { limits } from '../base/limits.ts'
import { choice, closed, int, name, section, strings, usdPerMillion, withoutDefaults } from './kinds.ts'
import { Budget, Limits } from './limits-schema.ts'
import { Price, PriceChange } from './price-schema.ts'

/** The part of the configuration that says what serves: engines, models, and how one finds the other. */

export const Target = Type.Object(
  {
    engine: Type.String({ minLength: 1, maxLength: 128, description: 'Name of an engine.' }),
    model: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: limits.name_bytes_max,
        description: 'The model’s name at the engine; the same name if absent.',
      }),
    ),
    weight: Type.Number({ exclusiveMinimum: 0, maximum: 1_000_000, default: 1, description: 'Share of traffic.' }),
    context_tokens: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: 1_000_000_000,
        description: 'Prompt and answer that the model takes there; a prompt that is too long goes to a larger one.',
      }),
    ),
    cost: Type.Optional(
      Type.Object(
        {
          input: usdPerMillion('USD per million prompt tokens.'),
          output: usdPerMillion('USD per million completion tokens.'),
        },
        { ...closed, description: 'What the target costs the house, for the strategy cheapest; the price if absent.' },
      ),
    ),
  },
  closed,
)

export const Queue = Type.Object(
  {
    size: int(0, 1_000_000, 1_024, 'Calls of all workers that may wait while every engine is full; 0 refuses at once.'),
    wait_ms: int(1, 3_600_000, 30_000, 'Longest wait.'),
  },
  { ...section, description: 'Where calls wait for an engine, shared fairly between tenants.' },
)

export const Timeouts = Type.Object(
  {
    connect_ms: int(1, 600_000, 5_000, 'Until the engine has accepted the connection.'),
    first_byte_ms: int(1, 3_600_000, 300_000, 'Until the engine’s status line.'),
    first_token_ms: int(1, 3_600_000, 300_000, 'Until the first event of a stream.'),
    between_tokens_ms: int(1, 3_600_000, 120_000, 'Between two reads of an answer; every byte restarts it.'),
    total_ms: int(1, 86_400_000, 3_600_000, 'The whole call.'),
  },
  section,
)

const ModelTimeouts = Type.Partial(Type.Object(withoutDefaults(Timeouts.properties)), closed)

export const Hedge = Type.Object(
  {
    after_ms: int(
      1,
      3_600_000,
      1_000,
      'Time without a stream’s first token after which a second engine is asked as well.',
    ),
    whole_after_ms: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: 3_600_000,
        description:
          'The same for an answer that comes whole. If absent such answers are raced for by their `percentile` only.',
      }),
    ),
    percentile: Type.Optional(
      Type.Number({
        minimum: 50,
        maximum: 99.9,
        description:
          'Instead of a fixed time: that which so many of a hundred answers of the model did not exceed lately, streams and whole answers apart, as each worker measures. The fixed times hold until 50 are known.',
      }),
    ),
    min_ms: int(1, 3_600_000, 50, 'The least that a percentile can come to.'),
    max_ms: int(1, 3_600_000, 30_000, 'The most that a percentile can come to.'),
  },
  {
    ...closed,
    description: 'Two engines race for the first token, or a whole answer, and the slower is told to stop.',
  },
)

export const Model = Type.Object(
  {
    name: name('Name that clients ask for.'),
    targets: Type.Array(Target, { minItems: 1, maxItems: 256, description: 'The engines that serve the model.' }),
    fallbacks: strings(
      16,
      'Models to try when no target can answer. The one that answers is billed, at its own price.',
    ),
    strategy: choice(
      [
        'least_loaded',
        'weighted',
        'lowest_latency',
        'cheapest',
        'prefix_affinity',
        'session_affinity',
        'tenant_affinity',
      ],
      'least_loaded',
      'How a target is chosen. Affinity keeps a conversation, session or tenant at one engine.',
    ),
    affinity_margin: Type.Number({
      minimum: 1,
      maximum: 100,
      default: 1.25,
      description: 'Load over the mean at which affinity yields.',
    }),
    queue: Queue,
    budgets: Type.Array(Budget, {
      default: [],
      maxItems: 8,
      description: 'What all tenants together may spend on the model.',
    }),
    limits: Limits,
    ceiling_tokens: int(
      1,
      10_000_000,
      4_096,
      'Completion tokens that are held, and written into a request that names none, where a budget or a token limit applies; fewer where a token limit allows only fewer in a whole minute.',
    ),
    price: Type.Optional(Price),
    price_changes: Type.Array(PriceChange, {
      default: [],
      maxItems: 64,
      description: 'Prices that follow `price`, oldest first. A call has the price of the time at which it began.',
    }),
    tokenizer: choice(
      ['o200k_base', 'cl100k_base'],
      'o200k_base',
      'Encoding by which tokens are counted where the engine gives no usage: the client left, the engine broke off or never tells. Such a row’s usage is `estimated`.',
    ),
    free: Type.Boolean({
      default: false,
      description: 'The model costs nothing, on purpose. Without this a missing price is a fault.',
    }),
    rewrite_model: Type.Boolean({
      default: false,
      description: 'Show the asked-for name in the answer instead of the engine’s.',
    }),
    timeouts: Type.Optional(ModelTimeouts),
    hedge: Type.Optional(Hedge),
  },
  closed,
)
