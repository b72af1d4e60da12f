import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { Failure } from '../../src/base/failure.ts'
import { keepOrders } from '../../src/ledger/adjustment-posting.ts'
import { openReader } from '../../src/ledger/database.ts'
import { createPoster } from '../../src/ledger/poster.ts'
import { priceList } from '../../src/ledger/pricing.ts'
import { fold } from '../../src/ledger/posting.ts'
import { findFaults } from '../../src/ledger/reconcile.ts'
import { balances } from '../../src/ledger/queries.ts'
import { invoicePeriod } from '../../src/ledger/invoice.ts'
import { ending, intent, journal, PRICE } from '../ledger/make.ts'
import { type OpsTestHouse, openOpsHouse } from '../http/ops-house.ts'

setDefaultTimeout(60_000)

/** Invoices, orders, budgets and reconciliation over the real ops plane, stores and poster. */

const YAML = `
engines: [{ name: e, url: "http://127.0.0.1:9/v1" }]
models: [{ name: m1, targets: [{ engine: e }], price: { input: "2.00", output: "8.00" } }]
tenants:
  - { name: acme, budgets: [{ usd: "1.00", per: day }, { usd: "0.02", per: month, timezone: Asia/Seoul }] }
  - { name: zeta }
`
const PRICES = priceList([
  { model: 'm1', version: 1, valid_from_ms: 0, ...PRICE },
  { model: 'm1', version: 2, valid_from_ms: Date.UTC(2026, 0, 10), ...PRICE, output_picodollars: 16_000_000n },
])

let house: OpsTestHouse
let poster: ReturnType<typeof createPoster>
const call = (id: string, at: string, tenant = 'acme', model = 'm1', changes: Parameters<typeof ending>[1] = {}) => {
  const at_ms = Date.parse(at)
  return [
    intent(id, { tenant, model, at_ms, price_version: 0, hold_nanodollars: 0 }),
    ending(id, { at_ms: at_ms + 1000, ...changes }),
  ]
}
/** `/data`: the body may name a model, and no model has a part in it. */
const data = (id: string, model: string) => {
  const at_ms = Date.parse('2026-01-05T14:00:00Z')
  const of_call = {
    tenant: 'acme',
    engine: 'weir',
    engine_model: '',
    endpoint: '/data',
    stream: false,
    price_version: 0,
  }
  return [
    intent(id, { ...of_call, model, at_ms, hold_nanodollars: 0 }),
    ending(id, { at_ms, engine: 'weir', engine_model: '', ...NO_TOKENS }),
  ]
}
const NO_TOKENS = { prompt_tokens: 0, cached_tokens: 0, completion_tokens: 0, reasoning_tokens: 0 }
const postOrders = () =>
  keepOrders({ poster, house_reader: openReader(house.data, 'house'), log: () => undefined }).stop()

beforeAll(() => {
  house = openOpsHouse(YAML)
  poster = createPoster(house.ledger_db)
  const records = journal('w', [
    // Seoul is nine hours ahead: the first is still December there, the second January, the last February.
    ...call('c0', '2025-12-31T14:59:59.999Z'),
    ...call('c1', '2025-12-31T15:00:00.000Z'),
    ...call('c2', '2026-01-05T12:00:00Z'),
    ...call('c3', '2026-01-05T13:00:00Z'),
    ...call('c4', '2026-01-20T12:00:00Z'),
    ...call('c5', '2026-01-20T12:00:00Z', 'acme', 'm9'),
    ...call('c6', '2026-01-20T12:00:00Z', 'zeta'),
    ...call('c7', '2026-01-21T12:00:00Z', 'acme', 'm1', { usage_source: 'estimated', ending: 'cut_by_client' }),
    ...call('c8', '2026-01-31T14:59:59.999Z'),
    ...call('c9', '2026-01-31T15:00:00.000Z'),
    ...data('d1', 'm1'),
    ...data('d2', ''),
  ])
  const result = poster.post(fold(poster.books(), new Set(), PRICES, records))
  expect(result).toEqual({ is: 'posted' })
})
afterAll(() => house.close())

const OLD = '0.00655'
const NEW = '0.01135'

describe('an invoice', () => {
  test('has a line for each day, model and price version in the tenant’s time zone, and their exact sum', async () => {
    const { json } = await house.ask('GET', '/admin/invoices/acme/2026-01')
    expect(json).toMatchObject({
      timezone: 'Asia/Seoul',
      from: '2025-12-31T15:00:00.000Z',
      to: '2026-01-31T15:00:00.000Z',
    })
    const brief = (lines: any[]) =>
      lines.map(({ day, model, price_version, calls, charge_usd }) => [day, model, price_version, calls, charge_usd])
    expect(brief(json.lines)).toEqual([
      ['2026-01-01', 'm1', 1, 1, OLD],
      ['2026-01-05', 'm1', 1, 2, '0.0131'],
      ['2026-01-20', 'm1', 2, 1, NEW],
      ['2026-01-21', 'm1', 2, 1, NEW],
      ['2026-01-31', 'm1', 2, 1, NEW],
    ])
    expect(json.unpriced).toMatchObject([{ day: '2026-01-20', model: 'm9', calls: 1, prompt_tokens: 2000 }])
    expect(json.unmetered).toEqual([{ day: '2026-01-05', endpoint: '/data', calls: 2 }])
    expect(json.totals).toMatchObject({
      calls: 6,
      unpriced_calls: 1,
      unmetered_calls: 2,
      charge_usd: '0.0537',
      total_usd: '0.0537',
    })
    // The very sum of what the rows were charged.
    const { sum } = house.ledger_db.sqlite
      .query<{ sum: bigint }, []>(
        "SELECT sum(charge_nanodollars) AS sum FROM calls WHERE id IN ('c1','c2','c3','c4','c7','c8')",
      )
      .get()!
    expect(sum).toBe(53_700_000n)
  })

  test.each([
    ['2025-12', '?timezone=UTC', ['2025-12-31'], '0.0131'],
    ['2026-01', '?timezone=UTC', ['2026-01-05', '2026-01-20', '2026-01-21', '2026-01-31'], '0.05850'],
    ['2026-02', '', ['2026-02-01'], NEW],
    ['2026-03', '', [], '0.00'],
  ])('of %s%s', async (month, query, days, total) => {
    const { json } = await house.ask('GET', `/admin/invoices/acme/${month}${query}`)
    expect(json.lines.map(({ day }: any) => day)).toEqual(days)
    expect(Number(json.totals.total_usd)).toBe(Number(total))
  })

  test.each([
    ['/admin/invoices/nobody/2026-01', 404],
    ['/admin/invoices/acme/2026-13', 400],
    ['/admin/invoices/acme/26-01', 400],
    ['/admin/invoices/acme/2026-01?timezone=Mars/Base', 400],
    ['/admin/invoices/acme/2026-01?format=pdf', 400],
    ['/admin/reconciliation', 400],
    ['/admin/reconciliation?from=2026-01-02&to=2026-01-01', 400],
    ['/admin/reconciliation?from=2026-01-01&to=2026-06-01', 400],
  ])('%s answers %i', async (path, status) => expect((await house.ask('GET', path)).status).toBe(status))
})

// CASE C19.
test.each([
  ['2026-07', 'Asia/Seoul', '2026-06-30T15:00:00.000Z', '2026-07-31T15:00:00.000Z'],
  ['2026-10', 'Europe/Amsterdam', '2026-09-30T22:00:00.000Z', '2026-10-31T23:00:00.000Z'],
  ['2026-03', 'Europe/Amsterdam', '2026-02-28T23:00:00.000Z', '2026-03-31T22:00:00.000Z'],
  ['2028-02', 'UTC', '2028-02-01T00:00:00.000Z', '2028-03-01T00:00:00.000Z'],
])('%s in %s begins and ends with the wall’s month', (month, zone, from, to) => {
  const period = invoicePeriod(month, zone)
  if (period instanceof Failure) throw new Error(period.code)
  expect([period.from_ms, period.to_ms].map((at) => new Date(at).toISOString())).toEqual([from, to])
})

describe('orders', () => {
  const post = (kind: string, body: object) => house.ask('POST', `/admin/${kind}`, body)

  test('each becomes one entry, on the invoice and in the balance, however often it is sent or read', async () => {
    house.clock.now_ms = Date.parse('2026-01-25T10:00:00Z')
    const grant = await post('grants', { tenant: 'acme', usd: '100.00', reason: 'contract', id: 'c-17' })
    expect([grant.status, grant.json]).toMatchObject([201, { id: 'c-17', kind: 'grant', usd: '100.00', posted: false }])
    expect((await post('grants', { tenant: 'acme', usd: '100.00', reason: 'contract', id: 'c-17' })).status).toBe(200)
    expect(
      (await post('grants', { tenant: 'acme', usd: '1.00', reason: 'contract', id: 'c-17' })).json.error.code,
    ).toBe('conflict')
    expect((await post('refunds', { call_id: 'c4', usd: '0.01', reason: '=slow, "very"' })).status).toBe(201)
    expect((await post('adjustments', { tenant: 'acme', usd: '-0.000000001', reason: 'rounding' })).status).toBe(201)
    expect((await post('adjustments', { tenant: 'acme', usd: '0.05', reason: 'goodwill' })).status).toBe(201)
    postOrders()
    postOrders()
    const again = await house.ask('GET', '/admin/grants?tenant=acme')
    expect(again.json.data).toMatchObject([{ id: 'c-17', posted: true, actor: 'admin' }])
    const { json } = await house.ask('GET', '/admin/invoices/acme/2026-01')
    expect(json.refunds).toMatchObject([{ call_id: 'c4', usd: '0.01', reason: '=slow, "very"' }])
    expect(json.adjustments.map(({ usd }: any) => usd)).toEqual(['-0.000000001', '0.05'])
    expect(json.totals).toMatchObject({
      charge_usd: '0.0537',
      refunds_usd: '0.01',
      adjustments_usd: '0.049999999',
      grants_usd: '100.00',
      total_usd: '-0.006299999',
    })
    const charged = BigInt(6_550_000 * 4 + 11_350_000 * 4)
    expect(balances(house.ledger_db)).toContainEqual({
      account: 'tenant:acme',
      balance_nanodollars: 100_000_000_000n + 10_000_000n + 49_999_999n - charged,
    })
    expect(findFaults(house.ledger_db)).toEqual([])
  })

  test('the CSV has every line, sums to its total, and nothing that a spreadsheet would run', async () => {
    const { text, headers } = await house.ask('GET', '/admin/invoices/acme/2026-01?format=csv')
    expect(headers.get('content-type')).toBe('text/csv; charset=utf-8')
    const lines = text.trimEnd().split('\r\n')
    const rows = lines.map((line) => line.split(','))
    expect(rows[0]!.slice(0, 6)).toEqual(['kind', 'day', 'model', 'endpoint', 'price_version', 'calls'])
    const nano = (usd: string) => BigInt(Math.round(Number(usd) * 1e9))
    const column = (name: string) => rows.slice(1).map((row) => row[rows[0]!.indexOf(name)] ?? '')
    const sum = (name: string) => column(name).reduce((all, usd) => all + nano(usd || '0'), 0n)
    // Whole columns, as a spreadsheet sums them: no line has to be left out.
    expect(['owed_usd', 'total_usd', 'grant_usd'].map(sum)).toEqual([-6_299_999n, -6_299_999n, 100_000_000_000n])
    const kindsWith = (name: string) => new Set(column('kind').filter((_, line) => column(name)[line] !== ''))
    expect(['owed_usd', 'total_usd', 'grant_usd'].map((name) => [...kindsWith(name)])).toEqual([
      ['usage', 'refund', 'adjustment'],
      ['total'],
      ['grant'],
    ])
    expect(text).toContain(`"'=slow, ""very"""`)
    expect(rows.slice(1).map(([kind]) => kind)).toEqual(
      'usage usage usage usage usage unpriced unmetered refund adjustment adjustment total grant'.split(' '),
    )
  })

  test.each([
    ['grants', { tenant: 'nobody', usd: '1', reason: 'x' }, 400, 'tenant'],
    ['grants', { tenant: 'acme', usd: '0.00', reason: 'x' }, 400, 'usd'],
    ['grants', { tenant: 'acme', usd: '-1', reason: 'x' }, 400, 'usd'],
    ['grants', { tenant: 'acme', usd: 1, reason: 'x' }, 400, 'usd'],
    ['grants', { tenant: 'acme', usd: '1', reason: '' }, 400, 'reason'],
    ['grants', { tenant: 'acme', usd: '1', reason: 'x', call_id: 'c1' }, 400, 'call_id'],
    ['refunds', { usd: '1', reason: 'x' }, 400, 'tenant'],
    ['refunds', { call_id: 'nope', usd: '1', reason: 'x' }, 404, 'call_id'],
    ['refunds', { call_id: 'c1', tenant: 'zeta', usd: '0.001', reason: 'x' }, 400, 'tenant'],
    ['refunds', { call_id: 'c4', usd: '0.001350001', reason: 'more than is left' }, 400, 'usd'],
    ['refunds', { call_id: 'c4', usd: '0.00135', reason: 'all that is left' }, 201, null],
    ['refunds', { call_id: 'c4', usd: '0.000000001', reason: 'nothing is left' }, 400, 'usd'],
    ['refunds', { call_id: 'c5', usd: '0.1', reason: 'was not charged' }, 400, 'usd'],
    // Of 0.0716 that acme was charged, 0.01 + 0.00135 and 0.049999999 were given back.
    ['refunds', { tenant: 'acme', usd: '0.010250002', reason: 'more than all that it was charged' }, 400, 'usd'],
    ['refunds', { tenant: 'acme', usd: '999999999', reason: 'mistyped' }, 400, 'usd'],
    ['refunds', { call_id: 'c1', usd: '0.00655', reason: 'one call' }, 201, null],
    ['adjustments', { tenant: 'acme', usd: '0.003700002', reason: 'more than is left' }, 400, 'usd'],
    ['adjustments', { tenant: 'acme', usd: '0.0037', reason: 'nearly all' }, 201, null],
    ['refunds', { call_id: 'c2', usd: '0.00655', reason: 'all of a call, but not of the tenant' }, 400, 'usd'],
    ['refunds', { tenant: 'acme', usd: '0.000000001', reason: 'the rest' }, 201, null],
    ['refunds', { tenant: 'acme', usd: '0.000000001', reason: 'nothing is left' }, 400, 'usd'],
    ['adjustments', { tenant: 'acme', usd: '-0.25', reason: 'by mistake' }, 201, null],
    ['adjustments', { tenant: 'acme', usd: '0.25', reason: 'and back' }, 201, null],
    ['adjustments', { tenant: 'acme', usd: '0.000000001', reason: 'nothing is left' }, 400, 'usd'],
    ['grants', { tenant: 'acme', usd: '1000000', reason: 'grants have no bound' }, 201, null],
  ])('%s of %j answers %i', async (kind, body, status, param) => {
    const answer = await post(kind, body)
    expect([answer.status, answer.json.error?.param ?? null]).toEqual([status, param])
  })

  test('one that gives back more than was charged is told how much is left', async () => {
    const { json } = await post('refunds', { tenant: 'zeta', usd: '0.02', reason: 'mistyped' })
    expect(json.error.message).toBe(
      'usd: more than zeta can be given back: its calls were charged 0.01135 USD in all, refunds and adjustments gave back 0.00 USD so far, which leaves 0.01135 USD. Other money is a grant.',
    )
    // The same order again is the same order, though nothing is left for another.
    const all = { tenant: 'zeta', usd: '0.01135', reason: 'all of it', id: 'zeta-1' }
    expect([(await post('refunds', all)).status, (await post('refunds', all)).status]).toEqual([201, 200])
  })
})

describe('budgets', () => {
  const budgets = async () => (await house.ask('GET', '/admin/budgets?tenant=acme')).json.data

  test('say their window, their limit and what is left of it', async () => {
    house.clock.now_ms = Date.parse('2026-01-31T14:59:59.999Z')
    const [daily, monthly] = await budgets()
    expect(daily).toMatchObject({
      per: 'day',
      from: '2026-01-31T00:00:00.000Z',
      spent_usd: '0.0227',
      left_usd: '0.9773',
    })
    // Less what was refunded in the window; never below zero.
    expect(monthly).toMatchObject({
      usd: '0.02',
      spent_usd: '0.0437',
      left_usd: '0.00',
      to: '2026-01-31T15:00:00.000Z',
    })
    house.clock.now_ms = Date.parse('2026-01-31T15:00:00Z')
    expect((await budgets())[1]).toMatchObject({
      spent_usd: NEW,
      left_usd: '0.00865',
      from: '2026-01-31T15:00:00.000Z',
    })
  })

  test('are raised until a time, told to the workers, and fall back by themselves', async () => {
    house.clock.now_ms = Date.parse('2026-01-31T16:00:00Z')
    house.told.length = 0
    const raised = await house.ask('POST', '/admin/budgets/acme/increase', {
      usd: '1.5',
      until: '2026-02-02T00:00:00Z',
      reason: 'launch',
      per: 'month',
    })
    expect(raised.status).toBe(201)
    expect(house.told.length).toBe(1)
    expect(raised.json.data.map(({ limit_usd }: any) => limit_usd)).toEqual(['1.00', '1.52'])
    expect((await budgets())[1].increases).toEqual([
      { usd: '1.5', until: '2026-02-02T00:00:00.000Z', reason: 'launch' },
    ])
    house.clock.now_ms = Date.parse('2026-02-02T00:00:00Z')
    expect((await budgets())[1].limit_usd).toBe('0.02')
    const log = await house.ask('GET', '/admin/log')
    expect(log.json.data.map(({ action }: any) => action)).toContain('budget.increase')
  })

  test.each([
    ['nobody', { usd: '1', until: '2027-01-01', reason: 'x' }, 404],
    ['zeta', { usd: '1', until: '2027-01-01', reason: 'x' }, 400],
    ['acme', { usd: '1', until: '2026-01-01', reason: 'x' }, 400],
    ['acme', { usd: '0', until: '2027-01-01', reason: 'x' }, 400],
    ['acme', { usd: '1', until: '2027-01-01', reason: 'x', per: 'week' }, 400],
    ['acme', { usd: '1', until: '2027-02-30', reason: 'x' }, 400],
    ['acme', { usd: '1', until: '2027-01-01' }, 400],
  ])('an increase for %s of %j answers %i', async (tenant, body, status) =>
    expect((await house.ask('POST', `/admin/budgets/${tenant}/increase`, body)).status).toBe(status),
  )
})

describe('reconciliation', () => {
  test('lists every call that its engine did not count, by key and day', async () => {
    const { json } = await house.ask('GET', '/admin/reconciliation?from=2026-01-20&to=2026-01-22&tenant=acme')
    expect(json.lines).toMatchObject([
      {
        day: '2026-01-20',
        tenant: 'acme',
        key: 'key_1',
        calls: 2,
        calls_by_engine: 2,
        calls_estimated: 0,
        charge_estimated_usd: '0.00',
      },
      {
        day: '2026-01-21',
        calls: 1,
        calls_by_engine: 0,
        calls_estimated: 1,
        completion_tokens: 600,
        completion_tokens_by_engine: 0,
        charge_estimated_usd: NEW,
      },
    ])
    expect(json.differences).toMatchObject([{ call_id: 'c7', why: 'estimated', engine: 'e1', charge_usd: NEW }])
    expect([json.differences_total, json.engines]).toMatchObject([1, [{ engine: 'e1', calls: 3, prompt_tokens: 6000 }]])
    const { text } = await house.ask('GET', '/admin/reconciliation?from=2026-01-20&to=2026-01-22&format=csv')
    expect(
      text
        .trimEnd()
        .split('\r\n')
        .map((line) => line.split(',')[0]),
    ).toEqual(['kind', 'day', 'day', 'day', 'difference'])
  })
})

test.each([
  ['2026-02-01T00:00:00+09:00', 'closed', ''],
  ['2026-01-31T23:59:59.999+09:00', 'open', 'the month is not over: as of 2026-01-31T14:59:59.999Z'],
])('an invoice made at %s is %s, as JSON and as CSV', async (at, state, reason) => {
  const before_ms = house.clock.now_ms
  house.clock.now_ms = Date.parse(at)
  const { json } = await house.ask('GET', '/admin/invoices/acme/2026-01')
  expect([json.state, json.issued_at]).toEqual([state, new Date(at).toISOString()])
  const { text } = await house.ask('GET', '/admin/invoices/acme/2026-01?format=csv')
  expect(
    text
      .split('\r\n')
      .find((line: string) => line.startsWith('total,'))!
      .split(',')
      .at(-1),
  ).toBe(reason)
  house.clock.now_ms = before_ms
})
