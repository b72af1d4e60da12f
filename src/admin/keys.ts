import { type Static, Type } from '@sinclair/typebox'
import { Failure } from '../base/failure.ts'
import { knownNames, quoted } from '../config/faults.ts'
import { name } from '../config/kinds.ts'
import { type BudgetConfig, Limits, PriorityMax } from '../config/schema.ts'
import { logged } from '../ledger/admin-log.ts'
import { createKey, keysPage, type NewKey as NewKeyWish, revokeKey, type StoredKey } from '../ledger/keys-store.ts'
import { appendKeys } from '../table/key-file.ts'
import { fieldFault } from './input.ts'
import { keyRecord, keyView } from './key-view.ts'
import { NewBudgets, wholeBudgets } from './new-budget.ts'
import type { Operator } from './operator.ts'
import type { OpsHouse } from './port.ts'
import { type AdminRoute, adminRoute, listOf, PAGE, PAGE_ROWS } from './route.ts'
import { tenantNames } from './tenants.ts'
import { timeField, timeOf } from './times.ts'

const NewKey = Type.Object(
  {
    tenant: name('Whose key it is.'),
    name: Type.Optional(Type.String({ minLength: 1, maxLength: 128, description: 'What it is for; “key” if absent.' })),
    models: Type.Optional(
      Type.Array(Type.String({ minLength: 1, maxLength: 128 }), {
        minItems: 1,
        maxItems: 256,
        description: 'Models it may use; all of the tenant’s if absent.',
      }),
    ),
    ...Limits.properties,
    priority_max: Type.Optional({
      ...PriorityMax,
      description: 'The highest class that x-weir-priority may ask for with it; never higher than the tenant’s.',
    }),
    budgets: Type.Optional(NewBudgets),
    expires_at: Type.Optional(timeField('When it ceases to be valid; never if absent.')),
  },
  { additionalProperties: false },
)

const KeysQuery = Type.Object(
  {
    tenant: Type.Optional(Type.String({ minLength: 1, maxLength: 128, description: 'Only keys of this tenant.' })),
    ...PAGE,
  },
  { additionalProperties: false },
)

const KEY_EXAMPLE = {
  id: 'key_0199a1b2c3d47e5f8a9b0c1d2e3f4a5b',
  prefix: 'weir_Zk3v',
  tenant: 'acme',
  name: 'web shop',
  models: ['llama-3.1-8b'],
  requests_per_minute: 600,
  tokens_per_minute: null,
  concurrent: 20,
  priority_max: null,
  budgets: [{ usd: '25.00', per: 'month', timezone: 'UTC' }],
  created_at: '2026-01-31T09:30:00.000Z',
  expires_at: null,
  revoked_at: null,
}

/** API keys: made, listed, revoked. Workers know of a change within a second. */
export const KEY_ROUTES: readonly AdminRoute[] = [
  adminRoute({
    method: 'POST',
    path: '/admin/keys',
    tag: 'keys',
    summary: 'Make a key',
    description: 'The secret stands in the answer and nowhere else: Weir keeps only its SHA-256.',
    body: NewKey,
    body_example: { tenant: 'demo', name: 'web shop', models: ['demo'], requests_per_minute: 600 },
    status: 201,
    example: { key: 'weir_Zk3v…', ...KEY_EXAMPLE },
    run: ({ operator, body }, house) => create(operator, body, house),
  }),
  adminRoute({
    method: 'GET',
    path: '/admin/keys',
    tag: 'keys',
    summary: 'Keys in the order they were made',
    query: KeysQuery,
    example: listOf(KEY_EXAMPLE),
    run: ({ query }, { house_db }) => {
      const page = keysPage(
        house_db,
        query.tenant === undefined ? {} : { tenant: query.tenant },
        query.limit ?? PAGE_ROWS,
        query.cursor,
      )
      return { json: { data: page.data.map(keyView), next_cursor: page.next_cursor } }
    },
  }),
  ...(
    [
      ['DELETE', '/admin/keys/:id'],
      ['POST', '/admin/keys/:id/revoke'],
    ] as const
  ).map(([method, path]) =>
    adminRoute({
      method,
      path,
      tag: 'keys',
      summary: 'Revoke a key',
      description: 'For good. A key that is revoked stays in the list, and revoking it again changes nothing.',
      example: { ...KEY_EXAMPLE, revoked_at: '2026-02-01T00:00:00.000Z' },
      failures: ['not_found'],
      run: ({ operator, params }, house) => revoke(operator, params['id'] ?? '', house),
    }),
  ),
]

const create = (operator: Operator, asked: Static<typeof NewKey>, house: OpsHouse) => {
  const { house_db, catalogue, now } = house
  const at_ms = Math.floor(now())
  const { config } = catalogue()
  const tenants = tenantNames(house)
  if (!tenants.includes(asked.tenant))
    return fieldFault('tenant', `${quoted(asked.tenant)} is not a tenant`, knownNames(asked.tenant, tenants, 'tenant'))
  const models = config.models.map((model) => model.name)
  for (const [index, model] of (asked.models ?? []).entries())
    if (!models.includes(model))
      return fieldFault(`models[${index}]`, `${quoted(model)} is not a model`, knownNames(model, models, 'model'))
  const expires_at_ms = timeOf('expires_at', asked.expires_at)
  if (expires_at_ms instanceof Failure) return expires_at_ms
  if (expires_at_ms !== undefined && expires_at_ms <= at_ms)
    return fieldFault('expires_at', `${quoted(asked.expires_at ?? '')} is past`, 'allowed: a time to come')
  const budgets = wholeBudgets(asked.budgets ?? [])
  if (budgets instanceof Failure) return budgets
  const made = logged(
    house_db,
    () => {
      const stored = createKey(house_db, wantedKey(asked, budgets, expires_at_ms), at_ms)
      if (!(stored instanceof Failure)) tellWorkers(house, stored.key)
      return stored
    },
    ({ key: { id, prefix } }) => ({
      at_ms,
      actor: operator.name,
      action: 'key.create',
      subject: id,
      detail: { ...asked, prefix },
    }),
  )
  if (made instanceof Failure) return made
  house.log('info', 'key_created', { id: made.key.id, tenant: made.key.tenant, by: operator.name })
  return { json: { key: made.secret, ...keyView(made.key) } }
}

// Inside the transaction: a key that cannot be told to the workers is not stored, and not taken for revoked either.
const tellWorkers = ({ key_file_path, table }: OpsHouse, key: StoredKey): void =>
  appendKeys(key_file_path, table, [keyRecord(key)])

const wantedKey = (
  asked: Static<typeof NewKey>,
  budgets: readonly BudgetConfig[],
  expires_at_ms: number | undefined,
): NewKeyWish => {
  const { tenant, name: wanted_name = 'key', models, expires_at: _expires_at, budgets: _budgets, ...limits } = asked
  return {
    tenant,
    name: wanted_name,
    limits: { ...limits, ...(budgets.length > 0 && { budgets }) },
    ...(models !== undefined && { models }),
    ...(expires_at_ms !== undefined && { expires_at_ms }),
  }
}

const revoke = (operator: Operator, id: string, house: OpsHouse) => {
  const { house_db, now } = house
  const at_ms = Math.floor(now())
  const key = logged(
    house_db,
    () => {
      const stored = revokeKey(house_db, id, at_ms)
      if (!(stored instanceof Failure)) tellWorkers(house, stored)
      return stored
    },
    ({ tenant, prefix }) => ({
      at_ms,
      actor: operator.name,
      action: 'key.revoke',
      subject: id,
      detail: { tenant, prefix },
    }),
  )
  if (key instanceof Failure) return key
  house.log('info', 'key_revoked', { id, tenant: key.tenant, by: operator.name })
  return { json: keyView(key) }
}
