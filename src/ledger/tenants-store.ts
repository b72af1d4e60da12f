import { asc, count, eq } from 'drizzle-orm'
import { Failure } from '../base/failure.ts'
import type { TenantConfig } from '../config/schema.ts'
import type { Store } from './database.ts'
import { tenants, type TenantRow } from './house-tables.ts'

/** Tenants made by the API, in `house.db`, beside those of the configuration. Only the control process may write. */

/** A tenant as the configuration would name it, and when it was made. */
export type StoredTenant = { readonly tenant: TenantConfig; readonly created_at_ms: number }

const TENANTS_MAX = 16_384

/** Adds a tenant. Requires a checked one; a failure if the name is taken here or there are too many. */
export const createTenant = ({ drizzle }: Store, tenant: TenantConfig, now_ms: number): StoredTenant | Failure => {
  const found = drizzle.select({ n: count() }).from(tenants).get()?.n ?? 0
  if (found >= TENANTS_MAX)
    return new Failure('field_invalid', {
      param: 'name',
      says: `There are ${TENANTS_MAX} tenants, the most that can be.`,
    })
  const row: TenantRow = { name: tenant.name, body_json: JSON.stringify(tenant), created_at_ms: now_ms }
  const made = drizzle.insert(tenants).values(row).onConflictDoNothing().returning({ name: tenants.name }).get()
  if (made === undefined)
    return new Failure('field_invalid', { param: 'name', says: `A tenant ${tenant.name} exists already.` })
  return tenantOf(row)
}

/** Puts a tenant in the place of the one with its name; a failure if there is none. */
export const replaceTenant = ({ drizzle }: Store, tenant: TenantConfig): StoredTenant | Failure => {
  const row = drizzle
    .update(tenants)
    .set({ body_json: JSON.stringify(tenant) })
    .where(eq(tenants.name, tenant.name))
    .returning()
    .get()
  return row === undefined ? unknownTenant(tenant.name) : tenantOf(row)
}

/** Takes a tenant away; its keys and rows stay. A failure if there is none. */
export const removeTenant = ({ drizzle }: Store, name: string): StoredTenant | Failure => {
  const row = drizzle.delete(tenants).where(eq(tenants.name, name)).returning().get()
  return row === undefined ? unknownTenant(name) : tenantOf(row)
}

/** One tenant; undefined if the API made none of this name. */
export const readTenant = ({ drizzle }: Store, name: string): StoredTenant | undefined => {
  const row = drizzle.select().from(tenants).where(eq(tenants.name, name)).get()
  return row && tenantOf(row)
}

/** All tenants by name. */
export const allTenants = ({ drizzle }: Store): StoredTenant[] =>
  drizzle.select().from(tenants).orderBy(asc(tenants.name)).all().map(tenantOf)

const tenantOf = (row: TenantRow): StoredTenant => ({
  tenant: JSON.parse(row.body_json),
  created_at_ms: row.created_at_ms,
})

const unknownTenant = (name: string): Failure =>
  new Failure('not_found', { param: 'name', says: `The API has made no tenant ${name}.` })
