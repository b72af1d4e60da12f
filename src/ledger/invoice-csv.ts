import type { Invoice } from './invoice.ts'

/** Rows of cells as CSV (RFC 4180): CRLF, quotes where they are needed. Text that a spreadsheet would run is made text. */
export const csv = (columns: readonly string[], rows: readonly Readonly<Record<string, unknown>>[]): string =>
  [columns, ...rows.map((row) => columns.map((column) => cell(row[column])))]
    .map((cells) => `${cells.join(',')}\r\n`)
    .join('')

const cell = (value: unknown): string => {
  if (value === null || value === undefined) return ''
  const text = String(value)
  // A number may begin with a minus; a formula may not.
  const safe = /^[=+\-@\t\r]/.test(text) && !/^-?\d+(\.\d+)?$/.test(text) ? `'${text}` : text
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe
}

const COLUMNS = [
  'kind',
  'day',
  'model',
  'endpoint',
  'price_version',
  'calls',
  'prompt_tokens',
  'cached_tokens',
  'completion_tokens',
  'reasoning_tokens',
  'audio_input_tokens',
  'audio_output_tokens',
  'images',
  'owed_usd',
  'total_usd',
  'grant_usd',
  'entry_id',
  'order_id',
  'call_id',
  'reason',
] as const

/**
 * An invoice as one table. No column has two meanings, so each can be summed as it is:
 *
 *   owed_usd    what a line adds to what is owed: `usage` (charges), `refund` (below 0) and `adjustment` lines. Its sum is
 *               the total. `unpriced` and `unmetered` lines have none
 *   total_usd   of the `total` line alone, whose reason says so if the month is not over
 *   grant_usd   of `grant` lines alone: money that was given, no part of what is owed
 */
export const invoiceCsv = (invoice: Invoice): string => {
  const { lines, unpriced, unmetered, refunds, adjustments, grants, totals } = invoice
  const orders = (kind: string, list: Invoice['refunds'], money: (usd: string) => object) =>
    list.map(({ at, usd, ...order }) => ({ kind, day: at, ...order, ...money(usd) }))
  return csv(COLUMNS, [
    ...lines.map(({ charge_usd, ...line }) => ({ kind: 'usage', ...line, owed_usd: charge_usd })),
    ...unpriced.map((line) => ({ kind: 'unpriced', ...line })),
    ...unmetered.map((line) => ({ kind: 'unmetered', ...line })),
    ...orders('refund', refunds, (usd) => ({ owed_usd: negated(usd) })),
    ...orders('adjustment', adjustments, (usd) => ({ owed_usd: negated(usd) })),
    {
      kind: 'total',
      day: invoice.month,
      calls: totals.calls + totals.unpriced_calls + totals.unmetered_calls,
      total_usd: totals.total_usd,
      reason: invoice.state === 'open' ? `the month is not over: as of ${invoice.issued_at}` : '',
    },
    ...orders('grant', grants, (usd) => ({ grant_usd: usd })),
  ])
}

const negated = (usd: string): string => (usd.startsWith('-') ? usd.slice(1) : `-${usd}`)
