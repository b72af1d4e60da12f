import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { Value } from '@sinclair/typebox/value'
import { markFailed, markGood } from '../../src/balance/health.ts'
import { Config } from '../../src/config/schema.ts'
import { createPoster } from '../../src/ledger/poster.ts'
import { subjectOf } from '../../src/table/table.ts'
import { takeCounts } from '../../src/table/counts.ts'
import { NOW_MS, type OpsTestHouse, openOpsHouse } from '../http/ops-house.ts'
import { postAll } from '../ledger/books.ts'
import { AT_MS, attempt, ending, intent, journal } from '../ledger/make.ts'

setDefaultTimeout(60_000)

const DAY_MS = 86_400_000
let house: OpsTestHouse
beforeAll(() => {
  house = openOpsHouse()
  const call = (id: string, tenant: string, at_ms: number) => [
    intent(id, { tenant, at_ms }),
    ...(id === 'call_3' ? [attempt(id)] : []),
    ending(id, { at_ms: at_ms + 1_000 }),
  ]
  postAll(
    createPoster(house.ledger_db),
    journal('w', [
      ...call('call_1', 'acme', AT_MS),
      ...call('call_2', 'org/team', AT_MS + 1),
      ...call('call_3', 'acme', AT_MS + DAY_MS),
    ]),
    100,
  )
})
afterAll(() => house.close())

const get = async (path: string) => (await house.ask('GET', path)).json

test.each([
  ['', ['call_3', 'call_2', 'call_1']],
  ['?tenant=acme', ['call_3', 'call_1']],
  ['?tenant=org/team&model=m1', ['call_2']],
  ['?model=none', []],
  [`?from=${new Date(AT_MS + 1).toISOString()}`, ['call_3', 'call_2']],
  [`?to=${new Date(AT_MS + 1).toISOString()}`, ['call_1']],
  ['?from=2026-08-01&to=2026-08-02', ['call_3']],
  ['?from=2026-08-01T00:00:00%2B09:00', ['call_3']],
] as const)('calls%s', async (query, ids) => {
  const { data, next_cursor } = await get(`/admin/calls${query}`)
  expect([data.map(({ id }: { id: string }) => id), next_cursor]).toEqual([[...ids], null])
})

test('calls turn pages', async () => {
  const first = await get('/admin/calls?limit=2')
  const second = await get(`/admin/calls?limit=2&cursor=${encodeURIComponent(first.next_cursor)}`)
  expect([first.data.length, second.data.map(({ id }: { id: string }) => id), second.next_cursor]).toEqual([
    2,
    ['call_1'],
    null,
  ])
})

test('a call row has at least what the contract names, and one call its engines and entries', async () => {
  const row = (await get('/admin/calls?limit=1')).data[0]
  const promised =
    'id at tenant key end_user model engine endpoint stream status finish_reason ending prompt_tokens cached_tokens completion_tokens reasoning_tokens usage_source attempts hold_nanodollars charge_nanodollars price_version queue_ms engine_ms first_token_ms total_ms request_sha256 response_sha256 log_index'
  expect(Object.keys(row)).toEqual(expect.arrayContaining(promised.split(' ')))
  const { tried, entries, ...same } = await get('/admin/calls/call_3')
  expect(same).toEqual(row)
  expect(tried).toMatchObject([{ engine: 'e1' }, { engine: 'e2', because: 'engine_timeout' }])
  expect(entries.map(({ kind, amount_nanodollars }: Record<string, unknown>) => [kind, amount_nanodollars])).toEqual([
    ['capture', row.charge_nanodollars],
  ])
})

test.each([
  ['', [[3]]],
  ['?group_by=tenant', [['acme', 2], ['org/team', 1]]], // prettier-ignore
  ['?group_by=day,tenant', [['acme', '2026-07-31', 1], ['acme', '2026-08-01', 1], ['org/team', '2026-07-31', 1]]], // prettier-ignore
  ['?group_by=model&tenant=acme&to=2026-08-01', [['m1', 1]]],
] as const)('usage%s', async (query, rows) => {
  const { data } = await get(`/admin/usage${query}`)
  expect(
    data.map(({ tenant, model, day, calls }: Record<string, unknown>) =>
      [tenant, model, day, calls].filter((value) => value !== undefined),
    ),
  ).toEqual(rows as never)
  expect(typeof data[0].charge_nanodollars).toBe('number')
})

test.each<[path: string, param: string, says: string]>([
  ['/admin/calls?from=yesterday', 'from', 'from: "yesterday" is not a time; allowed: a date'],
  ['/admin/calls?from=2026-13-01', 'from', 'is not a time'],
  ['/admin/calls?from=2026-02-29', 'from', 'is not a time'],
  ['/admin/calls?from=2026-02-02&to=2026-02-01', 'to', 'is not after from'],
  ['/admin/calls?cursor=x', 'cursor', 'next_cursor of the page before'],
  ['/admin/log?cursor=x', 'cursor', 'next_cursor of the page before'],
  ['/admin/calls?status=200', 'status', 'is not a field'],
  ['/admin/usage?group_by=hour', 'group_by', '"hour" cannot be grouped by; allowed: tenant, model, day, key, end_user'],
  ['/admin/usage?group_by=key', 'from', 'is missing'],
  ['/admin/usage?group_by=end_user&from=2020-01-01', 'from', 'is more than 92 days before the end'],
  ['/admin/usage?group_by=day,day', 'group_by', '"day" stands twice'],
  ['/admin/usage?group_by=', 'group_by', '"" cannot be grouped by'],
  ['/admin/config?x=1', 'x', 'is not a field'],
])('%s is refused, naming %s', async (path, param, says) => {
  const { status, json } = await house.ask('GET', path)
  expect([status, json.error.code, json.error.param]).toEqual([400, 'field_invalid', param])
  expect(json.error.message).toContain(says)
})

test.each(['/admin/calls/nope', '/admin/tenants/nope'])('%s is 404', async (path) => {
  const { status, json } = await house.ask('GET', path)
  expect([status, json.error.code]).toEqual([404, 'not_found'])
})

test('engines tell load and health from the shared table, models what can serve them', async () => {
  const { table } = house
  const engine = subjectOf(table, 'engine', 'vllm-a')!
  takeCounts(table, 1, [{ subject: engine, limit: 9 }])
  markGood(table, engine, 80)
  markFailed(table, engine, NOW_MS)
  const told = async () => (await get('/admin/engines')).data.find(({ name }: { name: string }) => name === 'vllm-a')
  expect(await told()).toMatchObject({
    dialect: 'openai',
    capacity: 8,
    in_flight: 1,
    health: 'cooling',
    cooling_ms: 2_000,
    failures_in_a_row: 1,
    answered: 1,
    failed: 1,
    latency_ms: 80,
  })
  expect((await get('/admin/models')).data).toMatchObject([
    {
      name: 'llama',
      healthy_engines: 0,
      price: { input: '0.20', output: '0.60' },
      targets: [{ engine: 'vllm-a', model: 'llama' }],
    },
    { name: 'mistral', free: true, price: null },
  ])
  house.clock.now_ms += 3_000
  expect(await told()).toMatchObject({ health: 'probation', cooling_ms: 0 })
  markGood(table, engine, 80)
  expect(await told()).toMatchObject({ health: 'healthy', failures_in_a_row: 0 })
  expect((await get('/admin/models?limit=1')).data).toMatchObject([{ name: 'llama', healthy_engines: 1 }])
  house.clock.now_ms = NOW_MS
})

test('lists of the configuration turn pages by name', async () => {
  const first = await get('/admin/engines?limit=1')
  expect([first.data[0].name, first.next_cursor]).toEqual(['odd/name', 'odd/name'])
  const second = await get(`/admin/engines?limit=1&cursor=${encodeURIComponent(first.next_cursor)}`)
  expect([second.data[0].name, second.next_cursor]).toEqual(['vllm-a', null])
})

test('workers are listed by their own pages', async () => {
  house.enliven(2)
  expect((await get('/admin/workers')).data).toMatchObject([{ worker: 2, pid: 1_002, state: 'live', live: true }])
})

test('the configuration is shown without secrets, with its number; its schema is one', async () => {
  const { text, json } = await house.ask('GET', '/admin/config')
  expect(json.generation).toBe(3)
  expect(json.config.engines[0]).toMatchObject({ name: 'vllm-a', key: '***' })
  expect(text).not.toContain('engine-secret')
  expect(Value.Check(Config, json.config)).toBe(true)
  expect(await get('/admin/config/schema')).toMatchObject({
    type: 'object',
    properties: { engines: { type: 'array' } },
  })
})

test('a tenant is made once, whole, and told to whoever configures the workers', async () => {
  const body = { name: 'new/one', budgets: [{ usd: '5.00', per: 'day' }], limits: { concurrent: 3 }, models: ['llama'] }
  const made = await house.ask('POST', '/admin/tenants', body)
  const shown = {
    ...body,
    budgets: [{ usd: '5.00', per: 'day', timezone: 'UTC' }],
    source: 'api',
    created_at: new Date(NOW_MS).toISOString(),
  }
  expect([made.status, made.json]).toEqual([201, shown])
  const { source: _source, created_at: _created_at, ...tenant } = shown
  expect(house.told as unknown[]).toEqual([[tenant]])
  expect(Value.Check(Config.properties.tenants, house.told[0])).toBe(true)

  const again = await house.ask('POST', '/admin/tenants', body)
  expect([again.status, again.json.error.code]).toEqual([409, 'conflict'])
  expect((await house.ask('POST', '/admin/tenants', { name: 'acme' })).status).toBe(409)
  expect((await get('/admin/tenants')).data.map(({ name, source }: Record<string, string>) => [name, source])).toEqual([
    ['acme', 'config'],
    ['new/one', 'api'],
    ['org/team', 'config'],
  ])
  expect(await get('/admin/tenants/new%2Fone')).toEqual({ ...shown, in_flight: 0 })
  expect((await house.ask('POST', '/admin/keys', { tenant: 'new/one' })).status).toBe(201)
  expect((await get('/admin/log')).data.map(({ action }: { action: string }) => action)).toEqual([
    'key.create',
    'tenant.create',
  ])
})

test.each<[body: unknown, param: string, says: string]>([
  [{ name: 'a b' }, 'name', 'name: "a b" is not a name; allowed: letters'],
  [{ name: 'x', limits: { concurent: 1 } }, 'limits.concurent', 'is not a field; did you mean concurrent?'],
  [{ name: 'x', budgets: [{ usd: '1' }, { usd: 1 }] }, 'budgets[1].usd', 'budgets[1].usd: 1 is not an amount of USD'],
  [{ name: 'x', budgets: [{ usd: '1', per: 'year' }] }, 'budgets[0].per', 'allowed: total, day, week or month'],
  [{ name: 'x', budgets: [{ usd: '1', timezone: 'Mars' }] }, 'budgets[0].timezone', '"Mars" is not a time zone'],
  [{ name: 'x', models: ['m'] }, 'models[0]', '"m" is not a model; known: llama, mistral'],
  ['{"name":"x","limits":{"concurrent":1,"concurrent":2}}', 'concurrent', 'twice'],
])('the tenant %j is refused, naming %s', async (body, param, says) => {
  const { status, json } = await house.ask('POST', '/admin/tenants', body)
  expect([status, json.error.code]).toEqual([400, 'field_invalid'])
  expect(json.error.param).toContain(param)
  expect(json.error.message).toContain(says)
})
