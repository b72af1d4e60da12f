import { type Static, Type } from '@sinclair/typebox'
import { Failure } from '../base/failure.ts'
import { nanodollars, usd as printed } from '../base/money.ts'
import { knownNames, quoted } from '../config/faults.ts'
import { logged } from '../ledger/admin-log.ts'
import { ordersPage, placeOrder } from '../ledger/adjustment-orders.ts'
import type { OrderRow } from '../ledger/house-tables.ts'
import { chargedTo, oneCall } from '../ledger/queries.ts'
import { isoOf } from '../ledger/wire.ts'
import { fieldFault } from './input.ts'
import type { Operator } from './operator.ts'
import type { OpsHouse } from './port.ts'
import { type AdminRoute, adminRoute, listOf, PAGE, PAGE_ROWS } from './route.ts'
import { tenantNames } from './tenants.ts'

const closed = { additionalProperties: false } as const

const amount = (pattern: string, allowed: string, description: string) =>
  Type.String({ pattern, title: 'an amount of USD', 'x-allowed': allowed, description })

const FIELDS = {
  tenant: Type.String({ minLength: 1, maxLength: 128, description: 'Whose money.' }),
  usd: amount(
    '^[0-9]{1,9}(\\.[0-9]{1,9})?$',
    'a decimal in quotes such as "12.50", at most 9 digits before the point and 9 after',
    'How much, in the tenant’s favour.',
  ),
  reason: Type.String({ minLength: 1, maxLength: 1_024, description: 'Why; stands in the ledger for ever.' }),
  id: Type.Optional(
    Type.String({
      pattern: '^[A-Za-z0-9._:-]{1,64}$',
      title: 'an id',
      'x-allowed': 'letters, digits and . _ : -, at most 64',
      description: 'Your own id of the order: one that is sent twice is done once. A new one if absent.',
    }),
  ),
} as const

const Grant = Type.Object(FIELDS, closed)

const Refund = Type.Object(
  {
    ...FIELDS,
    tenant: Type.Optional(FIELDS.tenant),
    call_id: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 64,
        description: 'The call that is refunded: at most its charge, all its refunds together. Names the tenant.',
      }),
    ),
  },
  closed,
)

const Adjustment = Type.Object(
  {
    ...FIELDS,
    usd: amount(
      '^-?[0-9]{1,9}(\\.[0-9]{1,9})?$',
      'a decimal in quotes such as "12.50" or "-0.75", at most 9 digits before the point and 9 after',
      'How much: in the tenant’s favour, or with a minus to its cost.',
    ),
  },
  closed,
)

type Asked = { tenant?: string; usd: string; reason: string; id?: string; call_id?: string }

const EXAMPLE = {
  id: 'order_0199a1b2c3d47e5f8a9b0c1d2e3f4a5b',
  kind: 'grant',
  tenant: 'acme',
  usd: '100.00',
  call_id: null,
  reason: 'contract 2026-17',
  at: '2026-01-31T09:30:00.000Z',
  actor: 'admin',
  posted: false,
}

const EXAMPLES = {
  grant: { usd: '100.00', reason: 'contract 2026-17' },
  refund: { usd: '0.25', reason: 'outage of 31 January' },
  adjustment: { usd: '-2.50', reason: 'support by hand' },
}

const POSTING = 'The accountant posts it to the ledger within a second; `posted` says whether it has.'

const BOUND =
  'What refunds and adjustments give a tenant is, all together, at most what its calls were charged, and what adjustments took from it: more answers 400 with what is left. Money beyond that is a grant.'

/** Money that people move: each order becomes one entry of the ledger, with its reason. */
export const GRANT_ROUTES: readonly AdminRoute[] = (
  [
    ['grant', 'grants', 'Grant money to a tenant', Grant],
    ['refund', 'refunds', 'Give charged money back', Refund],
    ['adjustment', 'adjustments', 'Correct what a tenant owes', Adjustment],
  ] as const
).flatMap(([kind, name, summary, body]) => [
  adminRoute({
    method: 'POST',
    path: `/admin/${name}`,
    tag: 'finance',
    summary,
    description: `${kind === 'grant' ? '' : `${BOUND} `}${POSTING} 201 for a new order, 200 for one that was there.`,
    body: body as typeof Refund,
    body_example: { tenant: 'demo', ...EXAMPLES[kind] },
    status: 201,
    example: { ...EXAMPLE, kind },
    failures: ['conflict', 'not_found'],
    run: ({ operator, body: asked }, house) => order(kind, operator, asked, house),
  }),
  adminRoute({
    method: 'GET',
    path: `/admin/${name}`,
    tag: 'finance',
    summary: `All ${name}, newest first`,
    query: Type.Object({ ...PAGE, tenant: Type.Optional(FIELDS.tenant) }, closed),
    example: listOf({ ...EXAMPLE, kind, posted: true }),
    run: ({ query }, house) => {
      const filter = { kind, ...(query.tenant !== undefined && { tenant: query.tenant }) }
      const page = ordersPage(house.house_db, filter, query.limit ?? PAGE_ROWS, query.cursor)
      if (page instanceof Failure) return page
      return { json: { data: page.data.map((row) => view(row, house)), next_cursor: page.next_cursor } }
    },
  }),
])

const order = (kind: OrderRow['kind'], operator: Operator, asked: Static<typeof Refund>, house: OpsHouse) => {
  const sum = nanodollars(asked.usd.replace(/^-/, '')) ?? 0n
  if (sum === 0n) return fieldFault('usd', `${quoted(asked.usd)} moves nothing`, 'allowed: an amount other than 0')
  const of_call = asked.call_id === undefined ? undefined : chargedCall(asked.call_id, asked, house)
  if (of_call instanceof Failure) return of_call
  const tenant = of_call?.tenant ?? asked.tenant
  if (tenant === undefined) return fieldFault('tenant', 'is missing', 'needed: a tenant, or the call_id of its call')
  const names = tenantNames(house)
  if (of_call === undefined && !names.includes(tenant))
    return fieldFault('tenant', `${quoted(tenant)} is not a tenant`, knownNames(tenant, names, 'tenant'))
  const charged = { to_tenant: chargedTo(house.ledger_reader, tenant), ...(of_call && { by_call: of_call.charge }) }
  const at_ms = Math.floor(house.now())
  const { name: actor } = operator
  const wanted = {
    at_ms,
    actor,
    kind,
    tenant,
    amount_nanodollars: asked.usd.startsWith('-') ? -sum : sum,
    call_id: asked.call_id ?? null,
    reason: asked.reason,
    ...(asked.id !== undefined && { id: asked.id }),
  }
  const placed = logged(
    house.house_db,
    () => placeOrder(house.house_db, wanted, charged),
    ({ order: { id }, is_new }) => ({
      at_ms,
      actor,
      action: is_new ? `${kind}.create` : `${kind}.repeat`,
      subject: tenant,
      detail: { ...asked, id },
    }),
  )
  if (placed instanceof Failure) return placed
  return { status: placed.is_new ? 201 : 200, json: view(placed.order, house) }
}

const chargedCall = (id: string, { tenant }: Asked, { ledger_reader }: OpsHouse) => {
  const call = oneCall(ledger_reader, id)?.row
  if (call === undefined)
    return new Failure('not_found', { says: `The ledger has no call ${quoted(id)}.`, param: 'call_id' })
  if (tenant !== undefined && tenant !== call.tenant)
    return fieldFault('tenant', `${quoted(tenant)} did not make the call`, `allowed: ${call.tenant}, or none`)
  return { tenant: call.tenant, charge: call.charge_nanodollars ?? 0n }
}

const view = ({ n, at_ms, amount_nanodollars, ...row }: OrderRow, { ledger_reader }: OpsHouse) => ({
  ...row,
  usd: printed(amount_nanodollars),
  at: isoOf(at_ms),
  posted: ledger_reader.sqlite.query('SELECT 1 FROM posted_orders WHERE n = ?').get(n) !== null,
})
