import type { LivePrice, Model } from '../balance/catalogue.ts'
import { roundToNanodollars } from '../base/money.ts'
import type { Call } from './call.ts'
import type { Tokens } from './estimate.ts'

/** The model whose price is charged: the one that the call's engine serves, which may be a fallback of the one asked for. */
export const servingModel = ({ model, target, catalogue }: Call): Model | undefined =>
  target === undefined || target.serves === model?.name ? model : catalogue.models.get(target.serves)

/** What tokens cost in nanodollars: the ledger's rule (`ledger/pricing.ts`), with the price that the hot path has. */
export const chargeNanodollars = (price: LivePrice, tokens: Tokens, images: number): bigint => {
  const cached = Math.min(tokens.cached_tokens, tokens.prompt_tokens)
  const reasoning = Math.min(tokens.reasoning_tokens, tokens.completion_tokens)
  const heard = Math.min(tokens.audio_input_tokens, tokens.prompt_tokens - cached)
  const spoken = Math.min(tokens.audio_output_tokens, tokens.completion_tokens - reasoning)
  const parts = [
    [tokens.prompt_tokens - cached - heard, price.input],
    [cached, price.cached_input],
    [heard, price.audio_input],
    [tokens.completion_tokens - reasoning - spoken, price.output],
    [reasoning, price.reasoning],
    [spoken, price.audio_output],
  ] as const
  const beside = besideTokens(price, images)
  let picodollars = 0
  for (const [count, each] of parts) picodollars += count * each
  if (picodollars < Number.MAX_SAFE_INTEGER) return BigInt(Math.floor((picodollars + 500) / 1000)) + beside
  let exact = 0n
  for (const [count, each] of parts) exact += BigInt(count) * BigInt(each)
  return roundToNanodollars(exact) + beside
}

/** The most that a call can cost, whatever its tokens turn out to be: each at the dearest price it can have. */
export const worstNanodollars = (
  price: LivePrice,
  prompt_tokens: number,
  completion_tokens: number,
  images: number,
): bigint => {
  const input = Math.max(price.input, price.cached_input, price.audio_input)
  const output = Math.max(price.output, price.reasoning, price.audio_output)
  const picodollars = BigInt(prompt_tokens) * BigInt(input) + BigInt(completion_tokens) * BigInt(output)
  return roundToNanodollars(picodollars) + besideTokens(price, images)
}

const besideTokens = ({ request_nanodollars, image_nanodollars }: LivePrice, images: number): bigint =>
  images === 0 ? BigInt(request_nanodollars) : BigInt(request_nanodollars) + BigInt(images) * BigInt(image_nanodollars)
