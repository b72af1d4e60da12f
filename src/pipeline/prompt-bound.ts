import { isAscii } from 'node:buffer'
import type { JsonRange } from '../engines/json-value.ts'
import type { Body } from './body.ts'
import type { Endpoint } from './endpoints.ts'
import { mediaParts } from './media-parts.ts'

/** Tokens of a picture, a sound, a video or a file at most, whatever its size in bytes. */
export const MEDIA_TOKENS_MAX = 16_384
/** What a chat template may add beyond the marks of each message: a system prompt of its own. */
export const TEMPLATE_TOKENS_MAX = 256

/** A call of which the body is known. */
export type Asked = { readonly body: Body; readonly arrival: { readonly endpoint: Endpoint } }

/**
 * The most prompt tokens that a request can have. No byte-level tokenizer makes more tokens than there are UTF-8 bytes,
 * and the JSON around each message is longer than the marks that a chat template puts there (`{"role":"","content":""}`
 * is 24 bytes; templates in use put 3 to 10 tokens there); so the bytes of the body bound the prompt, with its tools.
 * What is not plainly text counts {@link MEDIA_TOKENS_MAX} for each part, inline or by address, instead of its bytes.
 */
export const promptTokensMax = ({ body, arrival }: Asked): number => {
  const { values } = body.scan
  // Engines take messages at other addresses too.
  const prompts = [values[arrival.endpoint.prompt_field], values.messages]
  const [first, second] = prompts
  let tokens = rewrittenBytes(body.bytes) + TEMPLATE_TOKENS_MAX
  for (const range of first === second ? [first] : prompts) {
    if (range === undefined) continue
    const { parts, inline_bytes } = mediaParts(body.bytes, range)
    tokens += parts * MEDIA_TOKENS_MAX - inline_bytes
  }
  return tokens
}

/** Escapes, but for those of letters that no normal form makes longer: a client that escapes all its Chinese costs nothing here. */
const ESCAPES = /\\(?:\\|u(?![4-9a-c])([0-9a-f]{4}))/gi

const BACKSLASH = 0x5c

/**
 * Bytes of a body at most when a tokenizer first rewrites it by a normal form of Unicode (Qwen's by NFC, T5's by NFKC): of a
 * musical sign of 4 bytes come 12, of an Arabic ligature of 3 bytes 33.
 */
const rewrittenBytes = (bytes: Uint8Array): number => {
  const escapes = bytes.includes(BACKSLASH) && bufferOf(bytes).includes('\\u')
  if (!escapes && isAscii(bytes)) return bytes.length
  let text = bufferOf(bytes).toString()
  if (escapes)
    text = text.replace(ESCAPES, (whole, digits?: string) =>
      digits === undefined ? whole : String.fromCharCode(Number.parseInt(digits, 16)),
    )
  const forms = ['NFC', 'NFKC'].map((form) => Buffer.byteLength(text.normalize(form)))
  return Math.max(bytes.length, ...forms)
}

const bufferOf = (bytes: Uint8Array): Buffer => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)

/**
 * The most completion tokens that a request can have, `ceiling` standing for a bound that it does not name. Engines differ
 * in which of the two bounds they heed, so the larger counts; every prompt of a list gets its own answers.
 */
export const completionTokensMax = (asked: Asked, ceiling: number): number =>
  Math.max(asked.body.tokens_max ?? ceiling, asked.body.tokens_most) * answersMax(asked)

/** The most answers that a request can have, shown or not: choices of every prompt; 0 where nothing is generated. */
export const answersMax = ({ body, arrival }: Asked): number => {
  if (!arrival.endpoint.streams) return 0
  const lists = arrival.endpoint.prompt_field === 'prompt' ? promptsIn(body.bytes, body.scan.values.prompt) : 1
  return Math.max(body.n, body.best_of) * lists
}

/** How many prompts a `prompt` has: texts or lists of tokens in a list count each; a list of numbers is one. */
const promptsIn = (bytes: Uint8Array, range: JsonRange | undefined): number => {
  if (range?.type !== 'array') return 1
  let at = range.start + 1
  while (at < range.end && bytes[at]! <= 0x20) at++
  const first = bytes[at]
  if (first !== 0x22 && first !== 0x5b && first !== 0x7b) return 1
  let depth = 0
  let count = 1
  for (let quoted = false; at < range.end; at++) {
    const byte = bytes[at]!
    if (quoted && byte === 0x5c) at++
    else if (byte === 0x22) quoted = !quoted
    else if (quoted) continue
    else if (byte === 0x5b || byte === 0x7b) depth++
    else if (byte === 0x5d || byte === 0x7d) depth--
    else if (byte === 0x2c && depth === 0) count++
  }
  return count
}
