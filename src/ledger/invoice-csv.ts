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
  'usd',
  'entry_id',
  'order_id',
  'call_id',
  'reason',
] as const

/**
 * An invoice as one table: `usage` lines, `unpriced` and `unmetered` ones without an amount, `refund` and `adjustment` lines as they
 * change what is owed (a refund is below 0), the `total`, whose reason says so if the month is not over, and below it the `grant` lines, which it leaves out. The column
 * `usd` of the lines above the total sums to it.
 */
export const invoiceCsv = (invoice: Invoice): string => {
  const { lines, unpriced, unmetered, refunds, adjustments, grants, totals } = invoice
  const orders = (kind: string, list: Invoice['refunds'], sign: (usd: string) => string) =>
    list.map(({ at, usd, ...order }) => ({ kind, day: at, ...order, usd: sign(usd) }))
  return csv(COLUMNS, [
    ...lines.map(({ charge_usd, ...line }) => ({ kind: 'usage', ...line, usd: charge_usd })),
    ...unpriced.map((line) => ({ kind: 'unpriced', ...line })),
    ...unmetered.map((line) => ({ kind: 'unmetered', ...line })),
    ...orders('refund', refunds, negated),
    ...orders('adjustment', adjustments, negated),
    {
      kind: 'total',
      day: invoice.month,
      calls: totals.calls + totals.unpriced_calls + totals.unmetered_calls,
      usd: totals.total_usd,
      reason: invoice.state === 'open' ? `the month is not over: as of ${invoice.issued_at}` : '',
    },
    ...orders('grant', grants, (usd) => usd),
  ])
}

const negated = (usd: string): string => (usd.startsWith('-') ? usd.slice(1) : `-${usd}`)
