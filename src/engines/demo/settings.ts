import { nowMs, type Clock } from '../../base/clock.ts'

export type DemoModel = { readonly name: string; readonly kind: 'chat' | 'embedding' }

export type DemoSettings = {
  /** 0 takes a free port. */
  readonly port: number
  readonly host: string
  /** Time to first token, once the call has a slot. */
  readonly ttft_ms: number
  /** Pace of each choice after its first token; 0 sends everything at once. */
  readonly tokens_per_s: number
  /** Adds time to the first token for each prompt token that the prefix cache does not hold; 0 adds none. */
  readonly prefill_tokens_per_s: number
  /** Calls that run at once in a model; the rest wait. */
  readonly capacity: number
  /** Calls that may wait in a model; one more is refused with 503. */
  readonly queue_max: number
  /** Prompt and answer together. */
  readonly context_tokens: number
  /** Tokens that the simulated key-value cache holds: scale of its usage, and size of the prefix cache. */
  readonly kv_cache_tokens: number
  readonly models: readonly DemoModel[]
  /** For `created`; milliseconds since the epoch. */
  readonly now: Clock
}

/** What a setting is when nobody says otherwise. */
export const demo_defaults: DemoSettings = {
  port: 0,
  host: '127.0.0.1',
  ttft_ms: 30,
  tokens_per_s: 200,
  prefill_tokens_per_s: 0,
  capacity: 256,
  queue_max: 16_384,
  context_tokens: 32_768,
  kv_cache_tokens: 262_144,
  models: [
    { name: 'demo', kind: 'chat' },
    { name: 'demo-embed', kind: 'embedding' },
  ],
  now: nowMs,
}

/** Bounds that are not settings. */
export const demo_limits = {
  body_bytes_max: 64 * 1024 * 1024,
  choices_max: 128,
  prompts_max: 1024,
  stops_max: 16,
  inputs_max: 2048,
  dimensions: 384,
  dimensions_max: 4096,
  schema_depth_max: 8,
} as const

/** What the headers of one request change: for tests and benchmarks, which must not restart the engine for each case. */
export type DemoOrders = {
  readonly ttft_ms: number
  readonly tokens_per_s: number
  /** Answers with this status and an error body instead of working. */
  readonly status: number | undefined
  /** Breaks the connection of a streamed answer after so many tokens. */
  readonly cut_after_tokens: number | undefined
}

/**
 * Reads `x-demo-ttft-ms`, `x-demo-tokens-per-s`, `x-demo-status` and `x-demo-cut-after-tokens`. What is not a number of
 * at least 0 is ignored.
 */
export const ordersOf = (headers: Headers, settings: DemoSettings): DemoOrders => ({
  ttft_ms: numberIn(headers, 'x-demo-ttft-ms') ?? settings.ttft_ms,
  tokens_per_s: numberIn(headers, 'x-demo-tokens-per-s') ?? settings.tokens_per_s,
  status: statusIn(headers),
  cut_after_tokens: numberIn(headers, 'x-demo-cut-after-tokens'),
})

const numberIn = (headers: Headers, name: string): number | undefined => {
  const text = headers.get(name)
  if (text === null || text === '') return undefined
  const value = Number(text)
  return Number.isFinite(value) && value >= 0 ? value : undefined
}

const statusIn = (headers: Headers): number | undefined => {
  const status = numberIn(headers, 'x-demo-status')
  return status !== undefined && Number.isInteger(status) && status >= 400 && status <= 599 ? status : undefined
}
