import { Database } from 'bun:sqlite'
import { describe, expect, test } from 'bun:test'
import { Failure } from '../../src/base/failure.ts'
import { adminLogPage, logged, type AdminAction } from '../../src/ledger/admin-log.ts'
import { fileOf, openReader, openWriter } from '../../src/ledger/database.ts'
import {
  allKeys,
  createKey,
  expireKey,
  keyOfSecret,
  keysPage,
  revokeKey,
  sha256Hex,
  type NewKey,
} from '../../src/ledger/keys-store.ts'
import { allTenants, createTenant, readTenant, removeTenant, replaceTenant } from '../../src/ledger/tenants-store.ts'
import { tempFolder } from '../kit/wait.ts'
import { AT_MS } from './make.ts'

const openHouse = () => {
  const folder = tempFolder()
  const store = openWriter(folder.path, 'house')
  return {
    store,
    path: folder.path,
    [Symbol.dispose]: () => {
      store.sqlite.close()
      folder[Symbol.dispose]()
    },
  }
}

const sure = <T>(value: T | Failure): T => {
  if (value instanceof Failure) throw new Error(`${value.code}: ${value.detail.says}`)
  return value
}
const saysOf = (value: unknown) =>
  value instanceof Failure ? [value.code, value.detail.param, value.detail.says] : value

describe('keys', () => {
  test('the secret is shown once and stored nowhere', async () => {
    using house = openHouse()
    const { key, secret } = sure(createKey(house.store, { tenant: 'acme', name: 'ci' }, AT_MS))
    expect(secret).toMatch(/^weir_[\w-]{43}$/)
    expect(key).toEqual({
      id: key.id,
      sha256: sha256Hex(secret),
      prefix: secret.slice(0, 10),
      tenant: 'acme',
      name: 'ci',
      created_at_ms: AT_MS,
    })
    expect(keyOfSecret(house.store, secret)).toEqual(key)
    house.store.sqlite.run('PRAGMA wal_checkpoint(TRUNCATE)')
    expect(await Bun.file(fileOf(house.path, 'house')).text()).not.toContain(secret.slice(10))
  })

  test.each<[string, Partial<NewKey>, Record<string, unknown>]>([
    ['models', { models: ['m1', 'm2'] }, { models: ['m1', 'm2'] }],
    ['no models at all', { models: [] }, { models: [] }],
    ['limits', { limits: { concurrent: 5, requests_per_minute: 0 } }, { concurrent: 5, requests_per_minute: 0 }],
    ['an end', { expires_at_ms: AT_MS + 1 }, { expires_at_ms: AT_MS + 1 }],
    ['a secret of its own', { secret: 'weir-demo-key-0123456789' }, { prefix: 'weir-demo-' }],
    ['a short secret shows at most half', { secret: '0123456789abcdef' }, { prefix: '01234567' }],
  ])('%s', (_why, wanted, want) => {
    using house = openHouse()
    const { key } = sure(createKey(house.store, { tenant: 'acme', name: 'ci', ...wanted }, AT_MS))
    expect(key).toMatchObject(want)
    expect(allKeys(house.store)).toEqual([key])
  })

  test.each([
    ['short', ['field_invalid', 'secret', 'secret has 5 characters, needs 16.']],
    ['weir-demo-key-0123456789', ['field_invalid', 'secret', 'secret is the secret of another key.']],
  ] as const)('refuses the secret %s', (secret, want) => {
    using house = openHouse()
    sure(createKey(house.store, { tenant: 'demo', name: '', secret: 'weir-demo-key-0123456789' }, AT_MS))
    expect(saysOf(createKey(house.store, { tenant: 'acme', name: '', secret }, AT_MS))).toEqual([...want])
  })

  test('revoking is for good and keeps its first time; expiry can be moved', () => {
    using house = openHouse()
    const { key } = sure(createKey(house.store, { tenant: 'acme', name: 'ci' }, AT_MS))
    expect(revokeKey(house.store, key.id, AT_MS + 5)).toEqual({ ...key, revoked_at_ms: AT_MS + 5 })
    expect(revokeKey(house.store, key.id, AT_MS + 9)).toEqual({ ...key, revoked_at_ms: AT_MS + 5 })
    expect(expireKey(house.store, key.id, AT_MS + 7)).toMatchObject({ expires_at_ms: AT_MS + 7 })
    expect(expireKey(house.store, key.id, null)).toEqual({ ...key, revoked_at_ms: AT_MS + 5 })
    for (const change of [revokeKey(house.store, 'key_9', 0), expireKey(house.store, 'key_9', 0)])
      expect(saysOf(change)).toEqual(['not_found', 'id', 'There is no key key_9.'])
  })

  test('pages cover every key once, also while keys come in', () => {
    using house = openHouse()
    const make = (tenant: string) => sure(createKey(house.store, { tenant, name: '' }, AT_MS)).key.id
    const made = Array.from({ length: 7 }, (_, n) => make(n % 2 ? 'acme' : 'zeta'))
    const seen: string[] = []
    for (let cursor: string | undefined, page; ;) {
      page = keysPage(house.store, {}, 3, cursor)
      seen.push(...page.data.map(({ id }) => id))
      if (page.next_cursor === null) break
      cursor = page.next_cursor
      if (seen.length === 3) made.push(make('acme'))
    }
    expect(seen).toEqual(made)
    expect(keysPage(house.store, { tenant: 'zeta' }, 9).data).toHaveLength(4)
  })
})

test('tenants: made, read, replaced and removed by name', () => {
  using house = openHouse()
  const acme = { name: 'acme', budgets: [], limits: { concurrent: 3 } }
  expect(createTenant(house.store, acme, AT_MS)).toEqual({ tenant: acme, created_at_ms: AT_MS })
  expect(saysOf(createTenant(house.store, acme, AT_MS))).toEqual([
    'field_invalid',
    'name',
    'A tenant acme exists already.',
  ])
  const wider = { ...acme, limits: { concurrent: 9 }, models: ['m1'] }
  expect(replaceTenant(house.store, wider)).toEqual({ tenant: wider, created_at_ms: AT_MS })
  expect(readTenant(house.store, 'acme')?.tenant).toEqual(wider)
  expect(allTenants(house.store)).toHaveLength(1)
  expect(removeTenant(house.store, 'acme')).toEqual({ tenant: wider, created_at_ms: AT_MS })
  expect(readTenant(house.store, 'acme')).toBeUndefined()
  for (const change of [removeTenant(house.store, 'acme'), replaceTenant(house.store, acme)])
    expect(saysOf(change)).toEqual(['not_found', 'name', 'The API has made no tenant acme.'])
})

describe('the admin log', () => {
  const action = (subject: string): AdminAction => ({
    at_ms: AT_MS,
    actor: 'admin',
    action: 'keys.create',
    subject,
    detail: { tenant: 'acme' },
  })

  test('logs what was done, pages from the newest', () => {
    using house = openHouse()
    for (const name of ['a', 'b', 'c'])
      sure(
        logged(
          house.store,
          () => createKey(house.store, { tenant: 'acme', name }, AT_MS),
          () => action(name),
        ),
      )
    const first = sure(adminLogPage(house.store, 2))
    expect(first.data).toEqual([action('c'), action('b')])
    expect(sure(adminLogPage(house.store, 2, first.next_cursor ?? ''))).toEqual({
      data: [action('a')],
      next_cursor: null,
    })
    expect(saysOf(adminLogPage(house.store, 2, 'x'))).toEqual([
      'field_invalid',
      'cursor',
      'cursor must be the next_cursor of the page before.',
    ])
    expect(() => house.store.sqlite.run('DELETE FROM admin_log')).toThrow('append-only')
  })

  test.each([
    ['a failure', () => new Failure('not_found'), ['not_found', undefined, undefined]],
    [
      'a bug',
      () => {
        throw new Error('a bug')
      },
      'a bug',
    ],
  ] as const)('%s takes back the work and logs nothing', (_why, end, want) => {
    using house = openHouse()
    const work = () => {
      sure(createKey(house.store, { tenant: 'acme', name: '' }, AT_MS))
      return end()
    }
    const run = () => logged(house.store, work, () => action('x'))
    if (want === 'a bug') expect(run).toThrow(want)
    else expect(saysOf(run())).toEqual([...want])
    expect(allKeys(house.store)).toEqual([])
    expect(sure(adminLogPage(house.store, 5)).data).toEqual([])
  })

  test('a house that is held too long is a failure, not a crash', () => {
    using house = openHouse()
    house.store.sqlite.run('PRAGMA busy_timeout = 20')
    const other = new Database(fileOf(house.path, 'house'))
    other.run('BEGIN IMMEDIATE')
    const result = logged(
      house.store,
      () => createKey(house.store, { tenant: 'acme', name: '' }, AT_MS),
      () => action('x'),
    )
    expect(saysOf(result)).toEqual(['overloaded', undefined, 'The store is busy.'])
    other.close()
  })
})

test('a reader sees what the writer made', () => {
  using house = openHouse()
  const { key } = sure(createKey(house.store, { tenant: 'acme', name: 'ci', models: ['m1'] }, AT_MS))
  const reader = openReader(house.path, 'house')
  expect(allKeys(reader)).toEqual([key])
  reader.sqlite.close()
})
