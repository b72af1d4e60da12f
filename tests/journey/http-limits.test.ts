import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { startHostileEngine } from '../kit/hostile-engine.ts'
import { startHouse, type TestHouse } from '../kit/house.ts'
import { connectRaw, exchangeRaw, requestBytes, type RawResponse } from '../kit/raw-client.ts'
import { json, WHOLE } from '../kit/script.ts'
import { eventually } from '../kit/wait.ts'

/** Limits that hold across processes (CASES C22, C23), and the ledger that counts what the engine counted. */

// The preloaded default holds for the first file of a run only.
setDefaultTimeout(60_000)

const WORKERS = 4
const engine = startHostileEngine({ answers: [json(200, WHOLE('ok', 1, 1))] })
let house: TestHouse
beforeAll(async () => {
  house = await startHouse({
    workers: WORKERS,
    config: {
      engines: [{ name: 'e', url: engine.url, capacity: 10_000 }],
      models: [{ name: 'm1', targets: [{ engine: 'e' }], free: true }],
      tenants: [{ name: 't' }, { name: 'slow', limits: { requests_per_minute: 30 } }],
    },
  })
})
afterAll(async () => {
  await house[Symbol.asyncDispose]()
  await engine.stop()
})

const BODY = { model: 'm1', messages: [{ role: 'user', content: 'hi' }] }
const PATH = '/v1/chat/completions'
const bytesFor = (key: string, body: object = BODY) =>
  requestBytes('POST', PATH, { authorization: `Bearer ${key}` }, body)

/** The most that a limit of `per_minute` may admit within a span: a minute's worth at once, then one each 60/n seconds. */
const gcraBound = (per_minute: number, span_ms: number) => per_minute + Math.floor((span_ms * per_minute) / 60_000)

const isRefused = (answer: RawResponse, per_minute: number): void => {
  expect([answer.status, answer.json().error.code]).toEqual([429, 'rate_exceeded'])
  const retry_after_s = answer.header('retry-after')
  expect(retry_after_s).toMatch(/^[1-9]\d*$/)
  expect(Number(retry_after_s)).toBeLessThanOrEqual(Math.ceil(60 / per_minute) + 1)
  expect(answer.header('x-ratelimit-limit-requests')).toBe(String(per_minute))
  expect(answer.header('x-ratelimit-remaining-requests')).toBe('0')
}

test('60 calls on fresh connections to four workers, limit 10 a minute: ten and no more', async () => {
  const key = await house.key('t', { requests_per_minute: 10 })
  const before = engine.requests.length
  const started_ms = Date.now()
  const answers = await Promise.all(Array.from({ length: 60 }, () => exchangeRaw(house.port, bytesFor(key))))
  const bound = gcraBound(10, Date.now() - started_ms)
  const admitted = answers.filter(({ status }) => status === 200)
  expect(admitted.length).toBeGreaterThanOrEqual(10)
  expect(admitted.length).toBeLessThanOrEqual(bound)
  expect(engine.requests.length - before).toBe(admitted.length)
  for (const answer of answers) if (answer.status !== 200) isRefused(answer, 10)
})

test('the limit of a tenant holds over all of its keys', async () => {
  const keys = await Promise.all(Array.from({ length: 5 }, () => house.key('slow')))
  const started_ms = Date.now()
  const answers = await Promise.all(
    Array.from({ length: 100 }, (_, n) => exchangeRaw(house.port, bytesFor(keys[n % keys.length]!))),
  )
  const admitted = answers.filter(({ status }) => status === 200).length
  expect(admitted).toBeGreaterThanOrEqual(30)
  expect(admitted).toBeLessThanOrEqual(gcraBound(30, Date.now() - started_ms))
  for (const answer of answers) if (answer.status !== 200) isRefused(answer, 30)
})

test('a refusal’s Retry-After is true: coming back then works, before does not', async () => {
  // One each second, and the first four at once.
  const key = await house.key('t', { requests_per_minute: 60 })
  const ask = () => exchangeRaw(house.port, bytesFor(key, { ...BODY, max_tokens: 1 }))
  let refused: RawResponse | undefined
  for (let n = 0; n < 62 && refused === undefined; n++) {
    const answer = await ask()
    if (answer.status !== 200) refused = answer
  }
  expect(refused?.header('retry-after')).toBe('1')
  expect((await ask()).status).toBe(429)
  await Bun.sleep(1_000)
  expect((await ask()).status).toBe(200)
})

test('places at once are exact over all workers', async () => {
  const key = await house.key('t', { concurrent: 7 })
  const before = engine.requests.length
  const waiting = Promise.withResolvers<void>()
  engine.play([[{ do: 'until', opened: waiting.promise }, ...json(200, WHOLE('ok', 1, 1))]])
  try {
    const running = Array.from({ length: 80 }, () => exchangeRaw(house.port, bytesFor(key), 20_000))
    let refused = 0
    for (const answering of running) void answering.then(({ status }) => (refused += status === 429 ? 1 : 0))
    await eventually(() => expect(refused).toBe(73), 10_000)
    expect(engine.requests.length - before).toBe(7)
    waiting.resolve()
    const answers = await Promise.all(running)
    expect(answers.filter(({ status }) => status === 200).length).toBe(7)
    for (const answer of answers)
      if (answer.status !== 200)
        expect([answer.json().error.code, answer.header('retry-after')]).toEqual(['concurrency_exceeded', '1'])
  } finally {
    waiting.resolve()
    engine.play([json(200, WHOLE('ok', 1, 1))])
  }
})

// The main job's acceptance 4.
test('four workers, 200 clients, 1,000 requests a minute on one key: the bound, and rows equal the engine’s count', async () => {
  const LIMIT = 1_000
  const CLIENTS = 200
  const CALLS = 10
  const key = await house.key('t', { requests_per_minute: LIMIT })
  // Rows of the tests before are in first.
  await house.rowsReach(engine.requests.length)
  const rows_before = house.rows().length
  const engine_before = engine.requests.length
  const bytes = bytesFor(key)
  const started_ms = Date.now()
  const answers: RawResponse[] = []
  const client = async (): Promise<void> => {
    using connection = await connectRaw(house.port)
    for (let n = 0; n < CALLS; n++) {
      await connection.send(bytes)
      answers.push(await connection.response({ within_ms: 20_000 }))
    }
  }
  await Promise.all(Array.from({ length: CLIENTS }, client))
  const bound = gcraBound(LIMIT, Date.now() - started_ms)
  const admitted = answers.filter(({ status }) => status === 200)
  expect(answers.length).toBe(CLIENTS * CALLS)
  // Exact from below as well: while calls were refused the limit was used up.
  expect(admitted.length).toBeGreaterThanOrEqual(LIMIT)
  expect(admitted.length).toBeLessThanOrEqual(bound)
  for (const answer of answers) if (answer.status !== 200) isRefused(answer, LIMIT)
  expect(new Set(answers.map((answer) => answer.header('x-weir-call-id'))).size).toBe(answers.length)

  const counted = engine.requests.length - engine_before
  expect(counted).toBe(admitted.length)
  const rows = (await house.rowsReach(rows_before + counted, 10_000)).slice(rows_before)
  expect(rows.length).toBe(counted)
  expect(new Set(rows.map(({ id }) => id))).toEqual(new Set(admitted.map((answer) => answer.header('x-weir-call-id')!)))
  expect(rows.every(({ ending, status }) => ending === 'whole' && Number(status) === 200)).toBe(true)
  // All workers took part, or the test says nothing about several of them.
  expect(new Set(house.pids('worker')).size).toBe(WORKERS)
})
