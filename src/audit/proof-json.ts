import { Difference } from './check-note.ts'

/** JSON that somebody else wrote, read member by member; each throws a {@link Difference} that names `what` is wrong. */
export type Json = Readonly<Record<string, unknown>>

export const parsed = (text: string, what: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    throw new Difference(`${what} is not JSON`)
  }
}

export const objectOf = (value: unknown, what: string): Json => {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Json
  throw new Difference(`${what} must be an object`)
}

export const listOf = (value: unknown, what: string): readonly unknown[] => {
  if (Array.isArray(value)) return value
  throw new Difference(`${what} must be a list`)
}

/** A whole number, not below 0. */
export const numberOf = (value: unknown, what: string): number => {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 0) return value
  throw new Difference(`${what} must be a whole number`)
}

/** Bytes that stand as base64 in its one canonical form. */
export const bytesOf = (value: unknown, what: string): Uint8Array => {
  const bytes = typeof value === 'string' ? Buffer.from(value, 'base64') : undefined
  if (bytes !== undefined && bytes.toString('base64') === value) return bytes
  throw new Difference(`${what} must be base64`)
}

/** An amount of nanodollars: a whole number, or a decimal string. */
export const amountOf = (value: unknown, what: string): bigint => {
  const text = String(value)
  if (/^-?\d{1,30}$/.test(text)) return BigInt(text)
  throw new Difference(`${what} must be an amount of nanodollars`)
}

/** A time for people; the number itself if no date has it. */
export const iso = (at_ms: number): string =>
  Math.abs(at_ms) <= 8.64e15 ? new Date(at_ms).toISOString() : String(at_ms)
