import { bytesAre, skipNumber, skipString } from './json-skip.ts'
import type { JsonRange } from './json-value.ts'

/** What bounds the tokens of a prompt before anyone has tokenised it. */
export type PromptSize = {
  /** UTF-8 bytes of all string values once unescaped, media left out. No tokenizer makes more tokens than bytes. */
  readonly text_bytes: number
  /** Numbers in arrays: a prompt may be given as token ids. */
  readonly token_ids: number
  /** Images, sounds and files given inline. */
  readonly media: number
}

/** Keys whose value is media if it is a data: URI (RFC 2397); text that merely begins so stands under other keys. */
const URI_KEYS = ['url', 'image_url', 'video_url', 'audio_url', 'file_url', 'image', 'file_data'].map((key) =>
  Buffer.from(key),
)

/** Keys whose value is bare base64. */
const BASE64_KEYS = ['data', 'file_data', 'image_data'].map((key) => Buffer.from(key))

const DATA = Buffer.from('data')

/**
 * Sizes up the value of `messages`, `prompt` or `input` without decoding it. Requires valid JSON at the range, of any
 * type. A caller cannot hide text: media is told by its key, never by how the text under `content` or `text` begins.
 */
export const promptSize = (bytes: Uint8Array, range: JsonRange): PromptSize => {
  const { end } = range
  let text_bytes = 0
  let token_ids = 0
  let media = 0
  let key_start = 0
  let key_end = 0
  let is_member = true
  for (let at = range.start; at < end;) {
    const byte = bytes[at]!
    if (byte === 0x22) {
      const start = at + 1
      at = skipString(bytes, start, end)
      if (!is_member && isKey(bytes, at, end)) {
        key_start = start
        key_end = at - 1
      } else if (is_member && isMedia(bytes, key_start, key_end, start, at - 1)) media++
      else text_bytes += textBytes(bytes, start, at - 1)
      continue
    }
    if (byte === 0x2d || (byte >= 0x30 && byte <= 0x39)) {
      if (!is_member) token_ids++
      at = skipNumber(bytes, at, end)
      continue
    }
    if (byte === 0x3a) is_member = true
    else if (byte > 0x20) is_member = false
    at++
  }
  return { text_bytes, token_ids, media }
}

/** UTF-8 bytes of text in a prompt: {@link PromptSize.text_bytes}. */
export const promptTextBytes = (bytes: Uint8Array, range: JsonRange): number => promptSize(bytes, range).text_bytes

/** True if a colon follows the string that ended before `pos`. */
const isKey = (bytes: Uint8Array, pos: number, end: number): boolean => {
  let at = pos
  while (at < end && bytes[at]! <= 0x20) at++
  return at < end && bytes[at] === 0x3a
}

const isMedia = (bytes: Uint8Array, key_start: number, key_end: number, start: number, end: number): boolean => {
  if (isOneOf(BASE64_KEYS, bytes, key_start, key_end)) return true
  if (end - start < 5 || bytes[start + 4] !== 0x3a || !isOneOf(URI_KEYS, bytes, key_start, key_end)) return false
  // The scheme is `data` in any case (RFC 3986 §3.1).
  for (let i = 0; i < 4; i++) if ((bytes[start + i]! | 0x20) !== DATA[i]) return false
  return true
}

const isOneOf = (keys: readonly Uint8Array[], bytes: Uint8Array, start: number, end: number): boolean => {
  for (let i = 0; i < keys.length; i++) if (bytesAre(bytes, start, end, keys[i]!)) return true
  return false
}

/** UTF-8 bytes of what stands between the quotes of a JSON string once it is unescaped; a lone surrogate counts 2. */
export const textBytes = (bytes: Uint8Array, start: number, end: number): number => {
  let at = end - start < SEARCH_BYTES ? start : bytes.subarray(start, end).indexOf(0x5c)
  if (at < 0) return end - start
  if (end - start >= SEARCH_BYTES) at += start
  let length = end - start
  while (at < end) {
    if (bytes[at] !== 0x5c) at++
    else if (bytes[at + 1] !== 0x75) {
      length -= 1
      at += 2
    } else {
      const unit = (hexValue(bytes[at + 2]!) << 12) | (hexValue(bytes[at + 3]!) << 8) | (hexValue(bytes[at + 4]!) << 4)
      // The last digit matters to none of the borders: 0x80, 0x800, 0xd800, 0xe000.
      const surrogate = unit >= 0xd800 && unit < 0xe000
      length -= unit < 0x80 ? 5 : unit < 0x800 || surrogate ? 4 : 3
      at += 6
    }
  }
  return length
}

/** Shortest string in which a native search for a backslash is cheaper than looking at each byte. */
const SEARCH_BYTES = 64

const hexValue = (digit: number): number => (digit <= 0x39 ? digit - 0x30 : (digit | 0x20) - 0x57)
