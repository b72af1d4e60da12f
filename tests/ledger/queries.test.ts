import { afterAll, expect, test } from 'bun:test'
import { Failure } from '../../src/base/failure.ts'
import { openWriter } from '../../src/ledger/database.ts'
import { createPoster } from '../../src/ledger/poster.ts'
import { balances, callsPage, oneCall, usage, type CallFilter, type UsageGroup } from '../../src/ledger/queries.ts'
import { findFaults } from '../../src/ledger/reconcile.ts'
import { attemptOnWire, callOnWire, moneyOnWire } from '../../src/ledger/wire.ts'
import { tempFolder } from '../kit/wait.ts'
import { postAll } from './books.ts'
import { AT_MS, attempt, ending, intent, journal } from './make.ts'

const DAY_MS = 86_400_000
const folder = tempFolder()
const store = openWriter(folder.path, 'ledger')
const poster = createPoster(store)
const call = (id: string, tenant: string, model: string, at_ms: number) => [
  intent(id, { tenant, model, at_ms }),
  ...(id === 'c5' ? [attempt(id)] : []),
  ending(id, { at_ms: at_ms + 1000 }),
]
postAll(
  poster,
  journal('w', [
    ...call('c1', 'acme', 'm1', AT_MS),
    ...call('c2', 'acme', 'm9', AT_MS),
    ...call('c3', 'zeta', 'm1', AT_MS),
    ...call('c4', 'acme', 'm1', AT_MS + 1),
    ...call('c5', 'acme', 'm1', AT_MS + DAY_MS),
    ...call('c6', 'zeta', 'm1', AT_MS + DAY_MS),
    intent('open', { tenant: 'acme' }),
  ]),
  100,
)
poster.transfer({
  call_id: null,
  at_ms: AT_MS,
  kind: 'grant',
  debit: 'grants',
  credit: 'tenant:acme',
  amount_nanodollars: 10n ** 18n,
  reason: 'contract',
})
afterAll(() => {
  store.sqlite.close()
  folder[Symbol.dispose]()
})

const pages = (filter: CallFilter, limit: number): string[] => {
  const seen: string[] = []
  for (let cursor: string | undefined; ;) {
    const page = callsPage(store, filter, limit, cursor)
    if (page instanceof Failure) throw new Error(page.code)
    expect(page.data.length).toBeLessThanOrEqual(limit)
    seen.push(...page.data.map(({ id }) => id))
    if (page.next_cursor === null) return seen
    cursor = page.next_cursor
  }
}

test.each<[CallFilter, string]>([
  [{}, 'c6 c5 c4 c3 c2 c1'],
  [{ tenant: 'acme' }, 'c5 c4 c2 c1'],
  [{ model: 'm9' }, 'c2'],
  [{ tenant: 'zeta', model: 'm1' }, 'c6 c3'],
  [{ from_ms: AT_MS + 1 }, 'c6 c5 c4'],
  [{ to_ms: AT_MS + 1 }, 'c3 c2 c1'],
  [{ from_ms: AT_MS + 1, to_ms: AT_MS + DAY_MS }, 'c4'],
  [{ tenant: 'nobody' }, ''],
])('calls of %j, in pages of every size', (filter, want) => {
  for (const limit of [1, 2, 3, 6, 1000]) expect(pages(filter, limit).join(' ')).toBe(want)
})

test.each(['', 'x', '5', '.c1', `1.${'x'.repeat(300)}`])('the cursor %p is refused', (cursor) => {
  const page = callsPage(store, {}, 5, cursor)
  expect(page instanceof Failure && [page.code, page.detail.param]).toEqual(['field_invalid', 'cursor'])
})

test('a page finds its place by the index, however deep', () => {
  // Finalised at once: an EXPLAIN that was read to its end still counts as a statement in progress.
  using statement = store.sqlite.prepare<{ detail: string }, []>(
    `EXPLAIN QUERY PLAN SELECT * FROM calls WHERE tenant = 'acme' AND (at_ms, id) < (5, 'x')
     ORDER BY at_ms DESC, id DESC LIMIT 5`,
  )
  const plan = statement.all().map(({ detail }) => detail)
  expect(plan.join()).toMatch(/calls_tenant_at \(tenant=\? AND \(at_ms,id\)<\(\?,\?\)\)$/)
})

test('one call, with its engines and its entries', () => {
  const found = oneCall(store, 'c5')
  expect(found?.row).toMatchObject({ id: 'c5', tenant: 'acme', stream: true, charge_nanodollars: 6_550_000n })
  expect(found?.attempts.map(({ n, engine }) => [n, engine])).toEqual([
    [1, 'e1'],
    [2, 'e2'],
  ])
  expect(found?.entries.map(({ kind, amount_nanodollars }) => [kind, amount_nanodollars])).toEqual([
    ['capture', 6_550_000n],
  ])
  expect(oneCall(store, 'open')).toBeUndefined()
})

test.each<[UsageGroup[], CallFilter, string[]]>([
  [[], {}, ['6 1 32750000']],
  [['tenant'], {}, ['acme 4 1 19650000', 'zeta 2 0 13100000']],
  [['model', 'tenant'], {}, ['acme m1 3 0 19650000', 'acme m9 1 1 0', 'zeta m1 2 0 13100000']],
  [['day'], {}, ['2026-07-31 4 1 19650000', '2026-08-01 2 0 13100000']],
  [['day'], { tenant: 'zeta', from_ms: AT_MS + DAY_MS }, ['2026-08-01 1 0 6550000']],
  [['day'], { to_ms: Date.UTC(2026, 7, 1) }, ['2026-07-31 4 1 19650000']],
  [['day'], { to_ms: Date.UTC(2026, 7, 1) + 1, model: 'm9' }, ['2026-07-31 1 1 0']],
  [['tenant'], { tenant: 'nobody' }, []],
  [['key'], {}, ['key_1 6 1 32750000']],
  [['tenant', 'end_user'], {}, ['acme jo 4 1 19650000', 'zeta jo 2 0 13100000']],
  // Whole days here too: what it says of a day is what the roll-ups say.
  [['day', 'key'], { from_ms: AT_MS + 5, to_ms: AT_MS + 6 }, ['2026-07-31 key_1 4 1 19650000']],
  [['key'], { to_ms: Date.UTC(2026, 7, 1), model: 'm1' }, ['key_1 3 0 19650000']],
])('usage by %j of %j', (groups, filter, want) => {
  const rows = usage(store, groups, filter)
  const say = (row: (typeof rows)[number]) =>
    [
      row.tenant,
      row.model,
      row.day,
      row.key,
      row.end_user,
      row.calls,
      row.unpriced_calls,
      row.charge_nanodollars,
    ].filter((part) => part !== undefined)
  expect(rows.map((row) => say(row).join(' '))).toEqual(want)
})

test('balances are folds of the entries and sum to zero', () => {
  const all = balances(store)
  expect(all.map(({ account, balance_nanodollars }) => `${account} ${balance_nanodollars}`)).toEqual([
    'grants -1000000000000000000',
    'held:acme 10000000',
    'revenue 32750000',
    'tenant:acme 999999999970350000',
    'tenant:zeta -13100000',
  ])
  expect(all.reduce((sum, { balance_nanodollars }) => sum + balance_nanodollars, 0n)).toBe(0n)
})

test.each([
  [
    "DELETE FROM calls WHERE id = 'c1'",
    ['revenue: 32750000, want 26200000', 'roll-up of acme, m1, 2026-07-31 is not the sum of its rows'],
  ],
  ['DELETE FROM open_calls', ['held:acme: 10000000, want 0']],
  [
    "INSERT INTO entries VALUES (NULL, 'c1', 0, 'capture', 'tenant:acme', 'revenue', 1, '', NULL)",
    ['revenue: 32750001, want 32750000'],
  ],
  [
    "UPDATE rollups SET calls = 9 WHERE tenant = 'zeta' AND day = '2026-08-01'",
    ['roll-up of zeta, m1, 2026-08-01 is not the sum of its rows'],
  ],
] as const)('reconciliation finds: %s', (damage, want) => {
  expect(findFaults(store)).toEqual([])
  using other = tempFolder()
  store.sqlite.run(`VACUUM INTO '${other.path}/ledger.db'`)
  const copy = openWriter(other.path, 'ledger')
  copy.sqlite.run(damage)
  expect(findFaults(copy)).toEqual([...want])
  copy.sqlite.close()
})

test('a refund is not a fault', () => {
  using other = tempFolder()
  store.sqlite.run(`VACUUM INTO '${other.path}/ledger.db'`)
  const copy = openWriter(other.path, 'ledger')
  const refund = { call_id: 'c1', at_ms: AT_MS, kind: 'refund', debit: 'revenue', credit: 'tenant:acme' } as const
  createPoster(copy).transfer({ ...refund, amount_nanodollars: 5n, reason: 'apology' })
  expect(findFaults(copy)).toEqual([])
  copy.sqlite.close()
})

test('rows on the wire: ISO time, hex, money as a number while that is exact', () => {
  const found = oneCall(store, 'c5')!
  const wire = callOnWire(found.row)
  expect(JSON.parse(JSON.stringify(wire))).toMatchObject({
    id: 'c5',
    at: '2026-08-01T12:00:00.000Z',
    key: 'key_1',
    hold_nanodollars: 10_000_000,
    charge_nanodollars: 6_550_000,
    request_sha256: '01'.repeat(32),
    log_index: null,
  })
  const contract = `id at tenant key end_user model engine endpoint stream status finish_reason ending prompt_tokens
    cached_tokens completion_tokens reasoning_tokens usage_source attempts hold_nanodollars charge_nanodollars
    price_version queue_ms engine_ms first_token_ms total_ms request_sha256 response_sha256 log_index`
  expect(Object.keys(wire)).toEqual(expect.arrayContaining(contract.split(/\s+/)))
  expect(attemptOnWire(found.attempts[1]!)).toEqual({
    n: 2,
    at: '2026-07-31T12:00:00.010Z',
    engine: 'e2',
    engine_model: 'm1-other',
    because: 'engine_timeout',
  })
})

test.each([
  [0n, 0],
  [-5n, -5],
  [9007199254740991n, 9007199254740991],
  [9007199254740992n, '9007199254740992'],
  [-9007199254740992n, '-9007199254740992'],
])('money %p is %p on the wire', (amount, want) => expect(moneyOnWire(amount)).toBe(want))
