import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { findFaults } from '../../src/ledger/reconcile.ts'
import { openReader } from '../../src/ledger/database.ts'
import { type HostileEngine, startHostileEngine } from '../kit/hostile-engine.ts'
import { startHouse, type TestHouse } from '../kit/house.ts'
import { json, script, sse200, D, CH, US, DONE, end, wait, WHOLE } from '../kit/script.ts'
import { eventually, rollFrom } from '../kit/wait.ts'

setDefaultTimeout(60_000)

/** Money and token limits of a whole house: four workers, one engine whose answers say what they used. */

let engine: HostileEngine
let house: TestHouse
const PRICE = { input: '2.00', cached_input: '0.50', output: '8.00' }
const R0 = { model: 'm1', messages: [{ role: 'user', content: 'hi' }] }
const roll = rollFrom(11)
/** Rounds of the race for one budget; 20 when asked for. */
const ROUNDS = Number(process.env['BUDGET_ROUNDS'] ?? 8)

beforeAll(async () => {
  engine = startHostileEngine({
    answers: (request) => {
      const body = request.json() as {
        stream?: boolean
        max_tokens?: number
        metadata?: { used?: number; pause?: number }
      }
      const used = body.metadata?.used ?? body.max_tokens ?? 1
      const pause = body.metadata?.pause ?? 0
      if (body.stream)
        return script(sse200, D(CH({ content: 'a' })), wait(pause), D(CH({}, 'stop')), D(US(5, used)), DONE, end)
      return script(wait(pause), json(200, WHOLE('a', 5, used)))
    },
  })
  house = await startHouse({
    workers: 4,
    config: {
      engines: [{ name: 'e', url: engine.url, capacity: 10_000, probe_ms: 0 }],
      models: [
        { name: 'm1', targets: [{ engine: 'e' }], price: PRICE },
        { name: 'capped', targets: [{ engine: 'e', model: 'm1' }], price: PRICE, budgets: [{ usd: '0.010' }] },
      ],
      tenants: [
        { name: 'open' },
        { name: 'tight', budgets: [{ usd: '0.010' }] },
        { name: 'none', budgets: [{ usd: '0' }] },
        { name: 'refunded', budgets: [{ usd: '0.010' }] },
        { name: 'users', end_user: { budgets: [{ usd: '0.010', per: 'day', timezone: 'Asia/Seoul' }], limits: {} } },
        ...Array.from({ length: 20 }, (_, at) => ({ name: `race${at}`, budgets: [{ usd: '1.00', per: 'month' }] })),
      ],
    },
  })
})
afterAll(async () => {
  await house?.[Symbol.asyncDispose]()
  await engine?.[Symbol.asyncDispose]()
})

const chat = (key: string, body: object, signal?: AbortSignal) =>
  house.post('/v1/chat/completions', { ...R0, ...body }, key, {}, signal)

test('C15: twenty at once on a budget that pays for two: two reach the engine, as the very first calls of a key', async () => {
  const key = await house.key('tight')
  const before = engine.requests.length
  const answers = await Promise.all(
    Array.from({ length: 20 }, () => chat(key, { max_tokens: 500, metadata: { pause: 300 } })),
  )
  const codes = answers.map((answer) => answer.status)
  expect(codes.filter((code) => code === 200)).toHaveLength(2)
  expect(engine.requests.length - before).toBe(2)
  const refused = answers.find((answer) => answer.status === 429)!
  const { error } = (await refused.json()) as { error: { type: string; code: string; message: string } }
  expect([error.type, error.code]).toEqual(['insufficient_quota', 'budget_exceeded'])
  expect(error.message).toContain('The budget of tenant tight (0.01 USD, in all) has')
  expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0)
})

test('a budget of 0 blocks everything', async () => {
  expect((await chat(await house.key('none'), { max_tokens: 1 })).status).toBe(429)
})

test.each([
  // whose budget, how the key and the call are made
  ['a key', 'open', { budgets: [{ usd: '0.010' }] }, {}],
  ['a model', 'open', {}, { model: 'capped' }],
  ['an end user', 'users', {}, { user: 'u1' }],
] as const)('%s has a budget of its own', async (_whose, tenant, options, body) => {
  const key = await house.key(tenant, options)
  const answers = await Promise.all(
    Array.from({ length: 10 }, () => chat(key, { max_tokens: 500, metadata: { pause: 100 }, ...body })),
  )
  expect(answers.filter((answer) => answer.status === 200)).toHaveLength(2)
  // Another one's budget is untouched.
  const other = await house.key(tenant)
  expect((await chat(other, { max_tokens: 5, ...('user' in body && { user: 'u2' }) })).status).toBe(200)
})

test('what was held and not used goes back at the real end, of a stream too', async () => {
  const key = await house.key('open', { budgets: [{ usd: '0.0055' }] })
  for (let turn = 0; turn < 5; turn++) {
    const answer = await chat(key, { max_tokens: 500, stream: true, metadata: { used: 2 } })
    expect(answer.status).toBe(200)
    await answer.text()
  }
})

test('many rounds of callers on one budget: never over, and the books agree to the nanodollar', async () => {
  // 5 × 2 + 1000 × 8 USD a million: 0.00801 USD a call; 1 USD pays for 124 of them, were nothing else held.
  for (let round = 0; round < ROUNDS; round++) {
    const tenant = `race${round}`
    const key = await house.key(tenant)
    const calls = round === 0 ? 400 : 40
    await Promise.all(
      Array.from({ length: calls }, async () => {
        const leaves = roll(4) === 0 ? AbortSignal.timeout(20 + roll(60)) : undefined
        const answer = await chat(
          key,
          { max_tokens: 10_000, stream: roll(2) === 0, metadata: { used: 1 + roll(10_000), pause: roll(40) } },
          leaves,
        ).catch(() => undefined)
        await answer?.text().catch(() => undefined)
      }),
    )
  }
  await eventually(async () => {
    const text = await (await fetch(`${house.ops_url}/metrics`)).text()
    return /weir_in_flight(?:_calls)?(?:\{[^}]*\})? [1-9]/.test(text) ? false : true
  }, 10_000)
  await Bun.sleep(500)
  const rows = house.rows()
  const spent = new Map<string, number>()
  for (const row of rows)
    spent.set(String(row['tenant']), (spent.get(String(row['tenant'])) ?? 0) + Number(row['charge_nanodollars']))
  for (let round = 0; round < ROUNDS; round++) expect(spent.get(`race${round}`) ?? 0).toBeLessThanOrEqual(1_000_000_000)
  expect(
    rows.filter(
      (row) =>
        String(row['tenant']).startsWith('race') && Number(row['charge_nanodollars']) > Number(row['hold_nanodollars']),
    ),
  ).toEqual([])
  const reader = openReader(house.data, 'ledger')
  expect(findFaults(reader)).toEqual([])
  reader.sqlite.close()
})

test('exactly N: a budget that pays for N calls admits N of a thousand callers, never N + 1', async () => {
  const probe = await house.key('open', { budgets: [{ usd: '0.000001' }] })
  const refused = (await (await chat(probe, { max_tokens: 100, metadata: { used: 100 } })).json()) as {
    error: { message: string }
  }
  const worst = Number(/may cost ([\d.]+) USD/.exec(refused.error.message)![1])
  // All calls last until all have asked, so each still holds its worst case: room for exactly 25.
  const key = await house.key('open', { budgets: [{ usd: (worst * 25 + worst / 2).toFixed(9) }] })
  const before = engine.requests.length
  const statuses = await Promise.all(
    Array.from(
      { length: 1_000 },
      async () => (await chat(key, { max_tokens: 100, metadata: { used: 100, pause: 2_500 } })).status,
    ),
  )
  expect(statuses.filter((status) => status === 200)).toHaveLength(25)
  expect(engine.requests.length - before).toBe(25)
})

test('C20: tokens are held, then settled; the third of three streams is refused, and then the minute is full', async () => {
  const key = await house.key('open', { tokens_per_minute: 2_000, concurrent: 2 })
  const asked = { stream: true, max_tokens: 90, metadata: { used: 995, pause: 800 } }
  const answers = await Promise.all([chat(key, asked), chat(key, asked), chat(key, asked)])
  expect(answers.map((answer) => answer.status).toSorted()).toEqual([200, 200, 429])
  await Promise.all(answers.map((answer) => answer.text()))
  const after = await chat(key, asked)
  expect(after.status).toBe(429)
  expect(Number(after.headers.get('retry-after'))).toBeGreaterThan(0)
  expect(after.headers.get('x-ratelimit-limit-tokens')).toBe('2000')
  expect(((await after.json()) as { error: { message: string } }).error.message).toContain('2000 tokens a minute')
})

test('a request without a bound gets the ceiling written in, and only then', async () => {
  const key = await house.key('open', { budgets: [{ usd: '5' }] })
  await chat(key, {})
  expect(engine.requests.at(-1)!.json()).toMatchObject({ max_tokens: 4_096 })
  await chat(key, { max_completion_tokens: null })
  expect(engine.requests.at(-1)!.json()).toMatchObject({ max_completion_tokens: 4_096 })
  await chat(await house.key('open'), {})
  expect(engine.requests.at(-1)!.text()).toBe(JSON.stringify(R0))
})

test('a killed worker’s holds are back within two seconds, and what it charged stays charged', async () => {
  const key = await house.key('open', { budgets: [{ usd: '0.0100' }] })
  for (let turn = 0; turn < 2; turn++)
    expect((await chat(key, { max_tokens: 100, metadata: { used: 100 } })).status).toBe(200)
  const holding = Array.from({ length: 8 }, () =>
    chat(key, { max_tokens: 110, metadata: { pause: 30_000 } }).catch(() => undefined),
  )
  await Bun.sleep(300)
  expect((await chat(key, { max_tokens: 500 })).status).toBe(429)
  const killed_ms = performance.now()
  for (const pid of house.pids('worker')) process.kill(pid, 'SIGKILL')
  await Promise.all(holding)
  await eventually(async () => (await chat(key, { max_tokens: 700, metadata: { used: 1 } })).status === 200, 10_000)
  process.stderr.write(`holds back after ${Math.round(performance.now() - killed_ms)} ms\n`)
  // 0.00162 USD are charged for good: what is left does not pay for this.
  expect((await chat(key, { max_tokens: 1_050 })).status).toBe(429)
})

test('a refund gives room back in the budget of its tenant at once', async () => {
  const key = await house.key('refunded')
  expect((await chat(key, { max_tokens: 1_000, metadata: { used: 1_000 } })).status).toBe(200)
  expect((await chat(key, { max_tokens: 1_000 })).status).toBe(429)
  await eventually(() => expect(house.rows().filter((row) => row['tenant'] === 'refunded')).toHaveLength(1), 5_000)
  const made = await house.admin('POST', 'refunds', { tenant: 'refunded', usd: '0.008', reason: 'test' })
  expect(made.status).toBeLessThan(300)
  await eventually(async () => (await chat(key, { max_tokens: 900, metadata: { used: 1 } })).status === 200, 5_000)
})
