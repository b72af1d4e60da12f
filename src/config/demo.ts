import type { Config } from './schema.ts'

/** The models that are served while nothing is configured. */
export const demo_models: ReadonlySet<string> = new Set(['demo', 'demo-embed'])

/** The tenant to whom the demo key belongs. */
export const demo_tenant = 'demo'

/**
 * A configuration without engines and models, completed by the engine `demo` at `demo_url`, the models `demo` and
 * `demo-embed`, and the tenant `demo` if none has that name. Any other configuration is returned as it is.
 */
export const withDemo = (config: Config, demo_url: string): Config => {
  if (config.engines.length > 0 || config.models.length > 0) return config
  const model = {
    budgets: [],
    limits: {},
    ceiling_tokens: 4_096,
    fallbacks: [],
    price_changes: [],
    strategy: 'least_loaded' as const,
    affinity_margin: 1.25,
    queue: { size: 1_024, wait_ms: 30_000 },
    tokenizer: 'o200k_base' as const,
    free: false,
    rewrite_model: false,
    targets: [{ engine: 'demo', weight: 1 }],
  }
  const has_tenant = config.tenants.some((tenant) => tenant.name === demo_tenant)
  return {
    ...config,
    engines: [
      {
        name: 'demo',
        url: demo_url,
        dialect: 'openai',
        // The demo engine answers out of memory: the gateway's own bounds are the ones to meet.
        capacity: 100_000,
        can: ['continuous_usage'],
        on_disconnect: 'cancel',
        idle_ms: 4_000,
        probe_ms: 2_000,
        scrape_ms: 1_000,
      },
    ],
    models: [
      { ...model, name: 'demo', price: { input: '0.20', cached_input: '0.02', output: '0.60' } },
      { ...model, name: 'demo-embed', price: { input: '0.02', output: '0' } },
    ],
    tenants: has_tenant ? config.tenants : [...config.tenants, { name: demo_tenant, budgets: [], limits: {} }],
  }
}
