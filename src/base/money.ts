/**
 * Money is integer. Prices are picodollars (1e-12 USD) a token, charges and balances nanodollars (1e-9 USD).
 * USD per million tokens equals 1e-6 USD a token, so "0.15" is 150,000 picodollars a token: exact to six decimals.
 */

/** Parses USD per million tokens, a decimal string of at most six decimals, to picodollars a token; undefined if it is not one. */
export const picodollarsPerToken = (usd_per_million: string): bigint | undefined => decimal(usd_per_million, 6)

/** Parses USD, a decimal string of at most nine decimals, to nanodollars; undefined if it is not one. */
export const nanodollars = (usd: string): bigint | undefined => decimal(usd, 9)

/** Rounds picodollars to nanodollars, half up. Requires a value of at least 0. */
export const roundToNanodollars = (picodollars: bigint): bigint => (picodollars + 500n) / 1000n

/** Prints nanodollars as USD with all nine decimals, trailing zeros cut to at least two: 6550000n is "0.00655". */
export const usd = (nanodollars: bigint): string => {
  const sign = nanodollars < 0n ? '-' : ''
  const digits = (nanodollars < 0n ? -nanodollars : nanodollars).toString().padStart(10, '0')
  const point = digits.length - 9
  let end = digits.length
  while (end > point + 2 && digits[end - 1] === '0') end--
  return `${sign}${digits.slice(0, point)}.${digits.slice(point, end)}`
}

const decimal = (text: string, places: number): bigint | undefined => {
  const found = /^(\d{1,12})(?:\.(\d+))?$/.exec(text)
  if (!found || (found[2] ?? '').length > places) return undefined
  return BigInt(found[1]! + (found[2] ?? '').padEnd(places, '0'))
}
