import { limits } from '../base/limits.ts'

/** What can be written: JSON, and bigints, which become strings. */
export type Canonical =
  null | boolean | number | bigint | string | readonly Canonical[] | { readonly [name: string]: Canonical }

/**
 * The canonical JSON of a value (RFC 8785, JCS): no white space, members sorted by the UTF-16 code units of their names,
 * numbers as ECMAScript prints them, strings with the shortest escapes. A bigint is written as a string of its decimal
 * digits, as the RFC's appendix D advises for numbers beyond doubles, so 5n and "5" are the same text.
 *
 * Throws a `TypeError` that names the path for what JSON cannot say (NaN, infinities, lone surrogates, undefined,
 * functions, objects other than plain ones) and for more levels than `limits.json_depth_max`.
 */
export const canonicalJson = (value: Canonical): string => write(value, '$', 0)

const write = (value: unknown, path: string, depth: number): string => {
  switch (typeof value) {
    case 'string':
      return writeString(value, path)
    case 'number':
      if (!Number.isFinite(value)) throw new TypeError(`${path}: ${value} is not a JSON number`)
      // RFC 8785 §3.2.2.3 is this very conversion; it prints negative zero as 0.
      return String(value)
    case 'boolean':
      return value ? 'true' : 'false'
    case 'bigint':
      return `"${value}"`
    case 'object':
      return value === null ? 'null' : writeNested(value, path, depth + 1)
    default:
      throw new TypeError(`${path}: JSON has no ${typeof value}`)
  }
}

const writeNested = (value: object, path: string, depth: number): string => {
  if (depth > limits.json_depth_max) throw new TypeError(`${path}: more than ${limits.json_depth_max} levels`)
  if (Array.isArray(value))
    return `[${Array.from(value, (item, at) => write(item, `${path}[${at}]`, depth)).join(',')}]`
  const kind: unknown = Object.getPrototypeOf(value)
  if (kind !== Object.prototype && kind !== null) throw new TypeError(`${path}: only plain objects are JSON`)
  // The default order of sort() is that of UTF-16 code units (RFC 8785 §3.2.3).
  const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))
  return `{${members.map(([name, member]) => `${writeString(name, path)}:${write(member, `${path}.${name}`, depth)}`).join(',')}}`
}

// JSON.stringify escapes a string exactly as RFC 8785 §3.2.2.2 asks, but would also let lone surrogates through.
const writeString = (text: string, path: string): string => {
  if (!text.isWellFormed()) throw new TypeError(`${path}: the string has a lone surrogate`)
  return JSON.stringify(text)
}
