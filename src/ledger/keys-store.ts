import { and, asc, eq, gt } from 'drizzle-orm'
import { Failure } from '../base/failure.ts'
import { newId, newSecret } from '../base/ids.ts'
import { limits } from '../base/limits.ts'
import type { LimitsConfig } from '../config/schema.ts'
import type { KeyRecord } from '../table/key-file.ts'
import type { Store } from './database.ts'
import { keys, type KeyRow } from './house-tables.ts'
import type { Page } from './queries.ts'

/** API keys in `house.db`. Functions over its handle; only the control process may call those that write. */

/** A key as the store knows it: everything but the secret. */
export type StoredKey = KeyRecord & {
  /** The first characters of the secret, to recognise it by. */
  readonly prefix: string
  readonly created_at_ms: number
}

export type NewKey = {
  readonly tenant: string
  readonly name: string
  /** Absent: all models of the tenant. */
  readonly models?: readonly string[]
  readonly limits?: LimitsConfig & Pick<KeyRecord, 'budgets' | 'priority_max'>
  readonly expires_at_ms?: number
  /** A secret of your own, of at least 16 characters; absent: a new one of 256 bits. */
  readonly secret?: string
}

/** Shown characters of a secret: the rest of a generated one still has more than 200 random bits. */
const PREFIX_CHARACTERS = 10

/** Makes a key. Its secret is in the answer and nowhere else. A failure if the secret is in use or too short. */
export const createKey = (
  { drizzle }: Store,
  wanted: NewKey,
  now_ms: number,
): { readonly key: StoredKey; readonly secret: string } | Failure => {
  const secret = wanted.secret ?? newSecret()
  if (secret.length < limits.secret_characters_min)
    return new Failure('field_invalid', {
      param: 'secret',
      says: `secret has ${secret.length} characters, needs ${limits.secret_characters_min}.`,
    })
  const row: KeyRow = {
    id: newId('key'),
    sha256: sha256Hex(secret),
    prefix: secret.slice(0, Math.min(PREFIX_CHARACTERS, secret.length / 2)),
    tenant: wanted.tenant,
    name: wanted.name,
    models_json: wanted.models === undefined ? null : JSON.stringify(wanted.models),
    limits_json: JSON.stringify(wanted.limits ?? {}),
    expires_at_ms: wanted.expires_at_ms ?? null,
    revoked_at_ms: null,
    created_at_ms: now_ms,
  }
  const made = drizzle.insert(keys).values(row).onConflictDoNothing().returning({ id: keys.id }).get()
  if (made === undefined)
    return new Failure('field_invalid', { param: 'secret', says: 'secret is the secret of another key.' })
  return { key: keyOf(row), secret }
}

/** Keys in the order they were made, of one tenant or all; `cursor` is the `next_cursor` of the page before. */
export const keysPage = (
  { drizzle }: Store,
  { tenant }: { readonly tenant?: string },
  limit: number,
  cursor?: string,
): Page<StoredKey> => {
  const rows_max = Math.min(Math.max(Math.floor(limit), 1), limits.page_rows_max)
  const rows = drizzle
    .select()
    .from(keys)
    .where(
      and(
        tenant === undefined ? undefined : eq(keys.tenant, tenant),
        cursor === undefined ? undefined : gt(keys.id, cursor),
      ),
    )
    .orderBy(asc(keys.id))
    .limit(rows_max + 1)
    .all()
  const data = rows.slice(0, rows_max).map(keyOf)
  return { data, next_cursor: rows.length > rows_max ? (data.at(-1)?.id ?? null) : null }
}

/** Every key, for the workers' key file. */
export const allKeys = ({ drizzle }: Store): StoredKey[] =>
  drizzle.select().from(keys).orderBy(asc(keys.id)).all().map(keyOf)

/** The key with this secret; undefined if there is none. */
export const keyOfSecret = ({ drizzle }: Store, secret: string): StoredKey | undefined => {
  const row = drizzle
    .select()
    .from(keys)
    .where(eq(keys.sha256, sha256Hex(secret)))
    .get()
  return row && keyOf(row)
}

/** Ends a key for good. A key that was revoked before keeps its time; an unknown id is a failure. */
export const revokeKey = (store: Store, id: string, now_ms: number): StoredKey | Failure => {
  const row = rowOf(store, id)
  if (row === undefined) return unknownKey(id)
  return row.revoked_at_ms === null ? change(store, row, { revoked_at_ms: now_ms }) : keyOf(row)
}

/** Sets when a key ends, or with null that it does not end by itself. */
export const expireKey = (store: Store, id: string, expires_at_ms: number | null): StoredKey | Failure => {
  const row = rowOf(store, id)
  return row === undefined ? unknownKey(id) : change(store, row, { expires_at_ms })
}

/** What the store and the key file keep of a secret: its SHA-256 in lower-case hex. */
export const sha256Hex = (secret: string): string => Bun.SHA256.hash(secret, 'hex')

const rowOf = ({ drizzle }: Store, id: string): KeyRow | undefined =>
  drizzle.select().from(keys).where(eq(keys.id, id)).get()

const change = ({ drizzle }: Store, row: KeyRow, changes: Partial<KeyRow>): StoredKey => {
  drizzle.update(keys).set(changes).where(eq(keys.id, row.id)).run()
  return keyOf({ ...row, ...changes })
}

const unknownKey = (id: string): Failure => new Failure('not_found', { param: 'id', says: `There is no key ${id}.` })

const keyOf = (row: KeyRow): StoredKey => {
  const models: readonly string[] | null = row.models_json === null ? null : JSON.parse(row.models_json)
  const limited: NonNullable<NewKey['limits']> = JSON.parse(row.limits_json)
  return {
    id: row.id,
    sha256: row.sha256,
    prefix: row.prefix,
    tenant: row.tenant,
    name: row.name,
    created_at_ms: row.created_at_ms,
    ...limited,
    ...(models !== null && { models }),
    ...(row.expires_at_ms !== null && { expires_at_ms: row.expires_at_ms }),
    ...(row.revoked_at_ms !== null && { revoked_at_ms: row.revoked_at_ms }),
  }
}
