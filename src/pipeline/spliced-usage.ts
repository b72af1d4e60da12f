import type { Tokens } from './estimate.ts'
import { estimated } from './estimate.ts'
import { type Fields, fieldsOf } from './event-parts.ts'
import type { Way } from './splice-stream.ts'

/** What a client had when its answer went on elsewhere, and whether an engine had counted it. */
export type Standing = { readonly tokens: Tokens; readonly by_engine: boolean }

/**
 * The tokens of an answer that two engines gave: those that its client received, once each. A replay's own count is
 * that of the whole answer. After a prefix the second prompt holds the first text, which is taken out of it again.
 */
export const splicedUsage = (
  way: Way,
  before: Standing,
  own: Standing | undefined,
  counted: number,
  diverged: boolean,
): Standing => {
  const had = before.tokens
  if (diverged) return before
  if (way === 'replay') {
    if (own !== undefined && own.tokens.completion_tokens >= had.completion_tokens) return own
    return { ...before, tokens: { ...had, completion_tokens: Math.max(had.completion_tokens, counted) } }
  }
  if (own === undefined)
    return { tokens: { ...had, completion_tokens: had.completion_tokens + counted }, by_engine: false }
  const { tokens } = own
  const prompt_tokens = before.by_engine ? had.prompt_tokens : Math.max(0, tokens.prompt_tokens - had.completion_tokens)
  return {
    tokens: {
      ...estimated(prompt_tokens, had.completion_tokens + tokens.completion_tokens),
      cached_tokens: Math.min(tokens.cached_tokens, prompt_tokens),
      reasoning_tokens: had.reasoning_tokens + tokens.reasoning_tokens,
      audio_input_tokens: 0,
      audio_output_tokens: 0,
    },
    by_engine: before.by_engine && own.by_engine,
  }
}

/** The usage object of an engine that was given a prefix, with the figures of the whole answer. */
export const shownUsage =
  (before: Standing) =>
  (usage: Fields): Fields => {
    const count = (value: unknown) => (typeof value === 'number' && value >= 0 ? value : 0)
    const details = fieldsOf(usage['prompt_tokens_details'])
    const tokens = {
      ...estimated(count(usage['prompt_tokens']), count(usage['completion_tokens'])),
      cached_tokens: count(details['cached_tokens']),
    }
    const { prompt_tokens, completion_tokens, cached_tokens } = splicedUsage(
      'prefix',
      before,
      { tokens, by_engine: true },
      0,
      false,
    ).tokens
    return {
      ...usage,
      prompt_tokens,
      completion_tokens,
      total_tokens: prompt_tokens + completion_tokens,
      ...(details['cached_tokens'] !== undefined && { prompt_tokens_details: { ...details, cached_tokens } }),
    }
  }
