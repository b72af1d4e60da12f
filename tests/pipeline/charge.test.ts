import { expect, test } from 'bun:test'
import type { LivePrice } from '../../src/balance/catalogue.ts'
import { charge, type Price } from '../../src/ledger/pricing.ts'
import { chargeNanodollars, worstNanodollars } from '../../src/pipeline/charge.ts'
import { forAll, type Roll } from '../kit/wait.ts'

/** The hot path's money is the ledger's money, and what is held is never less than what is charged. */

const priceFrom = (roll: Roll): LivePrice => {
  // Up to 600 USD a million tokens; a price of nothing and of odd picodollars among them.
  const each = () => (roll(8) === 0 ? 0 : roll(600_000_000))
  return {
    ...{ from_ms: 0, input: each(), cached_input: each(), audio_input: each(), output: each(), reasoning: each() },
    ...{ audio_output: each(), request_nanodollars: roll(1_000_000), image_nanodollars: roll(9_000_000) },
  }
}

const inLedger = (price: LivePrice): Price => ({
  input_picodollars: BigInt(price.input),
  cached_input_picodollars: BigInt(price.cached_input),
  audio_input_picodollars: BigInt(price.audio_input),
  output_picodollars: BigInt(price.output),
  reasoning_picodollars: BigInt(price.reasoning),
  audio_output_picodollars: BigInt(price.audio_output),
  request_nanodollars: BigInt(price.request_nanodollars),
  image_nanodollars: BigInt(price.image_nanodollars),
  free: false,
})

const tokensFrom = (roll: Roll) => {
  // Large ones leave the exact range of numbers.
  const most = roll(3) === 0 ? 1_000_000_000 : 5_000
  const [prompt_tokens, completion_tokens] = [roll(most), roll(most)]
  return {
    ...{ prompt_tokens, completion_tokens, cached_tokens: roll(prompt_tokens + 9) },
    ...{ reasoning_tokens: roll(completion_tokens + 9), audio_input_tokens: roll(prompt_tokens + 9) },
    audio_output_tokens: roll(completion_tokens + 9),
  }
}

test('seeded: charges equal the ledger’s to the nanodollar and never exceed the worst case', () => {
  forAll(2_000, (roll) => {
    const [price, tokens] = [priceFrom(roll), tokensFrom(roll)]
    const images = roll(2) === 0 ? 0 : roll(40)
    const charged = chargeNanodollars(price, tokens, images)
    expect(charged).toBe(charge(inLedger(price), { ...tokens, images }))
    expect(worstNanodollars(price, tokens.prompt_tokens, tokens.completion_tokens, images)).toBeGreaterThanOrEqual(
      charged,
    )
  })
})

test('rounds once, half up', () => {
  const zero = { from_ms: 0, input: 0, cached_input: 0, audio_input: 0, output: 0, reasoning: 0, audio_output: 0 }
  const none = { cached_tokens: 0, reasoning_tokens: 0, audio_input_tokens: 0, audio_output_tokens: 0 }
  const price = { ...zero, input: 499, output: 1, request_nanodollars: 0, image_nanodollars: 0 }
  expect(chargeNanodollars(price, { ...none, prompt_tokens: 1, completion_tokens: 0 }, 0)).toBe(0n)
  expect(chargeNanodollars(price, { ...none, prompt_tokens: 1, completion_tokens: 1 }, 0)).toBe(1n)
  expect(chargeNanodollars(price, { ...none, prompt_tokens: 3, completion_tokens: 2 }, 0)).toBe(1n)
})
