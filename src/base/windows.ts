/**
 * Windows of budgets: the whole of time, or days, weeks and months as a calendar on the wall in a named time zone has
 * them. Windows of one kind tile time: each instant is in exactly one. A day begins at its first instant, which is not
 * midnight where clocks skip midnight; weeks begin on Monday.
 */

export type Per = 'total' | 'day' | 'week' | 'month'

/** The half-open span `[start_ms, end_ms)`. `index` is at least 1 from 1970 on and grows with time. */
export type Window = { readonly index: number; readonly start_ms: number; readonly end_ms: number }

const TOTAL: Window = { index: 1, start_ms: 0, end_ms: Infinity }
const DAY_MS = 86_400_000

/** The window that holds an instant. Requires `at_ms` of at least 0 and a zone of the IANA database (throws otherwise). */
export const windowAt = (per: Per, timezone: string, at_ms: number): Window => {
  if (per === 'total') return TOTAL
  const local = Temporal.Instant.fromEpochMilliseconds(Math.floor(at_ms)).toZonedDateTimeISO(timezone)
  let index = indexOf(per, local.year, local.month, local.toPlainDate().dayOfWeek, dayNumber(local))
  // Where clocks go back over midnight a date comes twice: the second time belongs to the window that has begun.
  for (let end_ms = startOf(per, timezone, index + 1); at_ms >= end_ms; end_ms = startOf(per, timezone, index + 1))
    index++
  return { index, start_ms: startOf(per, timezone, index), end_ms: startOf(per, timezone, index + 1) }
}

/**
 * A look-up for the hot path: {@link windowAt} that computes only when the instant has left the last answer. The same
 * object is returned while the window is the same.
 */
export const windowClock = (per: Per, timezone: string): ((at_ms: number) => Window) => {
  let last: Window = { index: 0, start_ms: 0, end_ms: 0 }
  return (at_ms) => {
    if (at_ms < last.start_ms || at_ms >= last.end_ms) last = windowAt(per, timezone, at_ms)
    return last
  }
}

const dayNumber = ({ year, month, day }: { year: number; month: number; day: number }): number =>
  Date.UTC(year, month - 1, day) / DAY_MS

// Two are added because the local date of the epoch is 31 December 1969 west of Greenwich.
const indexOf = (per: Exclude<Per, 'total'>, year: number, month: number, day_of_week: number, day: number): number => {
  if (per === 'day') return day + 2
  // Day 4 was a Monday.
  if (per === 'week') return (day - (day_of_week - 1) - 4) / 7 + 3
  return (year - 1970) * 12 + month + 1
}

const startOf = (per: Exclude<Per, 'total'>, timezone: string, index: number): number => {
  const date =
    per === 'month'
      ? new Date(Date.UTC(1970, index - 2, 1))
      : new Date(DAY_MS * (per === 'day' ? index - 2 : (index - 3) * 7 + 4))
  return new Temporal.PlainDate(date.getUTCFullYear(), date.getUTCMonth() + 1, date.getUTCDate()).toZonedDateTime(
    timezone,
  ).epochMilliseconds
}
