import { Type } from '@sinclair/typebox'
import { closed, instant, usd, usdPerMillion } from './kinds.ts'

/** What a model costs. */

export const Price = Type.Object(
  {
    input: usdPerMillion('USD per million prompt tokens.'),
    cached_input: Type.Optional(usdPerMillion('USD per million prompt tokens from the cache; `input` if absent.')),
    output: usdPerMillion('USD per million completion tokens.'),
    reasoning: Type.Optional(usdPerMillion('USD per million reasoning tokens; `output` if absent.')),
    audio_input: Type.Optional(usdPerMillion('USD per million audio tokens of the prompt; `input` if absent.')),
    audio_output: Type.Optional(usdPerMillion('USD per million audio tokens of the answer; `output` if absent.')),
    request: Type.Optional(usd('USD for each call, beside its tokens.')),
    image: Type.Optional(
      usd(
        'USD for each picture in the prompt, beside its tokens: a part of a message that is not text, and not by its type a sound, a video or a file.',
      ),
    ),
  },
  closed,
)

/** A price, and when it takes the place of the one before. */
export const PriceChange = Type.Object(
  { from: instant('Calls that begin at this time or later have this price.'), ...Price.properties },
  closed,
)
