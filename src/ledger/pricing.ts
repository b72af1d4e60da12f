import { roundToNanodollars } from '../base/money.ts'
import type { PriceRow } from './tables.ts'

/** What a price depends on. `reasoning_tokens` are part of `completion_tokens`, `cached_tokens` of `prompt_tokens`. */
export type Usage = {
  readonly prompt_tokens: number
  readonly cached_tokens: number
  readonly completion_tokens: number
  readonly reasoning_tokens: number
}

/** A version of a price, wherever it is logged. */
export type PriceVersion = Omit<PriceRow, 'log_index'>

/** A price without its place in the list of versions. */
export type Price = Omit<PriceVersion, 'model' | 'version' | 'valid_from_ms'>

/**
 * What a call costs, in nanodollars: each token has one price, and the sum is rounded once, half up. Cached tokens
 * beyond the prompt, and reasoning tokens beyond the completion, are not counted. Requires whole counts of at least 0.
 */
export const charge = (price: Price, usage: Usage): bigint => {
  if (price.free) return 0n
  const cached = Math.min(usage.cached_tokens, usage.prompt_tokens)
  const reasoning = Math.min(usage.reasoning_tokens, usage.completion_tokens)
  const picodollars =
    BigInt(usage.prompt_tokens - cached) * price.input_picodollars +
    BigInt(cached) * (price.cached_input_picodollars ?? price.input_picodollars) +
    BigInt(usage.completion_tokens - reasoning) * price.output_picodollars +
    BigInt(reasoning) * (price.reasoning_picodollars ?? price.output_picodollars)
  return roundToNanodollars(picodollars) + price.request_nanodollars
}

/** All prices, in memory. Build it with {@link priceList}. */
export type PriceList = {
  /** The price of a version; undefined if there is none. */
  version(model: string, version: number): PriceVersion | undefined
  /** The price in force at a time: of those valid by then the latest, of equals the higher version; undefined if none. */
  at(model: string, at_ms: number): PriceVersion | undefined
}

/** Arranges price rows, in any order, for look-up. */
export const priceList = (rows: readonly PriceVersion[]): PriceList => {
  const by_model = Map.groupBy(
    rows.toSorted((one, other) => one.valid_from_ms - other.valid_from_ms || one.version - other.version),
    (row) => row.model,
  )
  return {
    version: (model, version) => by_model.get(model)?.find((row) => row.version === version),
    at: (model, at_ms) => by_model.get(model)?.findLast((row) => row.valid_from_ms <= at_ms),
  }
}
