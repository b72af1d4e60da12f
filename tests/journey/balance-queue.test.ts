import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { type HostileEngine, startHostileEngine } from '../kit/hostile-engine.ts'
import { startHouse, type TestHouse } from '../kit/house.ts'
import { json, script, until, wait, WHOLE } from '../kit/script.ts'
import { eventually, gate } from '../kit/wait.ts'
import { percentile, type Seen, steadyFor } from './fleet.ts'

/** What happens while every engine is full: four workers, whose connections the kernel spreads as it likes. */

// Also when another file of the run has set another.
setDefaultTimeout(60_000)

let house: TestHouse
const keys = new Map<string, string>()
const engines = new Map<string, HostileEngine>()
const answer = (ms: number) => script(wait(ms), json(200, WHOLE('ok', 3, 1)))
/** Calls of unlike length, so that places become free one by one. */
const unlike = ({ index }: { readonly index: number }) => answer(60 + ((index * 37) % 80))

const MODELS = [
  // name, capacity, size, wait_ms, script
  ['exact', 3, 500, 20_000, answer(20)],
  ['fair', 8, 64, 20_000, unlike],
  ['short', 1, 2, 20_000, answer(300)],
  ['late', 1, 10, 250, answer(1_500)],
  ['left', 1, 1, 20_000, answer(400)],
  ['none', 1, 0, 1_000, answer(300)],
] as const

const CROWDED = ['crowded-flood', 'crowded-vip']

beforeAll(async () => {
  for (const [name, , , , answers] of MODELS)
    engines.set(name, startHostileEngine({ answers: typeof answers === 'function' ? answers : [answers] }))
  for (const name of CROWDED) engines.set(name, startHostileEngine({ answers: [answer(10)] }))
  engines.set('limited', startHostileEngine({ answers: [answer(200)] }))
  engines.set('turns', startHostileEngine({ answers: [answer(10)] }))
  house = await startHouse({
    workers: 4,
    config: {
      engines: [
        ...MODELS.map(([name, capacity]) => ({
          name,
          url: engines.get(name)!.url,
          capacity,
          probe_ms: 0,
          scrape_ms: 0,
        })),
        ...CROWDED.map((name) => ({ name, url: engines.get(name)!.url, capacity: 1, probe_ms: 0, scrape_ms: 0 })),
        { name: 'turns', url: engines.get('turns')!.url, capacity: 1, probe_ms: 0, scrape_ms: 0 },
        { name: 'limited', url: engines.get('limited')!.url, capacity: 6, probe_ms: 0, scrape_ms: 0 },
      ],
      models: [
        ...MODELS.map(([name, , size, wait_ms]) => ({
          name,
          free: true,
          targets: [{ engine: name }],
          queue: { size, wait_ms },
        })),
        ...CROWDED.map((name) => ({
          name,
          free: true,
          targets: [{ engine: name }],
          queue: { size: 8, wait_ms: 20_000 },
        })),
        { name: 'turns', free: true, targets: [{ engine: 'turns' }], queue: { size: 100, wait_ms: 20_000 } },
        {
          name: 'limited',
          free: true,
          targets: [{ engine: 'limited' }],
          queue: { size: 2, wait_ms: 20_000 },
          limits: { concurrent: 50, tokens_per_minute: 1_000_000, requests_per_minute: 1_000 },
        },
      ],
      tenants: [{ name: 'flood' }, { name: 'calm' }, { name: 'vip', priority_max: 'high' }],
    },
  })
  for (const tenant of ['flood', 'calm', 'vip']) keys.set(tenant, await house.key(tenant))
  keys.set('held', await house.key('vip', { priority_max: 'low' }))
})

afterAll(async () => {
  await house[Symbol.asyncDispose]()
  for (const engine of engines.values()) await engine.stop()
})

const call = (model: string, tenant: string, headers: Record<string, string> = {}, signal?: AbortSignal) =>
  house.post(
    '/v1/chat/completions',
    { model, messages: [{ role: 'user', content: tenant }], max_tokens: 16 },
    keys.get(tenant),
    headers,
    signal,
  )
const codeOf = async (response: Response) => ((await response.json()) as { error: { code: string } }).error.code

test('C32: the capacity of an engine is never exceeded over all workers, however connections are spread; nobody is turned away', async () => {
  const answers = await Promise.all(Array.from({ length: 150 }, () => call('exact', 'flood')))
  expect(answers.filter(({ status }) => status !== 200)).toEqual([])
  const engine = engines.get('exact')!
  expect(engine.requests).toHaveLength(150)
  expect(engine.calls.max).toBe(3)
  const rows = await house.rowsReach(150)
  expect(rows.filter((row) => Number(row['queue_ms']) > 0).length).toBeGreaterThan(100)
})

test('the flood of one tenant does not move the 99th percentile of another', async () => {
  const took = (seen: readonly Seen[]) =>
    percentile(
      seen.map(({ took_ms }) => took_ms),
      0.99,
    )
  const alone = await steadyFor(3_000, 5, () => call('fair', 'calm'))
  const [flood, beside] = await Promise.all([
    steadyFor(4_000, 250, () => call('fair', 'flood')),
    steadyFor(4_000, 5, () => call('fair', 'calm')),
  ])
  process.stderr.write(
    `  P99 alone ${Math.round(took(alone))} ms, beside the flood ${Math.round(took(beside))} ms; flood: ${flood.length} calls, ${flood.filter(({ status }) => status === 200).length} answered, P99 ${Math.round(took(flood))} ms\n`,
  )
  expect([...alone, ...beside].filter(({ status }) => status !== 200)).toEqual([])
  expect(flood.filter(({ status }) => status === 429 || status === 503).length).toBeGreaterThan(100)
  expect(engines.get('fair')!.calls.max).toBe(8)
  // The flood waits for itself; the calm tenant only ever waits for the next place.
  const rows = await house.rowsReach(150 + alone.length + beside.length)
  const waited = (tenant: string, share: number) =>
    percentile(
      rows.filter((row) => row['model'] === 'fair' && row['tenant'] === tenant).map((row) => Number(row['queue_ms'])),
      share,
    )
  expect(waited('calm', 0.9)).toBeLessThan(waited('flood', 0.5) / 4)
})

for (const [flooder, asks] of [
  ['flood', 'normal'],
  ['vip', 'high'],
] as const)
  test(`a queue that ${flooder} has filled, asking for ${asks}: another tenant's three calls find room, whatever their class`, async () => {
    const engine = engines.get(`crowded-${flooder}`)!
    const open = gate()
    engine.play(() => script(until(open.opened), json(200, WHOLE('ok', 3, 1))))
    const model = `crowded-${flooder}`
    const flood = Array.from({ length: 60 }, () => call(model, flooder, { 'x-weir-priority': asks }))
    let refused = 0
    for (const answer of flood) void answer.then(({ status }) => void (refused += status === 429 ? 1 : 0))
    // One is at the engine, eight wait. Two workers that see one too many at the same instant turn away one each.
    await eventually(() => refused >= 51, 10_000)
    const calm = ['low', 'normal', 'normal'].map((priority) => call(model, 'calm', { 'x-weir-priority': priority }))
    await Bun.sleep(300)
    open.open()
    expect((await Promise.all(calm)).map(({ status }) => status)).toEqual([200, 200, 200])
    const answered = (await Promise.all(flood)).filter(({ status }) => status === 200)
    expect(answered.length).toBeLessThanOrEqual(6)
    expect(answered.length).toBeGreaterThanOrEqual(3)
    expect(engine.calls.max).toBe(1)
  })

test('a full queue answers 429 at once and says when to come again', async () => {
  const running = Array.from({ length: 3 }, () => call('short', 'flood'))
  await eventually(() => engines.get('short')!.calls.now === 1)
  await Bun.sleep(50)
  const began = performance.now()
  const refused = await call('short', 'flood')
  expect(performance.now() - began).toBeLessThan(200)
  expect([refused.status, await codeOf(refused)]).toEqual([429, 'queue_full'])
  expect(Number(refused.headers.get('retry-after'))).toBeGreaterThanOrEqual(1)
  expect((await Promise.all(running)).map(({ status }) => status)).toEqual([200, 200, 200])
})

test('a call that waits too long is told 503, and the engine never hears of it', async () => {
  const first = call('late', 'flood')
  await eventually(() => engines.get('late')!.calls.now === 1)
  const began = performance.now()
  const late = await call('late', 'flood')
  expect(performance.now() - began).toBeGreaterThanOrEqual(240)
  expect([late.status, await codeOf(late)]).toEqual([503, 'queue_timeout'])
  expect(Number(late.headers.get('retry-after'))).toBeGreaterThanOrEqual(1)
  expect((await first).status).toBe(200)
  expect(engines.get('late')!.requests).toHaveLength(1)
})

test('a client that leaves the queue makes room', async () => {
  const first = call('left', 'flood')
  await eventually(() => engines.get('left')!.calls.now === 1)
  const leaving = new AbortController()
  const gone = call('left', 'flood', {}, leaving.signal).catch(() => 'gone')
  await Bun.sleep(50)
  expect((await call('left', 'flood')).status).toBe(429)
  leaving.abort()
  expect(await gone).toBe('gone')
  await Bun.sleep(50)
  expect((await call('left', 'flood')).status).toBe(200)
  expect((await first).status).toBe(200)
  expect(engines.get('left')!.requests).toHaveLength(2)
})

test('without a queue a full engine is told at once', async () => {
  const first = call('none', 'flood')
  await eventually(() => engines.get('none')!.calls.now === 1)
  const refused = await call('none', 'flood')
  expect([refused.status, await codeOf(refused)]).toEqual([503, 'no_engine'])
  expect(refused.headers.get('retry-after')).toBe('1')
  await first
})

test('priority classes go first, no higher than the tenant and the key may ask for', async () => {
  const engine = engines.get('turns')!
  const open = gate()
  let turn = 0
  engine.play(() => (turn++ === 0 ? script(until(open.opened), json(200, WHOLE('ok', 3, 1))) : answer(10)))
  const calls = [call('turns', 'flood')]
  await eventually(() => engine.calls.now === 1)
  const order = [
    // tenant, class asked for
    ['flood', 'low'],
    ['calm', 'high'],
    ['vip', 'high'],
    ['held', 'high'],
  ] as const
  // One connection after the other, so that all wait before the first place is free.
  for (let round = 0; round < 4; round++)
    for (const [tenant, priority] of order) calls.push(call('turns', tenant, { 'x-weir-priority': priority }))
  await Bun.sleep(300)
  open.open()
  expect((await Promise.all(calls)).filter(({ status }) => status !== 200)).toEqual([])
  const served = engine.requests.slice(1).map((request) => request.json().messages[0].content as string)
  const mean = (tenant: string) => {
    const places = served.flatMap((one, place) => (one === tenant ? [place] : []))
    return places.reduce((sum, place) => sum + place, 0) / places.length
  }
  expect(mean('vip')).toBeLessThan(mean('calm'))
  expect(mean('calm')).toBeLessThan(mean('flood'))
  // A key of the tenant that may, held to the lowest class.
  expect(mean('calm')).toBeLessThan(mean('held'))
})

test('a model with limits and a queue: running calls fill no place of the queue, and what is held goes back', async () => {
  for (let round = 0; round < 2; round++) {
    const answers = await Promise.all(Array.from({ length: 8 }, () => call('limited', 'calm')))
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200))
    const waited = answers.map(({ headers }) => headers.get('x-ratelimit-limit-tokens'))
    expect(waited).toEqual(answers.map(() => '1000000'))
  }
  // The limits of the model are as free as before: a whole minute's tokens but for what was used.
  const last = await call('limited', 'calm')
  expect(Number(last.headers.get('x-ratelimit-remaining-tokens'))).toBeGreaterThan(990_000)
})
