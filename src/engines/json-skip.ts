/**
 * The grammar of JSON (RFC 8259) over UTF-8 bytes, as functions that skip one thing and decode nothing. Each takes the
 * position at which the thing should stand and returns the position after it, or `~at` (negative) where byte `at` is
 * not what the grammar allows; `at` equals `end` when the text stops too early. Strings are checked for control
 * characters and escapes, not for UTF-8: that is one native call for a whole document.
 */

const QUOTE = 0x22
const BACKSLASH = 0x5c

/** Plain bytes in a row after which four at a time are worth the set-up. */
const RUN_BYTES = 128

/** 1 for the bytes that stand for themselves in a string. */
const PLAIN = new Uint8Array(256).fill(1, 0x20)
PLAIN[QUOTE] = 0
PLAIN[BACKSLASH] = 0

/** 1 for the bytes that may follow a backslash, other than `u`. */
const ESCAPED = new Uint8Array(256)
for (const char of '"\\/bfnrt') ESCAPED[char.charCodeAt(0)] = 1

/** 1 for hexadecimal digits. */
const HEX = new Uint8Array(256)
for (const char of '0123456789abcdefABCDEF') HEX[char.charCodeAt(0)] = 1

/** Skips white space. Never fails. */
export const skipSpace = (bytes: Uint8Array, pos: number, end: number): number => {
  let at = pos
  while (at < end) {
    const byte = bytes[at]!
    if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) break
    at++
  }
  return at
}

/** Skips the rest of a string; `pos` is after its opening quote, the result after its closing one. */
export const skipString = (bytes: Uint8Array, pos: number, end: number): number => {
  let at = pos
  for (;;) {
    const stop = at + RUN_BYTES < end ? at + RUN_BYTES : end
    while (at < stop && PLAIN[bytes[at]!] === 1) at++
    if (at >= end) return ~end
    if (at === stop) at = skipPlain(bytes, at, end)
    else if (bytes[at] === QUOTE) return at + 1
    else if (bytes[at] !== BACKSLASH) return ~at
    else at = skipEscape(bytes, at, end)
    if (at < 0) return at
  }
}

/** Skips `\n`, `\u00e9` and the like; `pos` is at the backslash. */
const skipEscape = (bytes: Uint8Array, pos: number, end: number): number => {
  if (pos + 1 >= end) return ~end
  const kind = bytes[pos + 1]!
  if (ESCAPED[kind] === 1) return pos + 2
  if (kind !== 0x75) return ~(pos + 1)
  for (let at = pos + 2; at < pos + 6; at++) {
    if (at >= end) return ~end
    if (HEX[bytes[at]!] !== 1) return ~at
  }
  return pos + 6
}

/**
 * Skips bytes that are neither quote, backslash nor control character, four at a time; stops at or shortly before the
 * first that is. No native search looks for a range of bytes, and a search for the quote alone could be made to pass
 * over the same escapes again and again.
 */
const skipPlain = (bytes: Uint8Array, pos: number, end: number): number => {
  const skew = (bytes.byteOffset + pos) & 3
  const first = skew === 0 ? pos : pos + 4 - skew
  for (let at = pos; at < first; at++) {
    if (at >= end || PLAIN[bytes[at]!] === 0) return at
  }
  const count = (end - first) >> 2
  if (count <= 0) return first
  const words = new Int32Array(bytes.buffer, bytes.byteOffset + first, count)
  let at = 0
  for (; at < count; at++) {
    const word = words[at]!
    const quote = word ^ 0x22222222
    const backslash = word ^ 0x5c5c5c5c
    // The top bit of a byte is set where it was zero after the exclusive or, or below 0x20.
    const hits =
      (((quote - 0x01010101) | 0) & ~quote) |
      (((backslash - 0x01010101) | 0) & ~backslash) |
      (((word - 0x20202020) | 0) & ~word)
    if ((hits & 0x80808080) !== 0) break
  }
  return first + at * 4
}

/** Skips a number. */
export const skipNumber = (bytes: Uint8Array, pos: number, end: number): number => {
  let at = pos
  if (at < end && bytes[at] === 0x2d) at++
  if (at >= end) return ~end
  if (bytes[at] === 0x30) at++
  else {
    at = skipDigits(bytes, at, end)
    if (at < 0) return at
  }
  if (at < end && bytes[at] === 0x2e) {
    at = skipDigits(bytes, at + 1, end)
    if (at < 0) return at
  }
  if (at < end && (bytes[at]! | 0x20) === 0x65) {
    at++
    if (at < end && (bytes[at] === 0x2b || bytes[at] === 0x2d)) at++
    at = skipDigits(bytes, at, end)
  }
  return at
}

/** Skips one digit or more. */
const skipDigits = (bytes: Uint8Array, pos: number, end: number): number => {
  let at = pos
  while (at < end && bytes[at]! >= 0x30 && bytes[at]! <= 0x39) at++
  return at === pos ? ~at : at
}

const TRUE = Buffer.from('true')
const FALSE = Buffer.from('false')
const NULL = Buffer.from('null')

const skipLiteral = (bytes: Uint8Array, pos: number, end: number, literal: Uint8Array): number => {
  for (let i = 1; i < literal.length; i++) {
    if (pos + i >= end) return ~end
    if (bytes[pos + i] !== literal[i]) return ~(pos + i)
  }
  return pos + literal.length
}

/**
 * Skips any value; `pos` is at its first byte. `depth` is how many levels of nesting are still allowed: the bracket
 * that opens one more is the fault.
 */
export const skipValue = (bytes: Uint8Array, pos: number, end: number, depth: number): number => {
  if (pos >= end) return ~end
  switch (bytes[pos]) {
    case QUOTE:
      return skipString(bytes, pos + 1, end)
    case 0x7b:
      return depth === 0 ? ~pos : skipObject(bytes, pos + 1, end, depth - 1)
    case 0x5b:
      return depth === 0 ? ~pos : skipArray(bytes, pos + 1, end, depth - 1)
    case 0x74:
      return skipLiteral(bytes, pos, end, TRUE)
    case 0x66:
      return skipLiteral(bytes, pos, end, FALSE)
    case 0x6e:
      return skipLiteral(bytes, pos, end, NULL)
    default:
      return skipNumber(bytes, pos, end)
  }
}

const skipObject = (bytes: Uint8Array, pos: number, end: number, depth: number): number => {
  let at = skipSpace(bytes, pos, end)
  if (at < end && bytes[at] === 0x7d) return at + 1
  for (;;) {
    at = skipKey(bytes, at, end)
    if (at < 0) return at
    at = skipColon(bytes, at, end)
    if (at < 0) return at
    at = skipValue(bytes, at, end, depth)
    if (at < 0) return at
    at = skipSpace(bytes, at, end)
    if (at >= end) return ~end
    if (bytes[at] === 0x7d) return at + 1
    if (bytes[at] !== 0x2c) return ~at
    at = skipSpace(bytes, at + 1, end)
  }
}

const skipArray = (bytes: Uint8Array, pos: number, end: number, depth: number): number => {
  let at = skipSpace(bytes, pos, end)
  if (at < end && bytes[at] === 0x5d) return at + 1
  for (;;) {
    at = skipValue(bytes, at, end, depth)
    if (at < 0) return at
    at = skipSpace(bytes, at, end)
    if (at >= end) return ~end
    if (bytes[at] === 0x5d) return at + 1
    if (bytes[at] !== 0x2c) return ~at
    at = skipSpace(bytes, at + 1, end)
  }
}

/** Skips a member's key with its quotes. */
export const skipKey = (bytes: Uint8Array, pos: number, end: number): number => {
  if (pos >= end) return ~end
  return bytes[pos] === QUOTE ? skipString(bytes, pos + 1, end) : ~pos
}

/** Skips the colon after a key, with white space on both sides. */
export const skipColon = (bytes: Uint8Array, pos: number, end: number): number => {
  const at = skipSpace(bytes, pos, end)
  if (at >= end) return ~end
  return bytes[at] === 0x3a ? skipSpace(bytes, at + 1, end) : ~at
}

/** True if bytes `[start, end)` are exactly `name`. */
export const bytesAre = (bytes: Uint8Array, start: number, end: number, name: Uint8Array): boolean => {
  if (end - start !== name.length) return false
  for (let i = 0; i < name.length; i++) if (bytes[start + i] !== name[i]) return false
  return true
}
