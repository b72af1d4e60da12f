import { expect, test } from 'bun:test'
import { Failure } from '../../src/base/failure.ts'
import { credential } from '../../src/pipeline/credential.ts'
import { keyFault, mayUse, whoCalls } from '../../src/pipeline/identify.ts'
import { subjectOf } from '../../src/table/table.ts'
import { NOW_MS, SECRET, unitHouse } from './unit-house.ts'

test.each([
  // headers, the credential or the failure
  [{ authorization: 'Bearer K' }, 'K'],
  [{ authorization: 'bearer K' }, 'K'],
  [{ authorization: 'BEARER K' }, 'K'],
  [{ authorization: 'Bearer   K' }, 'K'],
  [{ 'x-api-key': 'K' }, 'K'],
  [{ 'api-key': 'K' }, 'K'],
  [{ authorization: 'Bearer K', 'x-api-key': 'K', 'api-key': 'K' }, 'K'],
  [{ authorization: 'Bearer K', 'x-api-key': '' }, 'K'],
  [{}, 'key_missing'],
  [{ 'x-api-key': '' }, 'key_missing'],
  [{ authorization: '' }, 'key_invalid'],
  [{ authorization: 'Bearer' }, 'key_invalid'],
  [{ authorization: 'Basic K' }, 'key_invalid'],
  [{ authorization: 'BearerK' }, 'key_invalid'],
  [{ authorization: 'K' }, 'key_invalid'],
  [{ authorization: 'Basic K', 'x-api-key': 'K' }, 'key_invalid'],
  [{ authorization: 'Bearer K', 'x-api-key': 'L' }, 'keys_differ'],
  [{ authorization: 'Bearer K', 'api-key': 'k' }, 'keys_differ'],
  [{ 'x-api-key': 'K', 'api-key': 'L' }, 'keys_differ'],
] as const)('%j → %s', (headers, wanted) => {
  const found = credential(new Headers(headers as Record<string, string>))
  expect(found instanceof Failure ? found.code : found).toBe(wanted)
})

test.each([
  [{}, 'ok'],
  [{ expires_at_ms: NOW_MS + 1 }, 'ok'],
  [{ expires_at_ms: NOW_MS }, 'key_expired'],
  [{ revoked_at_ms: NOW_MS }, 'key_revoked'],
  [{ revoked_at_ms: NOW_MS + 1 }, 'ok'],
  [{ revoked_at_ms: NOW_MS - 1, expires_at_ms: NOW_MS - 1 }, 'key_revoked'],
])('a key with %j is %s', (times, wanted) => {
  expect(keyFault({ id: 'k', sha256: '', tenant: 't', name: 'n', ...times }, NOW_MS)?.code ?? 'ok').toBe(wanted)
})

test.each([
  // key's models, tenant's models, may use m1
  [undefined, undefined, true],
  [['m1'], undefined, true],
  [undefined, ['m1'], true],
  [['m1'], ['m2'], false],
  [['m2'], ['m1'], false],
  [[], undefined, false],
  [undefined, [], false],
] as const)('key %j and tenant %j', (key_models, tenant_models, wanted) => {
  const key = { id: 'k', sha256: '', tenant: 't', name: 'n', ...(key_models && { models: key_models }) }
  const config = { name: 't', budgets: [], limits: {}, ...(tenant_models && { models: [...tenant_models] }) }
  expect(mayUse(key, { name: 't', config, subject: 0, budgets: [] }, 'm1')).toBe(wanted)
})

test('a key is found by its hash, exactly; a tenant that is not configured has no limits', async () => {
  await using unit = await unitHouse({ keys: [{ tenant: 'acme' }, { secret: 'other', tenant: 'guest' }] })
  const who = (secret: string) => whoCalls(new Headers({ 'x-api-key': secret }), unit.house, NOW_MS)
  expect(who(SECRET)).toMatchObject({ tenant: { name: 'acme' } })
  expect(who(SECRET.toUpperCase())).toMatchObject({ code: 'key_invalid' })
  expect(who(`${SECRET}x`)).toMatchObject({ code: 'key_invalid' })
  expect(who('other')).toMatchObject({ tenant: { name: 'guest', config: { limits: {} } } })
  expect(unit.house.other_tenants.size).toBe(1)
})

test('a tenant for whom the shared table has no place is refused for a while, not a bug', async () => {
  await using unit = await unitHouse({ keys: [{ tenant: 'guest' }] })
  for (let n = 0; subjectOf(unit.house.table, 'filler', String(n)) !== undefined; n++);
  const who = whoCalls(new Headers({ 'x-api-key': SECRET }), unit.house, NOW_MS)
  expect(who).toMatchObject({ code: 'table_full', detail: { retry_after_s: 60 } })
})
