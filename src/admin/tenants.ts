import { type Static, Type } from '@sinclair/typebox'
import { Failure } from '../base/failure.ts'
import { knownNames, quoted } from '../config/faults.ts'
import { Limits, Tenant, type TenantConfig } from '../config/schema.ts'
import { logged } from '../ledger/admin-log.ts'
import { allTenants, createTenant } from '../ledger/tenants-store.ts'
import { SUBJECT } from '../table/layout.ts'
import { subjectOf } from '../table/table.ts'
import { fieldFault } from './input.ts'
import { isoOrNull } from './machine.ts'
import { NewBudgets, wholeBudgets } from './new-budget.ts'
import type { Operator } from './operator.ts'
import type { OpsHouse } from './port.ts'
import { type AdminRoute, adminRoute, listOf, PAGE, pageOf } from './route.ts'

/** A tenant of the configuration, but that what has a default may be absent. */
const NewTenant = Type.Object(
  {
    name: Tenant.properties.name,
    budgets: Type.Optional(NewBudgets),
    limits: Type.Optional(Type.Object(Limits.properties, { additionalProperties: false })),
    models: Tenant.properties.models,
  },
  { additionalProperties: false },
)

const TENANT_EXAMPLE = {
  name: 'acme',
  budgets: [{ usd: '100.00', per: 'month', timezone: 'Asia/Seoul' }],
  limits: { requests_per_minute: 600, concurrent: 50 },
  models: ['llama-3.1-8b'],
  source: 'config',
  created_at: null,
}

/** Who may call: the tenants of the configuration, and those made here. */
export const TENANT_ROUTES: readonly AdminRoute[] = [
  adminRoute({
    method: 'GET',
    path: '/admin/tenants',
    tag: 'keys',
    summary: 'Tenants by name',
    description: '`source` says where a tenant comes from: `config` or `api`.',
    query: Type.Object(PAGE, { additionalProperties: false }),
    example: listOf(TENANT_EXAMPLE),
    run: ({ query }, house) => ({ json: pageOf(tenantViews(house), ({ name }) => name, query) }),
  }),
  adminRoute({
    method: 'POST',
    path: '/admin/tenants',
    tag: 'keys',
    summary: 'Make a tenant',
    body: NewTenant,
    body_example: { name: 'acme', budgets: [{ usd: '100.00', per: 'month' }], limits: { requests_per_minute: 600 } },
    status: 201,
    example: { ...TENANT_EXAMPLE, source: 'api', created_at: '2026-01-31T09:30:00.000Z' },
    failures: ['conflict'],
    run: ({ operator, body }, house) => create(operator, body, house),
  }),
  adminRoute({
    method: 'GET',
    path: '/admin/tenants/:name',
    tag: 'keys',
    summary: 'One tenant and its calls in flight',
    example: { ...TENANT_EXAMPLE, in_flight: 3 },
    failures: ['not_found'],
    run: ({ params }, house) => {
      const tenant = tenantViews(house).find(({ name }) => name === params['name'])
      if (tenant === undefined)
        return new Failure('not_found', { says: `There is no tenant ${quoted(params['name'] ?? '')}.`, param: 'name' })
      const subject = subjectOf(house.table, 'tenant', tenant.name)
      const in_flight = subject === undefined ? null : Atomics.load(house.table.i32, subject * 2 + SUBJECT.count)
      return { json: { ...tenant, in_flight } }
    },
  }),
]

/** The tenants that the API made, as a configuration would have them. Those that the configuration names since are left out. */
export const tenantsMade = ({ house_db, catalogue }: Pick<OpsHouse, 'house_db' | 'catalogue'>): TenantConfig[] => {
  const configured = new Set(catalogue().config.tenants.map(({ name }) => name))
  return allTenants(house_db)
    .map(({ tenant }) => tenant)
    .filter(({ name }) => !configured.has(name))
}

/** The names of all tenants. */
export const tenantNames = (house: OpsHouse): string[] => tenantViews(house).map(({ name }) => name)

const tenantViews = ({ house_db, catalogue }: OpsHouse) => {
  const configured = catalogue().config.tenants
  const shown = (tenant: TenantConfig, source: 'config' | 'api', created_at_ms: number | null) => ({
    ...tenant,
    models: tenant.models ?? null,
    source,
    created_at: isoOrNull(created_at_ms),
  })
  // The control process may have joined made tenants to the configuration: they stay what they are.
  const views = new Map(configured.map((tenant) => [tenant.name, shown(tenant, 'config', null)]))
  for (const { tenant, created_at_ms } of allTenants(house_db))
    views.set(tenant.name, shown(tenant, 'api', created_at_ms))
  return [...views.values()]
}

const create = (operator: Operator, asked: Static<typeof NewTenant>, house: OpsHouse) => {
  if (tenantNames(house).includes(asked.name))
    return new Failure('conflict', { says: `There is a tenant ${quoted(asked.name)} already.`, param: 'name' })
  const models = house.catalogue().config.models.map((model) => model.name)
  for (const [index, model] of (asked.models ?? []).entries())
    if (!models.includes(model))
      return fieldFault(`models[${index}]`, `${quoted(model)} is not a model`, knownNames(model, models, 'model'))
  const budgets = wholeBudgets(asked.budgets ?? [])
  if (budgets instanceof Failure) return budgets
  const tenant: TenantConfig = {
    name: asked.name,
    budgets,
    limits: asked.limits ?? {},
    ...(asked.models !== undefined && { models: asked.models }),
  }
  const at_ms = Math.floor(house.now())
  const made = logged(
    house.house_db,
    () => createTenant(house.house_db, tenant, at_ms),
    () => ({ at_ms, actor: operator.name, action: 'tenant.create', subject: tenant.name, detail: { ...asked } }),
  )
  if (made instanceof Failure) return made
  house.tenantsChanged(tenantsMade(house))
  house.log('info', 'tenant_created', { tenant: tenant.name, by: operator.name })
  return {
    status: 201,
    json: { ...tenant, models: tenant.models ?? null, source: 'api', created_at: isoOrNull(at_ms) },
  }
}
