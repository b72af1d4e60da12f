import { buildTenant, type Tenant } from '../balance/catalogue.ts'
import { Failure } from '../base/failure.ts'
import { keyBy, type KeyRecord } from '../table/key-file.ts'
import { subjectOf } from '../table/table.ts'
import { type Call, type Framed, type Identified, pass } from './call.ts'
import { credential } from './credential.ts'
import type { House } from './house.ts'

/** Says who calls: the key and its tenant. */
export const identify = (call: Framed, house: House): Identified | Failure => {
  const who = whoCalls(call.headers, house, call.received_at_ms)
  if (who instanceof Failure) return who
  const known: Call = call
  known.key = who.key
  known.tenant = who.tenant
  return pass<Identified>(call, 'identify')
}

/** The key that a head carries, compared by its SHA-256 (so the secret is never compared byte by byte), and its tenant. */
export const whoCalls = (
  headers: Headers,
  house: House,
  now_ms: number,
): { key: KeyRecord; tenant: Tenant } | Failure => {
  const secret = credential(headers)
  if (secret instanceof Failure) return secret
  const key = keyBy(house.keys, Bun.SHA256.hash(secret, 'hex'))
  if (key === undefined) return new Failure('key_invalid')
  const fault = keyFault(key, now_ms)
  if (fault) return fault
  const tenant = tenantOf(key, house)
  return tenant instanceof Failure ? tenant : { key, tenant }
}

/** Why a known key may not be used now, if it may not. */
export const keyFault = (key: KeyRecord, now_ms: number): Failure | undefined => {
  if (key.revoked_at_ms !== undefined && key.revoked_at_ms <= now_ms) return new Failure('key_revoked')
  if (key.expires_at_ms !== undefined && key.expires_at_ms <= now_ms) return new Failure('key_expired')
  return undefined
}

/** True if key and tenant both allow the model. */
export const mayUse = (key: KeyRecord, tenant: Tenant, model: string): boolean =>
  (key.models === undefined || key.models.includes(model)) &&
  (tenant.config.models === undefined || tenant.config.models.includes(model))

/** A tenant that the configuration does not name has no limits, but its calls are counted: it needs a place. */
export const tenantOf = (key: KeyRecord, house: House): Tenant | Failure => {
  const known = house.catalogue.tenants.get(key.tenant) ?? house.other_tenants.get(key.tenant)
  if (known) return known
  if (subjectOf(house.table, 'tenant', key.tenant) === undefined)
    return new Failure('table_full', { retry_after_s: 60 })
  const tenant = buildTenant({ name: key.tenant, budgets: [], limits: {} }, house.table)
  house.other_tenants.set(key.tenant, tenant)
  return tenant
}
