import type { Usage } from '../engines/usage.ts'

/** The token counts that a call is billed by. */
export type Tokens = Omit<Usage, 'cache_write_tokens' | 'doubtful'>

/** Counts of the gateway's own, for an engine that did not say. */
export const estimated = (prompt_tokens: number, completion_tokens: number): Tokens => ({
  prompt_tokens,
  cached_tokens: 0,
  completion_tokens,
  reasoning_tokens: 0,
  audio_input_tokens: 0,
  audio_output_tokens: 0,
})

/** Bytes of text that stand for a token. */
const BYTES_A_TOKEN = 4
/** Events with more text than this on average hold several tokens. */
const EVENT_BYTES_MAX = 16

/** Tokens of a text of so many bytes. */
export const tokensOf = (text_bytes: number): number => Math.ceil(text_bytes / BYTES_A_TOKEN)

/** Tokens of a stream: engines send one event a token, unless the events are too large for that. */
export const streamTokens = (text_events: number, text_bytes: number): number =>
  text_bytes > text_events * EVENT_BYTES_MAX ? tokensOf(text_bytes) : text_events
