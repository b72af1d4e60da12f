import { bytesAre, skipString } from '../engines/json-skip.ts'
import type { JsonRange } from '../engines/json-value.ts'

/** What of a prompt is not told by its bytes. */
export type MediaParts = {
  /** Parts that may be a picture, a sound, a video or a file, inline or by address. */
  readonly parts: number
  /** Of these, what may be a picture: those of a type that says otherwise are none. */
  readonly images: number
  /** Bytes of those that are inline: they are no text, whatever they become. */
  readonly inline_bytes: number
}

const NONE: MediaParts = { parts: 0, images: 0, inline_bytes: 0 }

const bytesOf = (...words: string[]): readonly Uint8Array[] => words.map((word) => Buffer.from(word))
/** Members of a part that is text and nothing else, and what its type may be. */
const TEXT_KEYS = bytesOf('type', 'text', 'refusal', 'cache_control')
const TEXT_TYPES = bytesOf('text', 'input_text', 'output_text', 'refusal')
const TYPE = TEXT_KEYS[0]!
/** Types that are no picture to any engine. */
const OTHER_TYPES = bytesOf(
  'input_audio',
  'audio_url',
  'audio',
  'video_url',
  'video',
  'input_video',
  'file',
  'input_file',
)
/** Members of a message whose objects are no parts. */
const NO_PARTS = bytesOf('tool_calls', 'function_call')
/** Members of a part that may hold it inline: base64, or a data: URI (RFC 2397). */
const INLINE = bytesOf('data', 'file_data', 'image_data', 'url', 'image_url', 'image', 'video_url', 'audio_url')
/** Shorter ones are counted as text; an address is. */
const INLINE_BYTES_MIN = 1_024

/**
 * Counts the parts of a list of messages, or of inputs, that are not plainly text. Whoever wants to hide a picture behind
 * an odd spelling of a key (`im\u0061ge_url`) or a key given twice does not: what is not plainly text is media. Requires
 * valid JSON at the range.
 */
export const mediaParts = (bytes: Uint8Array, { type, start, end }: JsonRange): MediaParts => {
  if (type !== 'array' && type !== 'object') return NONE
  let parts = 0
  let images = 0
  let inline_bytes = 0
  let depth = 0
  /** Depth of the part, or of what has none, that the walk is in; 0 outside. */
  let part = 0
  let skipped = 0
  let plain = true
  /** Types that the part has, and how many of them are of something else than a picture. */
  let types = 0
  let others = 0
  let key_start = start
  let key_end = start
  const keyIn = (words: readonly Uint8Array[]) => words.some((word) => bytesAre(bytes, key_start, key_end, word))
  for (let at = start; at < end;) {
    const byte = bytes[at]!
    if (byte === 0x22) {
      const from = at + 1
      at = skipString(bytes, from, end)
      if (isKey(bytes, at, end)) {
        key_start = from
        key_end = at - 1
        if (part > 0 && depth === part && !keyIn(TEXT_KEYS)) plain = false
      } else if (part > 0) {
        const is_type = depth === part && bytesAre(bytes, key_start, key_end, TYPE)
        if (is_type) types++
        if (is_type && OTHER_TYPES.some((word) => bytesAre(bytes, from, at - 1, word))) others++
        if (is_type && !TEXT_TYPES.some((word) => bytesAre(bytes, from, at - 1, word))) plain = false
        if (at - from >= INLINE_BYTES_MIN && keyIn(INLINE)) inline_bytes += at - 1 - from
      }
      continue
    }
    if (byte === 0x7b || byte === 0x5b) {
      depth++
      if (part === 0 && skipped === 0 && depth >= 3) {
        if (keyIn(NO_PARTS)) skipped = depth
        else if (byte === 0x7b) [part, plain, types, others] = [depth, true, 0, 0]
      }
    } else if (byte === 0x7d || byte === 0x5d) {
      if (part === depth) {
        if (!plain) parts++
        if (!plain && (types === 0 || types > others)) images++
        part = 0
      }
      if (skipped === depth) skipped = 0
      depth--
    }
    at++
  }
  return { parts, images, inline_bytes }
}

/** True if a colon follows the string that ended before `pos`. */
const isKey = (bytes: Uint8Array, pos: number, end: number): boolean => {
  let at = pos
  while (at < end && bytes[at]! <= 0x20) at++
  return bytes[at] === 0x3a && at < end
}
