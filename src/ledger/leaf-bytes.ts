import { LEAF_BYTES_MAX, sha256 } from '../audit/hash.ts'

/**
 * Where the bytes of leaves are made. They stand one after the other in a common piece of memory, as one of its own for
 * each costs more than writing it; they are not to be written to, and hold that memory while they live.
 */

const MEMORY_BYTES = 1024 * 1024

let memory = new Uint8Array(0)
let text_memory = Buffer.alloc(0)
let used = 0

/** Memory with room for so many bytes from `at` on. Requires at most a mebibyte. */
export const roomFor = (bytes: number): { readonly memory: Uint8Array; readonly at: number } => {
  if (memory.byteLength - used < bytes) {
    text_memory = Buffer.allocUnsafeSlow(MEMORY_BYTES)
    memory = new Uint8Array(text_memory.buffer)
    used = 0
  }
  return { memory, at: used }
}

/** The leaf that was written to that memory from `at` up to `end`. */
export const written = (at: number, end: number): Uint8Array => {
  used = end
  return memory.subarray(at, end)
}

/** The leaf whose JSON this is, or, if that is too long for a leaf, one with its hash. */
export const leafOfText = (log_index: number | null, json: string): Uint8Array => {
  const bytes = utf8(json)
  if (bytes.byteLength <= LEAF_BYTES_MAX) return bytes
  return utf8(JSON.stringify({ log_index, sha256: sha256(bytes).toHex(), type: 'too_long' }))
}

const utf8 = (json: string): Uint8Array => {
  if (json.length * 3 > MEMORY_BYTES) return Buffer.from(json, 'utf8')
  const { at } = roomFor(json.length * 3)
  return written(at, at + text_memory.write(json, at, 'utf8'))
}

const SAFE_MAX = BigInt(Number.MAX_SAFE_INTEGER)

/**
 * A column as JSON: integers as numbers up to 2^53 − 1 and as decimal strings beyond, flags 0 or 1, bytes lower-case hex. A
 * lone surrogate is stored as U+FFFD, so it is written as that.
 */
export const jsonOf = (value: string | number | bigint | boolean | Uint8Array | null): string => {
  if (typeof value === 'string') return JSON.stringify(value.isWellFormed() ? value : value.toWellFormed())
  if (typeof value === 'boolean') return value ? '1' : '0'
  if (value instanceof Uint8Array) return `"${value.toHex()}"`
  return typeof value === 'bigint' && (value > SAFE_MAX || value < -SAFE_MAX) ? `"${value}"` : String(value)
}

/** Bytes as they are, written at `at`; like the ones below it answers the place after them. */
export const putBytes = (into: Uint8Array, at: number, bytes: Uint8Array): number => {
  into.set(bytes, at)
  return at + bytes.byteLength
}

/** A text that JSON writes as it is, so printable ASCII without quote and backslash; below 0 for any other. */
export const putPlain = (into: Uint8Array, at: number, text: string): number => {
  for (let nth = 0; nth < text.length; nth++) {
    const code = text.charCodeAt(nth)
    if (code < 0x20 || code > 0x7e || code === 0x22 || code === 0x5c) return -1
    into[at + nth] = code
  }
  return at + text.length
}

const HEX = Uint8Array.from(
  Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0')).join(''),
  (c) => c.charCodeAt(0),
)

/** Bytes in lower-case hex. */
export const putHex = (into: Uint8Array, at: number, bytes: Uint8Array): number => {
  let to = at
  for (let nth = 0; nth < bytes.byteLength; nth++, to += 2) {
    const digits = bytes[nth]! * 2
    into[to] = HEX[digits]!
    into[to + 1] = HEX[digits + 1]!
  }
  return to
}

/** A whole number from 0 to 2^53 − 1 in decimal digits. */
export const putWhole = (into: Uint8Array, at: number, value: number): number => {
  if (value >= 1e9) {
    const high = Math.floor(value / 1e8)
    return putDigits(into, putWhole(into, at, high), value - high * 1e8, 8)
  }
  let digits = 1
  for (let bound = 10; value >= bound; bound *= 10) digits++
  return putDigits(into, at, value, digits)
}

// 32-bit arithmetic, so it takes less than 2^31.
const putDigits = (into: Uint8Array, at: number, value: number, digits: number): number => {
  for (let to = at + digits - 1, rest = value | 0; to >= at; to--) {
    const tenth = (rest / 10) | 0
    into[to] = 48 + rest - tenth * 10
    rest = tenth
  }
  return at + digits
}
