import { desc, eq } from 'drizzle-orm'
import { nanodollars, picodollarsPerToken } from '../base/money.ts'
import type { ModelConfig } from '../config/schema.ts'
import type { Store } from './database.ts'
import type { LedgerLog } from './ledger-log.ts'
import { priceLeaf } from './leaves.ts'
import type { Price } from './pricing.ts'
import { prices, type PriceRow } from './tables.ts'

/**
 * The price of a configured model; undefined if it has none and is not free. Requires a checked configuration: a price
 * that is no decimal throws.
 */
export const configuredPrice = ({
  name,
  price,
  free,
}: Pick<ModelConfig, 'name' | 'price' | 'free'>): Price | undefined => {
  if (free) return FREE
  if (price === undefined) return undefined
  const token = (usd: string): bigint => picodollarsPerToken(usd) ?? refuse(name, usd)
  return {
    input_picodollars: token(price.input),
    cached_input_picodollars: price.cached_input === undefined ? null : token(price.cached_input),
    output_picodollars: token(price.output),
    reasoning_picodollars: price.reasoning === undefined ? null : token(price.reasoning),
    request_nanodollars: price.request === undefined ? 0n : (nanodollars(price.request) ?? refuse(name, price.request)),
    free: false,
  }
}

/**
 * Makes the configured prices the ones in force from now on: a model whose latest version differs gets a new one, all
 * others keep theirs, and versions are never changed or removed. Only the writer of `ledger.db` may call it, before
 * the workers learn of the configuration. Returns all versions of all models. With a log every new version becomes a
 * leaf; throws a `LogTrouble` if it cannot be written, and then nothing is.
 */
export const syncPrices = (
  { drizzle }: Store,
  models: readonly Pick<ModelConfig, 'name' | 'price' | 'free'>[],
  now_ms: number,
  log?: LedgerLog,
): PriceRow[] => {
  const rows = drizzle.transaction(
    (tx) => {
      log?.begin()
      for (const model of models) {
        const price = configuredPrice(model)
        if (price === undefined) continue
        const last = tx.select().from(prices).where(eq(prices.model, model.name)).orderBy(desc(prices.version)).get()
        if (last !== undefined && isSame(last, price)) continue
        const version = (last?.version ?? 0) + 1
        const valid_from_ms = Math.max(Math.floor(now_ms), last?.valid_from_ms ?? 0)
        const row: PriceRow = { model: model.name, version, valid_from_ms, ...price, log_index: log?.next() ?? null }
        log?.append([priceLeaf(row)])
        tx.insert(prices).values(row).run()
      }
      return tx.select().from(prices).all()
    },
    { behavior: 'immediate' },
  )
  log?.committed()
  return rows
}

/** All versions of all models, for `priceList`. */
export const readPrices = ({ drizzle }: Store): PriceRow[] => drizzle.select().from(prices).all()

const FREE: Price = {
  input_picodollars: 0n,
  cached_input_picodollars: null,
  output_picodollars: 0n,
  reasoning_picodollars: null,
  request_nanodollars: 0n,
  free: true,
}

const isSame = (one: Price, other: Price): boolean =>
  (Object.keys(FREE) as (keyof Price)[]).every((name) => one[name] === other[name])

const refuse = (model: string, usd: string): never => {
  throw new Error(`price of ${model}: ${JSON.stringify(usd)} is no decimal amount in USD`)
}
