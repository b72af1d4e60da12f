import { promptSize } from '../engines/prompt-size.ts'
import type { Body } from './body.ts'
import type { Endpoint } from './endpoints.ts'

/** Tokens of a picture, a sound or a file at most, whatever its size in bytes. */
const MEDIA_TOKENS_MAX = 16_384
/** What a chat template may add beyond the marks of each message: a system prompt of its own. */
const TEMPLATE_TOKENS_MAX = 256

/**
 * The most prompt tokens that a request can have. No tokenizer in use makes more tokens than there are UTF-8 bytes, and
 * the JSON around each message is longer than the marks that a chat template puts there; so the bytes of the body bound
 * the prompt, with its tools. Media given inline counts per piece instead.
 */
export const promptTokensMax = ({
  body,
  arrival,
}: {
  readonly body: Body
  readonly arrival: { readonly endpoint: Endpoint }
}): number => {
  const range = body.scan.values[arrival.endpoint.prompt_field]
  if (range === undefined) return TEMPLATE_TOKENS_MAX
  if (body.bytes.length < 65_536) return body.bytes.length + TEMPLATE_TOKENS_MAX
  const { text_bytes, token_ids, media } = promptSize(body.bytes, range)
  if (media === 0) return body.bytes.length + TEMPLATE_TOKENS_MAX
  // Structure is counted as bytes beside the prompt, and generously within it.
  const beside = body.bytes.length - (range.end - range.start)
  return text_bytes * 2 + token_ids + beside + media * MEDIA_TOKENS_MAX + TEMPLATE_TOKENS_MAX
}
