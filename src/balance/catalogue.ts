import { nanodollars, picodollarsPerToken } from '../base/money.ts'
import { type DatedPrice, datedPrices, inForce } from '../config/prices.ts'
import type { Config, EngineConfig, ModelConfig, TargetConfig, TenantConfig, TimeoutsConfig } from '../config/schema.ts'
import type { Transport } from '../engines/transport.ts'
import { type LiveBudget, liveBudgets } from '../quota/live-budget.ts'
import { HEADER } from '../table/layout.ts'
import { type Subject, subjectOf, type Table } from '../table/table.ts'
import { hashOf } from './rendezvous.ts'

/** A configuration made ready for the hot path: names resolved, slots claimed. Never changed; a reload makes a new one. */
export type Catalogue = {
  readonly generation: number
  readonly config: Config
  readonly engines: ReadonlyMap<string, Engine>
  readonly models: ReadonlyMap<string, Model>
  readonly tenants: ReadonlyMap<string, Tenant>
}

export type Engine = {
  readonly name: string
  readonly config: EngineConfig
  readonly subject: Subject
  readonly transport: Transport
}

/** An engine that serves a model, under the engine's own name for it. */
export type Target = {
  readonly engine: Engine
  readonly model: string
  readonly weight: number
  /** A stable number of engine and model, 32 bits. */
  readonly id: number
  /** Prompt and answer that it takes; undefined if nobody said. */
  readonly context_tokens: number | undefined
  /** What it costs the house, picodollars a token; undefined for a free model without a cost. */
  readonly cost: Pick<LivePrice, 'input' | 'output'> | undefined
  /** The model of the configuration that it serves: another than was asked for when it is a fallback's. */
  readonly serves: string
}

export type Model = {
  readonly name: string
  /** Of its queue and its retry budget. */
  readonly subject: Subject
  /** Where its limits are counted: apart, as the queue has other uses for the same cells. Undefined without limits. */
  readonly limits_subject: Subject | undefined
  readonly config: ModelConfig
  readonly targets: readonly Target[]
  /** Names of the models to go on with, in order. */
  readonly fallbacks: readonly string[]
  readonly timeouts: TimeoutsConfig
  readonly created_s: number
  /** For the header `x-weir-cost-usd` and holds; the ledger prices anew. See {@link priceAt}. Empty for a free model. */
  readonly prices: readonly LivePrice[]
  readonly budgets: readonly LiveBudget[]
}

/** Picodollars a token, and nanodollars a call, as numbers: exact, as they are far below 2^53. */
export type LivePrice = {
  readonly from_ms: number
  readonly input: number
  readonly cached_input: number
  readonly audio_input: number
  readonly output: number
  readonly reasoning: number
  readonly audio_output: number
  readonly request_nanodollars: number
  readonly image_nanodollars: number
}

/** The price of a call that began at a time; undefined for a free model. */
export const priceAt = ({ prices }: Model, at_ms: number): LivePrice | undefined => inForce(prices, at_ms)

/** Models looked at for one call, its own included: fallbacks may have fallbacks. */
const MODELS_MAX = 16

/** The models that may answer a call: its own and the fallbacks, each once, depth first. */
export const withFallbacks = (asked: Model, { models }: Catalogue): Model[] => {
  const found: Model[] = []
  const visit = (model: Model | undefined): void => {
    if (model === undefined || found.includes(model) || found.length >= MODELS_MAX) return
    found.push(model)
    for (const name of model.fallbacks) visit(models.get(name))
  }
  visit(asked)
  return found
}

export type Tenant = {
  readonly name: string
  readonly config: TenantConfig
  readonly subject: Subject
  readonly budgets: readonly LiveBudget[]
}

/** Opens a transport for an engine; the worker decides which. */
export type OpenTransport = (engine: EngineConfig) => Transport

/** Builds the catalogue; throws if the shared table cannot hold it. Transports of unchanged engines are taken over from `before`. */
export const buildCatalogue = (
  config: Config,
  generation: number,
  table: Table,
  openTransport: OpenTransport,
  now_ms: number,
  before?: Catalogue,
): Catalogue => {
  const engines = new Map<string, Engine>()
  for (const engine of config.engines) {
    const old = before?.engines.get(engine.name)
    const { url, idle_ms, ca } = engine
    const kept = old && old.config.url === url && old.config.idle_ms === idle_ms && old.config.ca === ca
    const subject = claim(table, 'engine', engine.name)
    engines.set(engine.name, {
      name: engine.name,
      config: engine,
      subject,
      transport: kept ? old.transport : openTransport(engine),
    })
  }
  const models = new Map(config.models.map((model) => [model.name, buildModel(model, config, engines, table, now_ms)]))
  const tenants = new Map(config.tenants.map((tenant) => [tenant.name, buildTenant(tenant, table)]))
  return { generation, config, engines, models, tenants }
}

/** A tenant that no configuration names, with no limits of its own. */
export const buildTenant = (config: TenantConfig, table: Table): Tenant => ({
  name: config.name,
  config,
  subject: claim(table, 'tenant', config.name),
  budgets: liveBudgets(`tenant:${config.name}`, config.budgets),
})

const buildModel = (
  config: ModelConfig,
  house: Config,
  engines: Map<string, Engine>,
  table: Table,
  now_ms: number,
): Model => {
  const prices = datedPrices(config).map(livePrice)
  const price = inForce(prices, now_ms)
  return {
    name: config.name,
    subject: claim(table, 'model', config.name),
    limits_subject: Object.keys(config.limits).length > 0 ? claim(table, 'model_limits', config.name) : undefined,
    config,
    targets: config.targets.map((target) => buildTarget(target, config.name, engines, price)),
    fallbacks: config.fallbacks,
    timeouts: { ...house.timeouts, ...config.timeouts },
    // The same in every worker, and after a reload.
    created_s: Math.floor(table.f64[HEADER.started_at_ms]! / 1000),
    prices,
    budgets: liveBudgets(`model:${config.name}`, config.budgets),
  }
}

const livePrice = ({ from_ms, price }: DatedPrice): LivePrice => ({
  from_ms,
  input: perToken(price.input),
  cached_input: perToken(price.cached_input ?? price.input),
  audio_input: perToken(price.audio_input ?? price.input),
  output: perToken(price.output),
  reasoning: perToken(price.reasoning ?? price.output),
  audio_output: perToken(price.audio_output ?? price.output),
  request_nanodollars: Number(nanodollars(price.request ?? '0') ?? 0n),
  image_nanodollars: Number(nanodollars(price.image ?? '0') ?? 0n),
})

const buildTarget = (
  target: TargetConfig,
  serves: string,
  engines: Map<string, Engine>,
  price: LivePrice | undefined,
): Target => {
  const model = target.model ?? serves
  return {
    engine: engines.get(target.engine)!,
    model,
    weight: target.weight,
    id: hashOf(`${target.engine}\n${model}`),
    context_tokens: target.context_tokens,
    cost: target.cost ? { input: perToken(target.cost.input), output: perToken(target.cost.output) } : price,
    serves,
  }
}

const perToken = (usd_per_million: string): number => Number(picodollarsPerToken(usd_per_million) ?? 0n)

const claim = (table: Table, kind: string, name: string): Subject => {
  const subject = subjectOf(table, kind, name)
  if (subject === undefined) throw new Error(`the shared table is full: server.subjects_max is ${table.subjects_max}`)
  return subject
}
