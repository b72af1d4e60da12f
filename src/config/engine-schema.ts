import { Type } from '@sinclair/typebox'
import { choice, choiceOf, closed, int, name } from './kinds.ts'

/** An engine, and what it is trusted with. */
export const Engine = Type.Object(
  {
    name: name('Name of the engine.'),
    url: Type.String({
      pattern: '^https?://',
      maxLength: 2_048,
      title: 'an address',
      'x-allowed': 'http://… or https://…, without user name, password and #',
      description: 'Base address, with or without /v1, a path prefix or a query.',
    }),
    ca: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 262_144,
        'x-allowed': 'certificates in PEM',
        'x-lines': true,
        description:
          'Certificates in PEM, one after the other, that the certificate of an https:// engine is checked by, instead of the machine’s own.',
      }),
    ),
    dialect: choice(['openai'], 'openai', 'How the engine speaks. No other dialect is spoken yet.'),
    key: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 8_192,
        writeOnly: true,
        'x-allowed': 'printable ASCII, 1 to 8192 characters',
        description: 'Credential sent to the engine. Secret.',
      }),
    ),
    capacity: int(1, 100_000, 256, 'Simultaneous calls the engine takes.'),
    can: Type.Array(choiceOf(['prefix_continuation', 'continuous_usage', 'no_stream_options']), {
      default: [],
      maxItems: 3,
      description:
        'What the engine can do, or not, beyond the dialect. `continuous_usage`: it heeds `stream_options.continuous_usage_stats` (vLLM, SGLang); it is asked for usage in every chunk, so that a stream that breaks off is billed exactly, and a client that did not ask for that is shown the last chunk’s alone.',
    }),
    on_disconnect: choice(['cancel', 'drain'], 'cancel', 'What happens at the engine when the client leaves.'),
    idle_ms: int(
      0,
      3_600_000,
      4_000,
      'Age at which an idle connection to the engine is closed; keep it below the engine’s own.',
    ),
    probe_ms: int(
      0,
      3_600_000,
      2_000,
      'How often the engine is asked whether it is there (GET /health or /v1/models, never a model); 0 is never.',
    ),
    scrape_ms: int(
      0,
      3_600_000,
      1_000,
      'How often the engine’s /metrics are read for its queue and cache; 0 is never.',
    ),
  },
  closed,
)
