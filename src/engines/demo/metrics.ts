import type { DemoModel, DemoSettings } from './settings.ts'
import { prefixCache, type PrefixCache } from './prefix-cache.ts'
import { scheduler, type Scheduler } from './scheduler.ts'

export const finish_reasons = ['stop', 'length', 'abort', 'error'] as const
export type FinishedReason = (typeof finish_reasons)[number]

/** A served model: its slots, its caches and what it counted. Every figure in `/metrics` and `stats()` comes from here. */
export type ModelState = DemoModel & {
  readonly slots: Scheduler
  readonly prefixes: PrefixCache
  /** Tokens of the calls that run now: what would fill the key-value cache. */
  held_tokens: number
  prompt_tokens: number
  generation_tokens: number
  prefix_queries: number
  prefix_hits: number
  readonly finished: Record<FinishedReason, number>
  readonly first_token_s: Histogram
  readonly between_tokens_s: Histogram
  readonly whole_s: Histogram
  readonly queue_s: Histogram
}

export type Histogram = { readonly bounds: readonly number[]; readonly counts: number[]; sum: number; count: number }

const FIRST_TOKEN_S = [
  0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
]
const BETWEEN_TOKENS_S = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80]
const WHOLE_S = [0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680]

const histogram = (bounds: readonly number[]): Histogram => ({
  bounds,
  counts: Array.from({ length: bounds.length + 1 }, () => 0),
  sum: 0,
  count: 0,
})

/** Counts a value, `times` times. */
export const observe = (histogram: Histogram, value: number, times = 1): void => {
  let at = 0
  while (at < histogram.bounds.length && value > histogram.bounds[at]!) at++
  histogram.counts[at]! += times
  histogram.sum += value * times
  histogram.count += times
}

export const modelState = (model: DemoModel, settings: DemoSettings): ModelState => ({
  ...model,
  slots: scheduler(settings.capacity, settings.queue_max),
  prefixes: prefixCache(Math.ceil(settings.kv_cache_tokens / 16)),
  held_tokens: 0,
  prompt_tokens: 0,
  generation_tokens: 0,
  prefix_queries: 0,
  prefix_hits: 0,
  finished: { stop: 0, length: 0, abort: 0, error: 0 },
  first_token_s: histogram(FIRST_TOKEN_S),
  between_tokens_s: histogram(BETWEEN_TOKENS_S),
  whole_s: histogram(WHOLE_S),
  queue_s: histogram(WHOLE_S),
})

type Row = readonly [name: string, type: 'gauge' | 'counter', help: string, value: (model: ModelState) => number]

const rows = (kv_cache_tokens: number): readonly Row[] => [
  ['vllm:num_requests_running', 'gauge', 'Calls that run.', (model) => model.slots.running],
  ['vllm:num_requests_waiting', 'gauge', 'Calls that wait for a slot.', (model) => model.slots.waiting],
  [
    'vllm:kv_cache_usage_perc',
    'gauge',
    'Share of the key-value cache that running calls fill, 0 to 1.',
    (model) => Math.min(1, model.held_tokens / kv_cache_tokens),
  ],
  ['vllm:prefix_cache_queries_total', 'counter', 'Prompt tokens looked up.', (model) => model.prefix_queries],
  ['vllm:prefix_cache_hits_total', 'counter', 'Prompt tokens found.', (model) => model.prefix_hits],
  ['vllm:num_preemptions_total', 'counter', 'Calls that lost their slot; always 0.', () => 0],
  ['vllm:prompt_tokens_total', 'counter', 'Prompt tokens of started calls.', (model) => model.prompt_tokens],
  ['vllm:generation_tokens_total', 'counter', 'Tokens generated.', (model) => model.generation_tokens],
]

const histograms = [
  ['vllm:time_to_first_token_seconds', 'From arrival to the first token.', 'first_token_s'],
  ['vllm:inter_token_latency_seconds', 'Between two tokens of an answer.', 'between_tokens_s'],
  ['vllm:e2e_request_latency_seconds', 'From arrival to the last token.', 'whole_s'],
  ['vllm:request_queue_time_seconds', 'From arrival to a slot.', 'queue_s'],
] as const

/** The models' figures as Prometheus text, under vLLM's names. */
export const renderMetrics = (models: readonly ModelState[], kv_cache_tokens: number): string => {
  const lines: string[] = []
  const labels = (model: ModelState) => `engine="0",model_name="${escaped(model.name)}"`
  for (const [name, type, help, value] of rows(kv_cache_tokens)) {
    lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`)
    for (const model of models) lines.push(`${name}{${labels(model)}} ${value(model)}`)
  }
  const success = 'vllm:request_success_total'
  lines.push(`# HELP ${success} Calls that ended, by reason.`, `# TYPE ${success} counter`)
  for (const model of models)
    for (const reason of finish_reasons)
      lines.push(`${success}{${labels(model)},finished_reason="${reason}"} ${model.finished[reason]}`)
  for (const [name, help, field] of histograms) {
    lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} histogram`)
    for (const model of models) lines.push(...histogramLines(name, labels(model), model[field]))
  }
  return `${lines.join('\n')}\n`
}

const histogramLines = (name: string, labels: string, { bounds, counts, sum, count }: Histogram): string[] => {
  let below = 0
  const buckets = bounds.map((bound, at) => `${name}_bucket{${labels},le="${bound}"} ${(below += counts[at]!)}`)
  return [
    ...buckets,
    `${name}_bucket{${labels},le="+Inf"} ${count}`,
    `${name}_sum{${labels}} ${sum}`,
    `${name}_count{${labels}} ${count}`,
  ]
}

const escaped = (label: string): string => label.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')
