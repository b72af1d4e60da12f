/** Values of a JSON document as byte ranges, and what reads them. Readers require valid JSON at the range. */

/** What stands at a range. */
export type JsonType = 'string' | 'number' | 'true' | 'false' | 'null' | 'object' | 'array'

/** Where a value stands: bytes `[start, end)` without white space around it, strings with their quotes. */
export type JsonRange = {
  readonly start: number
  readonly end: number
  readonly type: JsonType
  /** Where the opening quote of its key stands; -1 for the document itself. */
  readonly key_start: number
}

/** The range of a value. Requires a valid value at `[start, end)`. */
export const jsonRange = (bytes: Uint8Array, start: number, end: number, key_start: number): JsonRange => ({
  start,
  end,
  type: TYPES[bytes[start]!]!,
  key_start,
})

/** The type of a value by its first byte. */
const TYPES: readonly JsonType[] = Array.from({ length: 256 }, (_, byte) => {
  const at = '"{[tfn'.indexOf(String.fromCharCode(byte))
  return (['string', 'object', 'array', 'true', 'false', 'null'] as const)[at] ?? 'number'
})

const toText = Buffer.prototype.toString

/** Decodes what stands between the quotes of a JSON string, `[start, end)`. */
export const decodeText = (bytes: Uint8Array, start: number, end: number): string => {
  const text = toText.call(bytes, 'utf8', start, end)
  return text.includes('\\') ? (JSON.parse(`"${text}"`) as string) : text
}

/** The string at a range, or undefined for another type. */
export const readString = (bytes: Uint8Array, range: JsonRange | undefined): string | undefined =>
  range?.type === 'string' ? decodeText(bytes, range.start + 1, range.end - 1) : undefined

/** The number at a range if it is an integer that a double holds exactly (`1.0` and `1e3` are); else undefined. */
export const readInteger = (bytes: Uint8Array, range: JsonRange | undefined): number | undefined => {
  if (range?.type !== 'number') return undefined
  const number = Number(toText.call(bytes, 'latin1', range.start, range.end))
  return Number.isSafeInteger(number) ? number : undefined
}

/** The boolean at a range, or undefined for another type. */
export const readBoolean = (range: JsonRange | undefined): boolean | undefined =>
  range?.type === 'true' ? true : range?.type === 'false' ? false : undefined

/** The value at a range as `JSON.parse` makes it: numbers beyond 2^53 lose digits, so never print it again. */
export const readJson = (bytes: Uint8Array, range: { readonly start: number; readonly end: number }): unknown =>
  JSON.parse(toText.call(bytes, 'utf8', range.start, range.end)) as unknown
