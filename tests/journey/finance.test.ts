import { Database } from 'bun:sqlite'
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { resolve } from 'node:path'
import { startHostileEngine } from '../kit/hostile-engine.ts'
import { ADMIN_TOKEN, startHouse, type TestHouse } from '../kit/house.ts'
import { json, type Script, WHOLE } from '../kit/script.ts'
import { eventually, tempFolder } from '../kit/wait.ts'

// The preloaded default holds for the first file of a run only.
setDefaultTimeout(60_000)

/** Finance over a real house: calls, orders and increases reach the books through the processes that they have to. */

const engine = startHostileEngine({ answers: [json(200, WHOLE('hi', 1_000, 100))] })
const audio = startHostileEngine({
  answers: [
    json(200, {
      ...WHOLE('hi', 1_000, 100),
      usage: {
        prompt_tokens: 1_000,
        completion_tokens: 100,
        prompt_tokens_details: { cached_tokens: 200, audio_tokens: 300 },
        completion_tokens_details: { reasoning_tokens: 20, audio_tokens: 50 },
      },
    }) as Script,
  ],
})
const CHANGE_MS = 1_500
let change_at_ms = 0
let house: TestHouse
let key: string

beforeAll(async () => {
  change_at_ms = Date.now() + 86_400_000
  house = await startHouse({ config: config() })
  key = await house.key('acme')
})
afterAll(async () => {
  await house[Symbol.asyncDispose]()
  await engine[Symbol.asyncDispose]()
  await audio[Symbol.asyncDispose]()
})

const config = () => ({
  engines: [
    { name: 'e', url: engine.url, probe_ms: 0, scrape_ms: 0 },
    { name: 'a', url: audio.url, probe_ms: 0, scrape_ms: 0 },
  ],
  models: [
    {
      name: 'm',
      targets: [{ engine: 'e' }],
      price: { input: '2.00', output: '8.00' },
      price_changes: [{ from: new Date(change_at_ms).toISOString(), input: '20.00', output: '80.00' }],
    },
    {
      name: 'spoken',
      targets: [{ engine: 'a' }],
      price: {
        input: '2',
        cached_input: '0.5',
        audio_input: '40',
        output: '8',
        reasoning: '4',
        audio_output: '80',
        request: '0.0001',
      },
    },
  ],
  tenants: [{ name: 'acme', budgets: [{ usd: '1000.00', per: 'month', alert_share: 0.00001 }] }],
})

const month = () => new Date().toISOString().slice(0, 7)
const chat = (model: string, secret = key) =>
  house.post('/v1/chat/completions', { model, messages: [{ role: 'user', content: 'hi' }] }, secret)
const get = async (path: string): Promise<any> => (await house.admin('GET', path)).json()
const weir = async (...argv: string[]) => {
  const child = Bun.spawn([process.execPath, resolve(import.meta.dir, '../../src/main.ts'), ...argv], {
    env: { ...process.env, WEIR_ADMIN_TOKEN: ADMIN_TOKEN, WEIR_OPS_URL: house.ops_url },
    stdout: 'pipe',
    stderr: 'pipe',
  })
  const [out, err] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()])
  return { code: await child.exited, out, err }
}

test('each part of a call has its price, in the header as in the ledger', async () => {
  const response = await chat('spoken')
  const id = response.headers.get('x-weir-call-id')
  // 500 × 2 + 200 × 0.5 + 300 × 40 + 30 × 8 + 20 × 4 + 50 × 80, by the million, and the request.
  expect(response.headers.get('x-weir-cost-usd')).toBe('0.01752')
  const row = await eventually(() => house.rows().find((each) => each['id'] === id) ?? false, 5_000)
  expect(row).toMatchObject({ charge_nanodollars: 17_520_000, audio_input_tokens: 300, audio_output_tokens: 50 })
})

test('what the gateway answers itself is on the invoice by its address and costs nothing, whatever model it names', async () => {
  const response = await house.post('/data', { model: 'spoken' }, key)
  const id = response.headers.get('x-weir-call-id')
  const row = await eventually(() => house.rows().find((each) => each['id'] === id) ?? false, 5_000)
  expect(row).toMatchObject({ endpoint: '/data', model: '', asked_model: '', charge_nanodollars: 0, price_version: 0 })
  const invoice = await get(`invoices/acme/${month()}`)
  expect(invoice.unmetered).toEqual([{ day: expect.any(String), endpoint: '/data', calls: 1 }])
  expect([invoice.unpriced, invoice.totals.unpriced_calls, invoice.totals.unmetered_calls]).toEqual([[], 0, 1])
})

test('spending that reaches the share that a budget names is told once', async () => {
  await eventually(() => house.logged('budget_threshold').length > 0, 5_000)
  expect(house.logged('budget_threshold')).toMatchObject([
    { tenant: 'acme', per: 'month', share: 0.00001, spent_usd: '0.01752', limit_usd: '1000.00' },
  ])
})

test('a call has the price of the time at which it began, and its row names the version', async () => {
  expect((await chat('m')).headers.get('x-weir-cost-usd')).toBe('0.0028')
  change_at_ms = Date.now() + CHANGE_MS
  await Bun.write(house.config_file, JSON.stringify(config()))
  house.kill('SIGHUP')
  await eventually(() => house.logged('reloaded').length > 0, 5_000)
  expect((await chat('m')).headers.get('x-weir-cost-usd')).toBe('0.0028')
  await Bun.sleep(change_at_ms - Date.now() + 20)
  expect((await chat('m')).headers.get('x-weir-cost-usd')).toBe('0.028')
  const rows = await eventually(() => {
    const found = house.rows().filter((row) => row['model'] === 'm')
    expect(found).toHaveLength(3)
    return found
  }, 5_000)
  expect(rows.map((row) => row['charge_nanodollars'])).toEqual([2_800_000, 2_800_000, 28_000_000])
  const versions = await get(`invoices/acme/${month()}`)
  const of_m = versions.lines.filter(({ model }: any) => model === 'm')
  expect(of_m.map(({ calls, charge_usd }: any) => [calls, charge_usd])).toEqual([
    [2, '0.0056'],
    [1, '0.028'],
  ])
})

test('orders reach the books through the accountant, and again after it was killed', async () => {
  for (const [kind, body] of [
    ['grants', { usd: '10', id: 'g1' }],
    ['refunds', { usd: '0.001' }],
    ['adjustments', { usd: '-0.5' }],
  ] as const)
    expect((await house.admin('POST', kind, { tenant: 'acme', reason: 'test', ...body })).status).toBe(201)
  await eventually(async () => expect((await get('adjustments')).data[0].posted).toBe(true), 5_000)
  const [pid] = house.pids('accountant')
  process.kill(pid!, 'SIGKILL')
  expect((await house.admin('POST', 'grants', { tenant: 'acme', reason: 'test', usd: '5' })).status).toBe(201)
  expect((await house.admin('POST', 'grants', { tenant: 'acme', reason: 'test', usd: '10', id: 'g1' })).status).toBe(
    200,
  )
  await eventually(async () => expect((await get('grants')).data[0].posted).toBe(true), 10_000)
  const { totals } = await get(`invoices/acme/${month()}`)
  expect(totals).toMatchObject({ grants_usd: '15.00', refunds_usd: '0.001', adjustments_usd: '-0.50' })
})

test('tenants made one after the other all stay, and a raised budget is in the configuration that workers get', async () => {
  for (const name of ['first', 'second'])
    expect(
      (await house.admin('POST', 'tenants', { name, budgets: [{ usd: '1' }], limits: { concurrent: 1 } })).status,
    ).toBe(201)
  await eventually(async () => {
    const names = (await get('config')).config.tenants.map((tenant: any) => tenant.name)
    expect(names).toEqual(['acme', 'first', 'second'])
  }, 5_000)
  for (const name of ['acme', 'second'])
    expect(
      (await house.admin('POST', `budgets/${name}/increase`, { usd: '7', until: '2100-01-01', reason: 'test' })).status,
    ).toBe(201)
  await eventually(async () => {
    const { tenants } = (await get('config')).config
    const raised = tenants.map(({ name, budgets }: any) => [name, budgets[0].increases?.[0]?.usd ?? null])
    expect(raised).toEqual([
      ['acme', '7'],
      ['first', null],
      ['second', '7'],
    ])
  }, 5_000)
  const limits = (await get('budgets')).data.map(({ tenant, limit_usd }: any) => [tenant, limit_usd])
  expect(limits).toEqual([
    ['acme', '1007.00'],
    ['first', '1.00'],
    ['second', '8.00'],
  ])
})

test('weir invoice says the same over the ops plane and offline, and its proofs verify', async () => {
  const asked = ['invoice', '--tenant', 'acme', '--month', month()]
  const online = await weir(...asked)
  expect([online.code, online.err]).toEqual([0, ''])
  const offline = await weir(...asked, '--offline', '--data', house.data)
  // All but the moment at which they were made. The month runs, and both say so.
  const made = (text: string) => ({ ...JSON.parse(text), issued_at: '' })
  expect(made(offline.out)).toEqual(made(online.out))
  expect(made(online.out).state).toBe('open')
  const [one, other] = [
    await weir(...asked, '--format=csv'),
    await weir(...asked, '--format=csv', '--offline', '--data', house.data),
  ]
  const undated = (text: string) => text.replace(/as of \S+/, 'as of')
  expect(undated(one.out)).toBe(undated(other.out))
  expect(one.out).toStartWith('kind,day,model,')
  using folder = tempFolder('weir-finance')
  await eventually(async () => {
    const proofs = await weir(...asked, '--proofs')
    expect(proofs.code).toBe(0)
    await Bun.write(`${folder.path}/proofs.json`, proofs.out)
    // Five calls, two grants, a refund and an adjustment.
    expect(JSON.parse(proofs.out).lines).toHaveLength(9)
  }, 10_000)
  const verified = await weir('verify', `${folder.path}/proofs.json`)
  expect([verified.err, verified.code]).toEqual(['', 0])
  expect(verified.out).toContain(`${made(online.out).totals.total_usd} USD owed, every line in the log`)
  expect((await weir('invoice', '--tenant', 'nobody', '--month', month())).code).toBe(1)
  expect((await weir('invoice', '--tenant', 'acme', '--month', 'May')).code).toBe(2)
})

test('weir ledger rebuild lists every sum that differs, mends it, and leaves a running house alone', async () => {
  expect((await weir('ledger', 'rebuild', '--data', house.data, '--check')).err).toContain('0 roll-ups differed')
  const taken = await weir('ledger', 'rebuild', '--data', house.data)
  expect([taken.code, taken.err]).toEqual([1, expect.stringContaining('belongs to a running house')])
  expect(await house.stop()).toBe(0)
  const db = new Database(`${house.data}/ledger.db`)
  db.run("UPDATE rollups SET charge_nanodollars = charge_nanodollars + 1 WHERE model = 'm'")
  db.run("DELETE FROM rollups WHERE model = 'spoken'")
  db.run("INSERT INTO rollups VALUES ('ghost', 'm', '2026-01-01', 1, 0, 1, 0, 1, 0, 5)")
  db.close()
  const checked = await weir('ledger', 'rebuild', '--data', house.data, '--check')
  const differences = checked.out
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line))
  expect([checked.code, differences.length]).toEqual([1, 3])
  expect(differences.find(({ tenant }) => tenant === 'ghost')).toMatchObject({
    of_rows: null,
    stored: { charge_usd: '0.000000005' },
  })
  expect(differences.find(({ model }) => model === 'spoken')).toMatchObject({
    stored: null,
    of_rows: { charge_usd: '0.01752' },
  })
  const mended = await weir('ledger', 'rebuild', '--data', house.data)
  expect([mended.code, mended.out]).toEqual([0, checked.out])
  expect((await weir('ledger', 'rebuild', '--data', house.data)).out).toBe('')
  const sound = await weir('fsck', '--data', house.data)
  expect([sound.err, sound.code]).toEqual(['', 0])
})
