import { nanodollars, picodollarsPerToken } from '../base/money.ts'
import { datedPrices } from '../config/prices.ts'
import type { ModelConfig, PriceConfig } from '../config/schema.ts'
import type { Store } from './database.ts'
import { leafCounter } from './leaf-numbers.ts'
import { type Price, priceList, type PriceVersion } from './pricing.ts'
import { prices, type PriceRow } from './tables.ts'

/** What of a configured model says its prices. */
export type PricedModel = Pick<ModelConfig, 'name' | 'price' | 'free'> & Partial<Pick<ModelConfig, 'price_changes'>>

/** A configured price and the time from which it is in force. */
export type ScheduledPrice = { readonly from_ms: number; readonly price: Price }

/**
 * The prices of a configured model, oldest first; empty if it has none and is not free. Requires a checked configuration:
 * a price that is no decimal throws.
 */
export const configuredPrices = (model: PricedModel): ScheduledPrice[] =>
  model.free
    ? [{ from_ms: 0, price: FREE }]
    : datedPrices(model).map(({ from_ms, price }) => ({ from_ms, price: priceOf(model.name, price) }))

const priceOf = (model: string, price: PriceConfig): Price => {
  const token = (usd: string): bigint => picodollarsPerToken(usd) ?? refuse(model, usd)
  const other = (usd: string | undefined): bigint | null => (usd === undefined ? null : token(usd))
  return {
    input_picodollars: token(price.input),
    cached_input_picodollars: other(price.cached_input),
    output_picodollars: token(price.output),
    reasoning_picodollars: other(price.reasoning),
    audio_input_picodollars: other(price.audio_input),
    audio_output_picodollars: other(price.audio_output),
    request_nanodollars:
      price.request === undefined ? 0n : (nanodollars(price.request) ?? refuse(model, price.request)),
    image_nanodollars: price.image === undefined ? 0n : (nanodollars(price.image) ?? refuse(model, price.image)),
    free: false,
  }
}

/**
 * Makes the configured prices the ones in force from now on, each from its own time: where the versions that are there
 * say something else at a time from now on, a new one is added. So a change that is already past is not made up for, a
 * planned one that is taken back is overruled at its time, and no version is ever changed or removed. Only the writer of
 * `ledger.db` may call it, before the workers learn of the configuration. Returns all versions of all models. Where
 * the ledger has a log every new version gets the number of its leaf.
 */
export const syncPrices = (
  { sqlite, drizzle }: Store,
  models: readonly PricedModel[],
  now_ms: number,
  log: 'logged' | 'no_log' = 'no_log',
): PriceRow[] => {
  const nextLeaf = log === 'logged' ? leafCounter(sqlite) : () => null
  return drizzle.transaction(
    (tx) => {
      const known = Map.groupBy(tx.select().from(prices).all(), ({ model }) => model)
      for (const model of models)
        for (const version of newVersions(model, known.get(model.name) ?? [], Math.floor(now_ms))) {
          const row: PriceRow = { ...version, log_index: nextLeaf() }
          tx.insert(prices).values(row).run()
        }
      return tx.select().from(prices).all()
    },
    { behavior: 'immediate' },
  )
}

/**
 * The versions to add so that from `now_ms` on the price at every time is the configured one. A model's first version
 * is valid from the start of its price, if that is past: there is nothing that it could contradict.
 */
export const newVersions = (model: PricedModel, known: readonly PriceVersion[], now_ms: number): PriceVersion[] => {
  const wanted = configuredPrices(model)
  if (wanted.length === 0) return []
  const all = [...known]
  const added: PriceVersion[] = []
  const times = new Set([
    now_ms,
    ...[...wanted.map(({ from_ms }) => from_ms), ...known.map(({ valid_from_ms }) => valid_from_ms)].filter(
      (at_ms) => at_ms > now_ms,
    ),
  ])
  for (const at_ms of [...times].toSorted((one, other) => one - other)) {
    const want = wanted.findLast(({ from_ms }) => from_ms <= at_ms)!
    const have = priceList(all).at(model.name, at_ms)
    if (have !== undefined && isSame(have, want.price)) continue
    const version = 1 + all.reduce((last, row) => Math.max(last, row.version), 0)
    const valid_from_ms = all.length === 0 && want.from_ms > 0 ? want.from_ms : at_ms
    const row = { model: model.name, version, valid_from_ms, ...want.price }
    all.push(row)
    added.push(row)
  }
  return added
}

/** All versions of all models, for `priceList`. */
export const readPrices = ({ drizzle }: Store): PriceRow[] => drizzle.select().from(prices).all()

const FREE: Price = {
  input_picodollars: 0n,
  cached_input_picodollars: null,
  output_picodollars: 0n,
  reasoning_picodollars: null,
  audio_input_picodollars: null,
  audio_output_picodollars: null,
  request_nanodollars: 0n,
  image_nanodollars: 0n,
  free: true,
}

const isSame = (one: Price, other: Price): boolean =>
  (Object.keys(FREE) as (keyof Price)[]).every((name) => one[name] === other[name])

const refuse = (model: string, usd: string): never => {
  throw new Error(`price of ${model}: ${JSON.stringify(usd)} is no decimal amount in USD`)
}
