import type { Clock } from '../base/clock.ts'

/** Longest wait that a Retry-After may ask for: a day. A larger one counts as this. */
export const RETRY_AFTER_S_MAX = 86_400

/**
 * Reads a Retry-After (RFC 9110 §10.2.3): seconds or a date. Whole seconds from now, rounded up, in
 * `[0, RETRY_AFTER_S_MAX]`; 0 for a date that has passed; undefined if it is absent or neither. Fractions of a second
 * are taken, and of several values the largest counts.
 */
export const parseRetryAfter = (value: string | undefined, clock: Clock): number | undefined => {
  const text = value?.trim()
  if (text === undefined || text.length > 256) return undefined
  if (SECONDS.test(text)) return bounded(Math.max(...text.split(',').map(Number)))
  const at_ms = dateMs(text, clock)
  return at_ms === undefined ? undefined : bounded((at_ms - clock()) / 1000)
}

/** Prints a wait as a Retry-After: whole seconds, at least 1 and at most {@link RETRY_AFTER_S_MAX}. */
export const formatRetryAfter = (seconds: number): string => String(Math.max(1, bounded(seconds)))

const SECONDS = /^\d+(?:\.\d+)?(?:\s*,\s*\d+(?:\.\d+)?)*$/

const bounded = (seconds: number): number =>
  Number.isNaN(seconds) ? 0 : Math.ceil(Math.min(Math.max(seconds, 0), RETRY_AFTER_S_MAX))

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec']

/** The three forms of an HTTP date (RFC 9110 §5.6.7): the fixed one, RFC 850's and asctime's. */
const FIXED = /^[A-Z][a-z]{2}, (?<day>\d\d) (?<month>[A-Z][a-z]{2}) (?<year>\d{4}) (?<time>\d\d:\d\d:\d\d) GMT$/
const RFC850 = /^[A-Z][a-z]{5,8}, (?<day>\d\d)-(?<month>[A-Z][a-z]{2})-(?<year>\d\d) (?<time>\d\d:\d\d:\d\d) GMT$/
const ASCTIME = /^[A-Z][a-z]{2} (?<month>[A-Z][a-z]{2}) (?<day>[ \d]\d) (?<time>\d\d:\d\d:\d\d) (?<year>\d{4})$/

const dateMs = (text: string, clock: Clock): number | undefined => {
  const groups = (FIXED.exec(text) ?? RFC850.exec(text) ?? ASCTIME.exec(text))?.groups
  if (!groups) return undefined
  const month = MONTHS.indexOf(groups['month']!)
  const day = Number(groups['day'])
  const [hour, minute, second] = groups['time']!.split(':').map(Number) as [number, number, number]
  if (month < 0 || day < 1 || day > 31 || hour > 23 || minute > 59 || second > 60) return undefined
  return Date.UTC(fullYear(groups['year']!, clock), month, day, hour, minute, second)
}

/** A year of two digits is the nearest that is not more than 50 years ahead. */
const fullYear = (year: string, clock: Clock): number => {
  if (year.length === 4) return Number(year)
  const now = new Date(clock()).getUTCFullYear()
  const guess = now - (now % 100) + Number(year)
  return guess > now + 50 ? guess - 100 : guess
}
