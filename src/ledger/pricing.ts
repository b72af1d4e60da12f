import { roundToNanodollars } from '../base/money.ts'
import type { PriceRow } from './tables.ts'

/**
 * What a price depends on. `cached_tokens` and `audio_input_tokens` are separate parts of `prompt_tokens`,
 * `reasoning_tokens` and `audio_output_tokens` of `completion_tokens`.
 */
export type Usage = {
  readonly prompt_tokens: number
  readonly cached_tokens: number
  readonly completion_tokens: number
  readonly reasoning_tokens: number
  readonly audio_input_tokens?: number
  readonly audio_output_tokens?: number
  /** Pictures in the prompt, beside its tokens. */
  readonly images?: number
}

/** A version of a price, wherever it is logged. */
export type PriceVersion = Omit<PriceRow, 'log_index'>

/** A price without its place in the list of versions. */
export type Price = Omit<PriceVersion, 'model' | 'version' | 'valid_from_ms'>

/**
 * What a call costs, in nanodollars: each token has one price, and the sum is rounded once, half up. Parts beyond the
 * whole that they are of are not counted: cached before audio, reasoning before audio. Requires whole counts of at least 0.
 */
export const charge = (price: Price, usage: Usage): bigint => {
  if (price.free) return 0n
  const cached = Math.min(usage.cached_tokens, usage.prompt_tokens)
  const reasoning = Math.min(usage.reasoning_tokens, usage.completion_tokens)
  const heard = Math.min(usage.audio_input_tokens ?? 0, usage.prompt_tokens - cached)
  const spoken = Math.min(usage.audio_output_tokens ?? 0, usage.completion_tokens - reasoning)
  const { input_picodollars: input, output_picodollars: output } = price
  const picodollars =
    BigInt(usage.prompt_tokens - cached - heard) * input +
    BigInt(cached) * (price.cached_input_picodollars ?? input) +
    BigInt(heard) * (price.audio_input_picodollars ?? input) +
    BigInt(usage.completion_tokens - reasoning - spoken) * output +
    BigInt(reasoning) * (price.reasoning_picodollars ?? output) +
    BigInt(spoken) * (price.audio_output_picodollars ?? output)
  const pictures = BigInt(usage.images ?? 0) * price.image_nanodollars
  return roundToNanodollars(picodollars) + price.request_nanodollars + pictures
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
