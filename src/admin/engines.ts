import { Type } from '@sinclair/typebox'
import type { Config, ModelConfig } from '../config/schema.ts'
import { engineViews, workerViews } from './machine.ts'
import { type AdminRoute, adminRoute, listOf, PAGE, pageOf } from './route.ts'

const PageQuery = Type.Object(PAGE, { additionalProperties: false })

/** The machine and what it serves, as the shared table and the configuration tell it. */
export const ENGINE_ROUTES: readonly AdminRoute[] = [
  adminRoute({
    method: 'GET',
    path: '/admin/engines',
    tag: 'machine',
    summary: 'Engines and how they do',
    description: 'Counts are of all workers. `cooling_ms` is the time until an engine that failed is tried again.',
    query: PageQuery,
    example: listOf({
      name: 'vllm-a',
      dialect: 'openai',
      capacity: 256,
      in_flight: 12,
      health: 'healthy',
      cooling_ms: 0,
      failures_in_a_row: 0,
      answered: 10_412,
      failed: 3,
      latency_ms: 84.2,
      tokens_in_flight: 0,
      waiting: null,
      cache_usage: null,
      healthy_at: null,
    }),
    run: ({ query }, { table, catalogue, now }) => ({
      json: pageOf(engineViews(table, catalogue().config, now()), ({ name }) => name, query),
    }),
  }),
  adminRoute({
    method: 'GET',
    path: '/admin/workers',
    tag: 'machine',
    summary: 'Worker processes and how they do',
    example: listOf({
      worker: 0,
      pid: 4_021,
      incarnation: 1,
      state: 'live',
      live: true,
      in_flight: 12,
      open_streams: 9,
      journal_full: false,
      heartbeat_age_ms: 120,
      loop_lag_ms: 0.4,
      rss_bytes: 98_000_000,
    }),
    run: (_asked, { table, now }) => ({ json: { data: workerViews(table, now()), next_cursor: null } }),
  }),
  adminRoute({
    method: 'GET',
    path: '/admin/models',
    tag: 'machine',
    summary: 'Models on offer, their engines and prices',
    description: 'Prices are USD per million tokens.',
    query: PageQuery,
    example: listOf({
      name: 'llama-3.1-8b',
      targets: [{ engine: 'vllm-a', model: 'meta-llama/Llama-3.1-8B-Instruct', weight: 1 }],
      fallbacks: ['mistral-7b'],
      free: false,
      price: { input: '0.20', cached_input: '0.02', output: '0.60' },
      healthy_engines: 1,
    }),
    run: ({ query }, { table, catalogue, now }) => {
      const { config } = catalogue()
      const healthy = new Set(
        engineViews(table, config, now())
          .filter(({ health }) => health === 'healthy')
          .map(({ name }) => name),
      )
      return { json: pageOf(modelViews(config, healthy), ({ name }) => name, query) }
    },
  }),
]

const modelViews = (config: Config, healthy: ReadonlySet<string>) =>
  config.models.map((model: ModelConfig) => ({
    name: model.name,
    targets: model.targets.map((target) => ({ ...target, model: target.model ?? model.name })),
    fallbacks: model.fallbacks,
    free: model.free,
    price: model.price ?? null,
    price_changes: model.price_changes,
    healthy_engines: new Set(model.targets.map(({ engine }) => engine).filter((engine) => healthy.has(engine))).size,
  }))
