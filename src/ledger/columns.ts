import { customType } from 'drizzle-orm/sqlite-core'

/**
 * Column types of both databases. The connections are opened with `safeIntegers`, so SQLite hands every INTEGER out as
 * `bigint`; these types say once which of them are numbers, which stay `bigint` (money), and which are flags.
 */

/** A whole number of at most 2^53: counts, tokens, times in milliseconds. */
export const whole = customType<{ data: number; driverData: bigint | number }>({
  dataType: () => 'integer',
  fromDriver: (stored) => Number(stored),
})

/** Money or a price: an exact 64-bit integer. */
export const money = customType<{ data: bigint; driverData: bigint | number }>({
  dataType: () => 'integer',
  fromDriver: (stored) => BigInt(stored),
})

/** A boolean, stored as 0 or 1. */
export const flag = customType<{ data: boolean; driverData: bigint | number }>({
  dataType: () => 'integer',
  fromDriver: (stored) => Number(stored) === 1,
  toDriver: (value) => (value ? 1 : 0),
})

/** Bytes as they are: a SHA-256 of 32 bytes. */
export const bytes = customType<{ data: Uint8Array; driverData: Uint8Array }>({
  dataType: () => 'blob',
})

/** A row as SQLite hands it out where numbers are asked for: an amount is one up to 2^53, and text beyond; a flag is 0 or 1. */
export type Cells<Row> = {
  readonly [Name in keyof Row]: Row[Name] extends boolean
    ? Row[Name] | number
    : Extract<Row[Name], bigint> extends never
      ? Row[Name]
      : Row[Name] | number | string
}
