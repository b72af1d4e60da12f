import { isUtf8 } from 'node:buffer'

import { skipString } from './json-skip.ts'

/** Sentences that say what is wrong with a JSON document and where. Only refused documents pay for them. */

/** Says why the scan stopped at byte `at`: everything before it was valid so far. */
export const explainFault = (bytes: Uint8Array, at: number, depth_max: number): string => {
  if (bytes.length === 0) return 'The request body is empty; it must be a JSON document.'
  if (at >= bytes.length) return `The request body is not valid JSON: it stops too early, at byte ${bytes.length}.`
  const byte = bytes[at]!
  if ((byte === 0x5b || byte === 0x7b) && depthAt(bytes, at) >= depth_max) {
    return `The request body is not acceptable: more than ${depth_max} levels of nesting at byte ${at}.`
  }
  const found =
    byte > 0x20 && byte < 0x7f ? `'${String.fromCharCode(byte)}'` : `0x${byte.toString(16).padStart(2, '0')}`
  return `The request body is not valid JSON: unexpected ${found} at byte ${at}.`
}

/** Says where the bytes stop being UTF-8. Requires that they do. */
export const explainUtf8 = (bytes: Uint8Array): string => {
  // Whole valid characters stand in [0, low); halving leaves few to look at one by one.
  let low = 0
  for (let high = bytes.length; high - low > 64;) {
    let middle = (low + high) >> 1
    for (let back = 0; back < 3 && (bytes[middle]! & 0xc0) === 0x80; back++) middle--
    if (isUtf8(bytes.subarray(low, middle))) low = middle
    else high = middle
  }
  for (;;) {
    const lead = bytes[low]!
    const length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4
    if (low + length > bytes.length || !isUtf8(bytes.subarray(low, low + length))) break
    low += length
  }
  return `The request body is not valid JSON: it is not UTF-8 at byte ${low}.`
}

/** How many objects and arrays are open before byte `at`. Requires valid JSON up to there. */
const depthAt = (bytes: Uint8Array, at: number): number => {
  let depth = 0
  for (let pos = 0; pos < at; pos++) {
    const byte = bytes[pos]
    if (byte === 0x22) {
      const after = skipString(bytes, pos + 1, at)
      // The fault is a wrong escape in this string.
      if (after < 0) return 0
      pos = after - 1
    }
    if (byte === 0x7b || byte === 0x5b) depth++
    else if (byte === 0x7d || byte === 0x5d) depth--
  }
  return depth
}
