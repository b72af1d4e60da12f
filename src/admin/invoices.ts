import { Type } from '@sinclair/typebox'
import { Failure } from '../base/failure.ts'
import { quoted } from '../config/faults.ts'
import { invoiceCsv, csv } from '../ledger/invoice-csv.ts'
import { type Invoice, invoicePeriod, invoiceTimezone, makeInvoice } from '../ledger/invoice.ts'
import {
  DIFFERENCES_MAX,
  reconcile,
  type ReconciliationDifference,
  type ReconciliationLine,
} from '../ledger/reconciliation.ts'
import { allTenants } from '../ledger/tenants-store.ts'
import { fieldFault } from './input.ts'
import { invoiceProofs } from './invoice-proof.ts'
import type { OpsHouse } from './port.ts'
import { type AdminRoute, adminRoute } from './route.ts'
import { timeField, timeOf } from './times.ts'

const closed = { additionalProperties: false } as const
const CSV = 'text/csv; charset=utf-8'
const FORMAT = Type.Optional(
  Type.Unsafe<'json' | 'csv'>(
    Type.Union([Type.Literal('json'), Type.Literal('csv')], { description: 'json if absent.' }),
  ),
)

const TIMEZONE = Type.Optional(
  Type.String({ minLength: 1, maxLength: 64, description: 'IANA name of another time zone.' }),
)

/** The longest span of a reconciliation: it reads every call in it. */
const SPAN_MAX_MS = 92 * 86_400_000

const INVOICE_EXAMPLE: Invoice = {
  tenant: 'acme',
  month: '2026-01',
  timezone: 'UTC',
  from: '2026-01-01T00:00:00.000Z',
  to: '2026-02-01T00:00:00.000Z',
  state: 'closed',
  issued_at: '2026-02-03T09:00:00.000Z',
  currency: 'USD',
  lines: [
    {
      day: '2026-01-31',
      model: 'llama-3.1-8b',
      price_version: 1,
      calls: 3,
      prompt_tokens: 360,
      cached_tokens: 0,
      completion_tokens: 120,
      reasoning_tokens: 0,
      audio_input_tokens: 0,
      audio_output_tokens: 0,
      images: 0,
      charge_usd: '0.000144',
    },
  ],
  unpriced: [],
  unmetered: [{ day: '2026-01-31', endpoint: '/data', calls: 2 }],
  refunds: [],
  adjustments: [],
  grants: [],
  totals: {
    calls: 3,
    unpriced_calls: 0,
    unmetered_calls: 2,
    charge_usd: '0.000144',
    refunds_usd: '0.00',
    adjustments_usd: '0.00',
    grants_usd: '0.00',
    total_usd: '0.000144',
  },
}

/** What finance asks for: invoices, and how far the books rest on the engines' own counts. */
export const INVOICE_ROUTES: readonly AdminRoute[] = [
  adminRoute({
    method: 'GET',
    path: '/admin/invoices/:tenant/:month',
    tag: 'finance',
    summary: 'The invoice of a tenant for a month, as JSON or CSV',
    description:
      'Lines by day, model and version of the price; a call belongs to the day on which it began. Days and month are those of the time zone of the tenant’s first monthly budget, else of its first budget, else UTC; `timezone` chooses another. The total is the sum of the charges as rounded call by call, less refunds and adjustments. Calls without a known price are listed apart and not charged (`unpriced`), and so are those of `/data`, which the gateway answers itself (`unmetered`); grants are listed and not part of the total. The column `owed_usd` of the CSV sums to `total_usd`, which stands on the line of kind total alone; grants have a column of their own, `grant_usd`. `state` is open while the month is not over.',
    query: Type.Object({ format: FORMAT, timezone: TIMEZONE }, closed),
    example: INVOICE_EXAMPLE,
    failures: ['not_found'],
    run: async ({ params, query }, house) => {
      const asked = askedOf(params, query.timezone, house)
      if (asked instanceof Failure) return asked
      const { name, period } = asked
      const invoice = await makeInvoice(house.ledger_reader, name, period, house.now())
      return query.format === 'csv' ? { body: invoiceCsv(invoice), type: CSV } : { json: invoice }
    },
  }),
  adminRoute({
    method: 'GET',
    path: '/admin/invoices/:tenant/:month/proofs',
    tag: 'finance',
    summary: 'The proofs of every call and order of an invoice, for weir verify',
    description:
      'Calls, refunds, adjustments and grants, and what they come to: charges less refunds and adjustments. Those of the last second, which no checkpoint covers yet, are left out.',
    query: Type.Object({ timezone: TIMEZONE }, closed),
    example: { format: 'weir-proof/2', kind: 'invoice', lines: [], nodes: [] },
    failures: ['not_found'],
    run: ({ params, query }, house) => {
      const asked = askedOf(params, query.timezone, house)
      if (asked instanceof Failure) return asked
      const text = invoiceProofs(house, asked.name, asked.period)
      return text instanceof Failure ? text : { body: text, type: 'application/json' }
    },
  }),
  adminRoute({
    method: 'GET',
    path: '/admin/reconciliation',
    tag: 'finance',
    summary: 'The ledger against the engines’ own usage, by key and day, as JSON or CSV',
    description: `Where an engine counts the tokens of a call, the ledger has the engine’s figures, so they cannot differ; every call that the gateway had to count itself, or whose process died, is listed as a difference (at most ${DIFFERENCES_MAX}; \`differences_total\` says how many there are). \`engines\` has the ledger’s sums by engine, to be laid beside a provider’s bill. Days are UTC; at most 92 days.`,
    query: Type.Object(
      {
        from: timeField('Calls that began at or after this time.'),
        to: timeField('Calls that began before this time.'),
        tenant: Type.Optional(Type.String({ minLength: 1, maxLength: 128, description: 'Only calls of this tenant.' })),
        format: FORMAT,
      },
      closed,
    ),
    example: {
      from: '2026-01-01T00:00:00.000Z',
      to: '2026-02-01T00:00:00.000Z',
      lines: [],
      differences: [],
      differences_total: 0,
      engines: [],
    },
    run: ({ query }, { ledger_reader }) => {
      const from_ms = timeOf('from', query.from)
      if (from_ms instanceof Failure) return from_ms
      const to_ms = timeOf('to', query.to)
      if (to_ms instanceof Failure) return to_ms
      const span_ms = (to_ms ?? 0) - (from_ms ?? 0)
      if (span_ms <= 0 || span_ms > SPAN_MAX_MS)
        return fieldFault(
          'to',
          `${quoted(query.to)} is not within 92 days after from`,
          `allowed: a time after ${query.from}`,
        )
      const report = reconcile(ledger_reader, from_ms!, to_ms!, query.tenant)
      if (query.format !== 'csv') return { json: report }
      return { body: csv(COLUMNS, [...report.lines.map(asLine), ...report.differences.map(asDifference)]), type: CSV }
    },
  }),
]

const COLUMNS = [
  'kind',
  'day',
  'tenant',
  'key',
  'calls',
  'calls_by_engine',
  'calls_estimated',
  'calls_recovered',
  'prompt_tokens',
  'prompt_tokens_by_engine',
  'completion_tokens',
  'completion_tokens_by_engine',
  'charge_usd',
  'charge_estimated_usd',
  'call_id',
  'model',
  'engine',
  'engine_model',
  'ending',
  'why',
] as const

const asLine = (line: ReconciliationLine) => ({ kind: 'day', ...line })
const asDifference = ({ at, ...call }: ReconciliationDifference) => ({ kind: 'difference', day: at, ...call })

/** A failure if there is no such tenant and none of its calls: the name is mistyped. */
export const strangerFault = (name: string, house: OpsHouse): Failure | undefined =>
  tenantOf(name, house) === undefined && !hasCalls(name, house)
    ? new Failure('not_found', { says: `There is no tenant ${quoted(name)}, nor a call of it.`, param: 'tenant' })
    : undefined

const askedOf = (params: Readonly<Record<string, string>>, timezone: string | undefined, house: OpsHouse) => {
  const name = params['tenant'] ?? ''
  const tenant = tenantOf(name, house)
  const stranger = strangerFault(name, house)
  if (stranger) return stranger
  const period = invoicePeriod(params['month'] ?? '', timezone ?? invoiceTimezone(tenant))
  return period instanceof Failure ? period : { name, period }
}

const tenantOf = (name: string, { catalogue, house_db }: OpsHouse) =>
  catalogue().config.tenants.find((tenant) => tenant.name === name) ??
  allTenants(house_db).find(({ tenant }) => tenant.name === name)?.tenant

const hasCalls = (tenant: string, { ledger_reader }: OpsHouse): boolean =>
  ledger_reader.sqlite.query('SELECT 1 FROM rollups WHERE tenant = ? LIMIT 1').get(tenant) !== null
