import type { StoredKey } from '../ledger/keys-store.ts'
import type { KeyRecord } from '../table/key-file.ts'
import { isoOrNull } from './machine.ts'

/** A stored key as the workers read it. */
export const keyRecord = ({ prefix: _prefix, created_at_ms: _created, ...record }: StoredKey): KeyRecord => record

/** A stored key as the admin API shows it: neither the secret nor its hash. */
export const keyView = (key: StoredKey) => ({
  id: key.id,
  prefix: key.prefix,
  tenant: key.tenant,
  name: key.name,
  models: key.models ?? null,
  requests_per_minute: key.requests_per_minute ?? null,
  tokens_per_minute: key.tokens_per_minute ?? null,
  concurrent: key.concurrent ?? null,
  priority_max: key.priority_max ?? null,
  budgets: key.budgets ?? [],
  created_at: isoOrNull(key.created_at_ms),
  expires_at: isoOrNull(key.expires_at_ms),
  revoked_at: isoOrNull(key.revoked_at_ms),
})
