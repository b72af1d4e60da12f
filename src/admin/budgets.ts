import { type Static, Type } from '@sinclair/typebox'
import { Failure } from '../base/failure.ts'
import { nanodollars, usd as printed } from '../base/money.ts'
import { windowAt } from '../base/windows.ts'
import { budgetLimit, withIncreases } from '../config/budgets.ts'
import { quoted } from '../config/faults.ts'
import { Budget, type BudgetConfig, type TenantConfig } from '../config/schema.ts'
import { addIncrease, openIncreases, tenantIncreases } from '../ledger/adjustment-orders.ts'
import { logged } from '../ledger/admin-log.ts'
import { spentBetween } from '../ledger/invoice-sums.ts'
import { allTenants } from '../ledger/tenants-store.ts'
import { isoOf } from '../ledger/wire.ts'
import { fieldFault } from './input.ts'
import type { Operator } from './operator.ts'
import type { OpsHouse } from './port.ts'
import { type AdminRoute, adminRoute, listOf, PAGE, pageOf } from './route.ts'
import { tenantsMade } from './tenants.ts'
import { timeField, timeOf } from './times.ts'

const closed = { additionalProperties: false } as const
/** Increases of one tenant that run at once. */
const INCREASES_MAX = 64

const Increase = Type.Object(
  {
    usd: Budget.properties.usd,
    until: timeField('When it ends.'),
    reason: Type.String({ minLength: 1, maxLength: 1_024, description: 'Why.' }),
    per: Type.Optional(Budget.properties.per),
    timezone: Type.Optional(Budget.properties.timezone),
  },
  closed,
)

const EXAMPLE = {
  tenant: 'acme',
  per: 'month',
  timezone: 'Asia/Seoul',
  usd: '100.00',
  limit_usd: '150.00',
  spent_usd: '42.1265',
  left_usd: '107.8735',
  from: '2026-01-31T15:00:00.000Z',
  to: '2026-02-28T15:00:00.000Z',
  increases: [{ usd: '50.00', until: '2026-02-10T00:00:00.000Z', reason: 'launch' }],
}

/** Budgets as the ledger sees them, and how they are raised for a while. */
export const BUDGET_ROUTES: readonly AdminRoute[] = [
  adminRoute({
    method: 'GET',
    path: '/admin/budgets',
    tag: 'finance',
    summary: 'Budgets of all tenants, their windows and what is left',
    description:
      '`spent_usd` is what is posted for calls that began in the window, less refunds posted in it; calls in flight hold more. `from` and `to` are null where the window is all of time.',
    query: Type.Object({ ...PAGE, tenant: Type.Optional(Type.String({ minLength: 1, maxLength: 128 })) }, closed),
    example: listOf(EXAMPLE),
    run: ({ query }, house) => {
      const tenants = tenantsNow(house).filter(
        ({ name, budgets }) => budgets.length > 0 && (query.tenant === undefined || query.tenant === name),
      )
      const { data, next_cursor } = pageOf(tenants, ({ name }) => name, query)
      return { json: { data: data.flatMap((tenant) => views(tenant, house)), next_cursor } }
    },
  }),
  adminRoute({
    method: 'POST',
    path: '/admin/budgets/:tenant/increase',
    tag: 'finance',
    summary: 'Raise a budget until a time',
    description: `Raises the budgets of the tenant that have the named window, all its budgets if no window is named. In force in every worker within a second. At most ${INCREASES_MAX} run at once.`,
    body: Increase,
    body_example: { usd: '50.00', until: '2030-01-31T00:00:00Z', reason: 'launch' },
    status: 201,
    example: listOf(EXAMPLE),
    failures: ['not_found'],
    run: ({ operator, params, body }, house) => increase(operator, params['tenant'] ?? '', body, house),
  }),
]

const increase = (operator: Operator, name: string, asked: Static<typeof Increase>, house: OpsHouse) => {
  const tenant = tenantsNow(house).find((each) => each.name === name)
  if (tenant === undefined)
    return new Failure('not_found', { says: `There is no tenant ${quoted(name)}.`, param: 'tenant' })
  const at_ms = Math.floor(house.now())
  const until_ms = timeOf('until', asked.until)
  if (until_ms instanceof Failure) return until_ms
  if (until_ms === undefined || until_ms <= at_ms)
    return fieldFault('until', `${quoted(asked.until)} is past`, 'allowed: a time to come')
  if ((nanodollars(asked.usd) ?? 0n) === 0n)
    return fieldFault('usd', `${quoted(asked.usd)} raises nothing`, 'allowed: an amount above 0')
  const raised = tenant.budgets.filter(
    ({ per, timezone }) => (asked.per ?? per) === per && (asked.timezone ?? timezone) === timezone,
  )
  if (raised.length === 0)
    return fieldFault(
      'per',
      'no budget of the tenant has this window',
      `its budgets: ${tenant.budgets.map(said).join('; ') || 'none'}`,
    )
  if (openIncreases(house.house_db, at_ms, name).length + raised.length > INCREASES_MAX)
    return fieldFault('tenant', `${quoted(name)} has too many increases`, `allowed: ${INCREASES_MAX} at once`)
  const { name: actor } = operator
  const { usd, reason } = asked
  const added = logged(
    house.house_db,
    () =>
      raised.map(({ per, timezone }) =>
        addIncrease(house.house_db, { at_ms, actor, tenant: name, per, timezone, usd, until_ms, reason }),
      ),
    () => ({ at_ms, actor, action: 'budget.increase', subject: name, detail: { ...asked } }),
  )
  if (added instanceof Failure) return added
  house.tenantsChanged(tenantsMade(house))
  house.log('info', 'budget_increased', { tenant: name, usd, until: isoOf(until_ms), by: actor })
  const now = tenantsNow(house).find((each) => each.name === name)!
  return { status: 201, json: { data: views(now, house), next_cursor: null } }
}

const said = ({ usd, per, timezone }: BudgetConfig): string => `${usd} per ${per} in ${timezone}`

/** All tenants with the increases of the store, whether or not the configuration in force has them yet. */
const tenantsNow = ({ house_db, catalogue, now }: OpsHouse): TenantConfig[] => {
  const increases = tenantIncreases(house_db, now())
  const tenants = new Map(catalogue().config.tenants.map((tenant) => [tenant.name, tenant]))
  for (const { tenant } of allTenants(house_db)) if (!tenants.has(tenant.name)) tenants.set(tenant.name, tenant)
  return [...tenants.values()].map((tenant) => withIncreases(bare(tenant, increases), increases))
}

/** A tenant without those of its increases that the store has too. */
const bare = (tenant: TenantConfig, stored: ReturnType<typeof tenantIncreases>): TenantConfig => ({
  ...tenant,
  budgets: tenant.budgets.map((budget) => ({
    ...budget,
    increases: (budget.increases ?? []).filter(
      ({ usd, until, reason }) =>
        !stored.some(
          (one) => one.tenant === tenant.name && one.usd === usd && one.until === until && one.reason === reason,
        ),
    ),
  })),
})

const views = ({ name, budgets }: TenantConfig, { ledger_reader, now }: OpsHouse) =>
  budgets.map((budget) => {
    const at_ms = Math.floor(now())
    const { start_ms, end_ms } = windowAt(budget.per, budget.timezone, at_ms)
    const limit = budgetLimit(budget, at_ms)
    const spent = spentBetween(ledger_reader, name, start_ms, end_ms)
    return {
      tenant: name,
      per: budget.per,
      timezone: budget.timezone,
      usd: budget.usd,
      limit_usd: printed(limit),
      spent_usd: printed(spent),
      left_usd: printed(limit > spent ? limit - spent : 0n),
      from: Number.isFinite(end_ms) ? isoOf(start_ms) : null,
      to: Number.isFinite(end_ms) ? isoOf(end_ms) : null,
      increases: budget.increases ?? [],
    }
  })
