import type { AttemptRow, CallRow } from './tables.ts'

/**
 * A row as the admin API shows it: times become ISO 8601 in UTC (`at_ms` becomes `at`), hashes
 * lower-case hex, `key_id` the contract's `key`. Money becomes a JSON number as long as that is exact (below 2^53
 * nanodollars, nine million USD), else a decimal string. The two hashes are salted: SHA-256(salt ‖ SHA-256 of the body).
 */
export const callOnWire = ({ at_ms, key_id, request_sha256, response_sha256, salt, ...row }: CallRow) => ({
  ...row,
  at: isoOf(at_ms),
  key: key_id,
  hold_nanodollars: moneyOnWire(row.hold_nanodollars),
  charge_nanodollars: row.charge_nanodollars === null ? null : moneyOnWire(row.charge_nanodollars),
  request_sha256: request_sha256.toHex(),
  response_sha256: response_sha256.toHex(),
  salt: salt?.toHex() ?? null,
})

/** One engine of a call. */
export const attemptOnWire = ({ call_id: _call, at_ms, ...row }: AttemptRow) => ({ ...row, at: isoOf(at_ms) })

/** Any row whose only large integers are money, under names of your own. */
export const moneyOnWire = (amount: bigint): number | string =>
  amount <= MAX && amount >= -MAX ? Number(amount) : amount.toString()

/** A time in ISO 8601, UTC, with milliseconds. */
export const isoOf = (at_ms: number): string => new Date(at_ms).toISOString()

const MAX = BigInt(Number.MAX_SAFE_INTEGER)
