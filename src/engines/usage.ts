/** Tokens of a call as its engine counted them, each token once. */
export type Usage = {
  /** All of the prompt, what came from or went into a cache included. */
  readonly prompt_tokens: number
  /** Of these, read from a cache. */
  readonly cached_tokens: number
  /** Of these, written to a cache. */
  readonly cache_write_tokens: number
  /** All that was generated, reasoning included. */
  readonly completion_tokens: number
  /** Of these, reasoning. */
  readonly reasoning_tokens: number
  /** Sound: of the prompt that did not come from a cache, and of what was generated beside reasoning. */
  readonly audio_input_tokens: number
  readonly audio_output_tokens: number
  /** True if a figure contradicted another or was no count, and was corrected downwards or left out. */
  readonly doubtful: boolean
}

/** More than any call can have: beyond it a figure is noise. */
const TOKENS_MAX = 1_000_000_000

/**
 * Normalises a `usage` object of any known shape; undefined if it holds no sound count of prompt or input tokens, so
 * that the caller estimates instead.
 *
 * OpenAI (chat and responses): prompt tokens include cached ones, completion tokens include reasoning. Where the total
 * says that reasoning was left out of the completion, it is added. Anthropic: input tokens exclude what is read from
 * and written to the cache; they are added.
 */
export const readUsage = (value: unknown): Usage | undefined => {
  if (!isObject(value)) return undefined
  const input_details = objectOf(value['prompt_tokens_details'] ?? value['input_tokens_details'])
  const output_details = objectOf(value['completion_tokens_details'] ?? value['output_tokens_details'])
  const input = countOf(value['prompt_tokens'] ?? value['input_tokens'])
  const output = countOf(value['completion_tokens'] ?? value['output_tokens'] ?? 0)
  if (input === undefined || output === undefined) return undefined

  const cached = countOf(
    input_details['cached_tokens'] ??
      value['cache_read_input_tokens'] ??
      value['prompt_cache_hit_tokens'] ??
      value['cached_tokens'] ??
      0,
  )
  const written = countOf(value['cache_creation_input_tokens'] ?? 0)
  const reasoning = countOf(output_details['reasoning_tokens'] ?? value['reasoning_tokens'] ?? 0)
  // With `prompt_tokens` or details beside them, Anthropic's fields are a translation and already counted.
  const is_anthropic =
    (value['prompt_tokens'] ?? value['input_tokens_details']) == null &&
    ('cache_read_input_tokens' in value || 'cache_creation_input_tokens' in value)
  const prompt = input + (is_anthropic ? (cached ?? 0) + (written ?? 0) : 0)
  const left_out = reasoning !== undefined && reasoning > 0 && value['total_tokens'] === input + output + reasoning
  const completion = output + (left_out ? reasoning : 0)

  const cached_tokens = Math.min(cached ?? 0, prompt)
  const cache_write_tokens = Math.min(written ?? 0, prompt - cached_tokens)
  const reasoning_tokens = Math.min(reasoning ?? 0, completion)
  const heard = countOf(input_details['audio_tokens'] ?? 0)
  const spoken = countOf(output_details['audio_tokens'] ?? 0)
  const audio_input_tokens = Math.min(heard ?? 0, prompt - cached_tokens)
  const audio_output_tokens = Math.min(spoken ?? 0, completion - reasoning_tokens)
  const doubtful = cached !== cached_tokens || written !== cache_write_tokens || reasoning !== reasoning_tokens
  return {
    prompt_tokens: prompt,
    cached_tokens,
    cache_write_tokens,
    completion_tokens: completion,
    reasoning_tokens,
    audio_input_tokens,
    audio_output_tokens,
    doubtful,
  }
}

/** A count of tokens, or undefined for what is none. */
const countOf = (value: unknown): number | undefined =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 && value <= TOKENS_MAX ? value + 0 : undefined

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

const objectOf = (value: unknown): Readonly<Record<string, unknown>> => (isObject(value) ? value : {})
