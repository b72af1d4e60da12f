import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { startHostileEngine, type Seen } from '../kit/hostile-engine.ts'
import { startHouse, type TestHouse } from '../kit/house.ts'
import { connectRaw, exchangeRaw, requestBytes } from '../kit/raw-client.ts'
import { CH, D, DONE, end, head, json, script, sse200, type Script, US, WHOLE, body } from '../kit/script.ts'
import { readSse } from '../kit/sse-read.ts'
import { eventually, gate } from '../kit/wait.ts'

/** HTTP as clients meet it: base addresses of engines (CASES C38), HEAD, Expect and big heads (C40), CORS (C35). */

// The preloaded default holds for the first file of a run only.
setDefaultTimeout(60_000)

const engine = startHostileEngine({ answers: (request) => answerTo(request) })
const answerTo = (request: Seen): Script => {
  if (request.target.includes('/embeddings'))
    return json(200, { object: 'list', data: [], usage: { prompt_tokens: 1, total_tokens: 1 } })
  return request.json().stream === true
    ? script(sse200, D(CH({ content: 'ok' })), D(CH({}, 'stop')), D(US(1, 1)), DONE, end)
    : json(200, WHOLE('ok', 1, 1))
}

/** Base address of an engine after its origin, and the path before and the query after the endpoint's own. */
const BASES = [
  ['', '/v1', ''],
  ['/', '/v1', ''],
  ['/v1', '/v1', ''],
  ['/v1/', '/v1', ''],
  ['/proxy/openai/v1', '/proxy/openai/v1', ''],
  ['/openai/v1?api-version=2025-01-01', '/openai/v1', '?api-version=2025-01-01'],
] as const
const ENDPOINTS = [
  ['/chat/completions', { messages: [{ role: 'user', content: 'hi' }] }],
  ['/completions', { prompt: 'hi' }],
  ['/embeddings', { input: 'hi' }],
] as const

let house: TestHouse
let key: string
beforeAll(async () => {
  house = await startHouse({
    config: {
      cors: { origins: ['https://app.example'] },
      engines: BASES.map(([base], n) => ({ name: `e${n}`, url: `${engine.origin}${base}` })),
      models: [
        { name: 'm1', targets: [{ engine: 'e2' }], free: true },
        ...BASES.map((_, n) => ({ name: `base-${n}`, targets: [{ engine: `e${n}` }], free: true })),
      ],
      tenants: [{ name: 't' }],
    },
  })
  key = await house.key('t')
})
afterAll(async () => {
  await house[Symbol.asyncDispose]()
  await engine.stop()
})

const auth = () => ({ authorization: `Bearer ${key}` })
const R0 = { model: 'm1', messages: [{ role: 'user', content: 'hi' }] }

test.each(
  BASES.flatMap(([base, before, after], n) =>
    ENDPOINTS.map(([path, fields]) => [base, path, `${before}${path}${after}`, `base-${n}`, fields] as const),
  ),
)('base %p with %s asks the engine for %s', async (_base, path, target, model, fields) => {
  const answer = await house.post(`/v1${path}`, { model, ...fields }, key)
  expect(answer.status).toBe(200)
  expect(engine.requests.at(-1)!.target).toBe(target)
  expect(engine.requests.at(-1)!.method).toBe('POST')
})

test.each([
  '/v1/chat/completions/',
  '/v1//chat/completions',
  '//v1/chat/completions',
  '/v1/chat//completions',
  '/v1/v1/chat/completions',
  '/chat/completions',
  '/v1/chat/completions?api-version=1',
  '/V1/chat/completions',
])('a client’s %s works or is a JSON 404, never a page or a redirect', async (path) => {
  const answer = await exchangeRaw(house.port, requestBytes('POST', path, auth(), R0))
  expect([200, 404]).toContain(answer.status)
  expect(answer.header('content-type')).toBe('application/json')
  expect(answer.header('location')).toBeUndefined()
  if (answer.status === 404) expect(answer.json().error).toMatchObject({ code: 'address_unknown' })
})

test.each(['/', '/health', '/v1/models', '/v1/models/m1', '/nope', '/v1/models/nope', '/v1/chat/completions'])(
  'HEAD %s has the status and length of GET, and no body',
  async (path) => {
    const got = await exchangeRaw(house.port, requestBytes('GET', path, auth()))
    using client = await connectRaw(house.port)
    await client.send(requestBytes('HEAD', path, auth()))
    const head_answer = await client.response({ bodyless: true })
    expect(head_answer.status).toBe(got.status)
    if (got.status === 200) expect(head_answer.header('content-length')).toBe(String(got.body.length))
    // The connection is good for the next request: nothing was left on it.
    await client.send(requestBytes('GET', '/health'))
    expect((await client.response()).text()).toBe('OK')
  },
)

const expecting = (authorization: string, length: number): Buffer =>
  Buffer.from(
    `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: ${authorization}\r\nContent-Length: ${length}\r\nExpect: 100-continue\r\n\r\n`,
  )

test('Expect: a good head is told to go on before its body, and the engine hears nothing of it', async () => {
  const text = JSON.stringify(R0)
  using client = await connectRaw(house.port)
  await client.send(expecting(`Bearer ${key}`, text.length))
  expect(await client.received(1, 1_000)).toBe(true)
  expect(client.unread().toString()).toBe('HTTP/1.1 100 Continue\r\n\r\n')
  await client.send(text)
  const answer = await client.response()
  expect([answer.status, answer.interim]).toEqual([200, [100]])
  expect(engine.requests.at(-1)!.header('expect')).toBeUndefined()
})

test.each([
  ['a bad key', 'Bearer nope', 5, 401],
  ['a body over the limit', 'KEY', 99_999_999_999, 413],
] as const)('Expect: %s is refused before any of the body is sent', async (_what, authorization, length, status) => {
  using client = await connectRaw(house.port)
  await client.send(expecting(authorization.replace('KEY', `Bearer ${key}`), length))
  expect((await client.response({ within_ms: 1_000 })).status).toBe(status)
})

test('a head of 8 KB passes, one of 20 KB is refused with 431', async () => {
  const sized = (bytes: number) => ({ ...auth(), 'x-filler': 'a'.repeat(bytes) })
  expect((await exchangeRaw(house.port, requestBytes('POST', '/v1/chat/completions', sized(8_192), R0))).status).toBe(
    200,
  )
  expect((await exchangeRaw(house.port, requestBytes('POST', '/v1/chat/completions', sized(20_480), R0))).status).toBe(
    431,
  )
})

test.each([false, true])('stream %p: what the house adds to the head stays under 2 KB', async (stream) => {
  const limited = await house.key('t', { requests_per_minute: 1_000_000, concurrent: 1_000_000 })
  const headers = { authorization: `Bearer ${limited}`, origin: 'https://app.example' }
  const answer = await exchangeRaw(house.port, requestBytes('POST', '/v1/chat/completions', headers, { ...R0, stream }))
  expect(answer.status).toBe(200)
  const bytes = answer.headers.reduce((sum, [name, value]) => sum + name.length + value.length + 4, 0)
  expect(bytes).toBeLessThan(2_048)
  // Once each: a header that is set twice reads as a list.
  const names = answer.headers.map(([name]) => name.toLowerCase())
  expect(names.length).toBe(new Set(names).size)
})

test('an engine’s own headers stay with the house', async () => {
  const private_headers = {
    'set-cookie': 'a=b',
    'x-ratelimit-limit-requests': '7',
    server: 'secret/1',
    'x-request-id': 'r1',
  }
  engine.play([json(200, WHOLE('ok', 1, 1), private_headers)])
  try {
    const answer = await house.post('/v1/chat/completions', R0, key)
    expect(await answer.text()).toBe(JSON.stringify(WHOLE('ok', 1, 1)))
    for (const name of Object.keys(private_headers)) expect([name, answer.headers.get(name)]).toEqual([name, null])
  } finally {
    engine.play((request) => answerTo(request))
  }
})

test('a stream carries CORS, as its page would see no error otherwise', async () => {
  const headers = { origin: 'https://app.example' }
  const answer = await house.post('/v1/chat/completions', { ...R0, stream: true }, key, headers)
  expect(answer.headers.get('access-control-allow-origin')).toBe('https://app.example')
  expect(answer.headers.get('access-control-expose-headers')).toContain('x-weir-call-id')
  expect((await readSse(answer)).done).toBe(true)
})

test('one connection serves many requests, good and refused in turn', async () => {
  using client = await connectRaw(house.port)
  for (let n = 0; n < 30; n++) {
    const good = n % 3 !== 1
    await client.send(requestBytes('POST', '/v1/chat/completions', good ? auth() : { authorization: 'Bearer x' }, R0))
    expect((await client.response()).status).toBe(good ? 200 : 401)
  }
  expect(client.unread().length).toBe(0)
})

// CASES C20: a place is held until the answer has ended, on every endpoint, stream or not.
test.each([
  ['/v1/chat/completions', { ...R0, stream: true }],
  ['/v1/chat/completions', R0],
  ['/v1/completions', { model: 'm1', prompt: 'hi', stream: true }],
  ['/v1/embeddings', { model: 'm1', input: 'hi' }],
] as const)('%s %j holds its place to the end of the answer', async (path, fields) => {
  const limited = await house.key('t', { concurrent: 2 })
  const go_on = gate()
  const streams = 'stream' in fields
  engine.play([
    streams
      ? script(sse200, D(CH({ content: 'a' })), { do: 'until', opened: go_on.opened }, D(CH({}, 'stop')), DONE, end)
      : script(
          { do: 'until', opened: go_on.opened },
          head(200, { 'content-type': 'application/json' }),
          body(JSON.stringify(WHOLE('ok', 1, 1))),
          end,
        ),
  ])
  const before = engine.requests.length
  try {
    const running = [house.post(path, fields, limited), house.post(path, fields, limited)]
    await engine.request(before + 1)
    // A stream's head and first event are with the client; the place is taken all the same.
    if (streams) for (const answer of await Promise.all(running)) expect(answer.status).toBe(200)
    for (let again = 0; again < 3; again++) {
      const third = await house.post(path, fields, limited)
      expect([third.status, ((await third.json()) as any).error.code]).toEqual([429, 'concurrency_exceeded'])
      expect(third.headers.get('retry-after')).toBe('1')
    }
    // Another address of the same key counts too.
    expect((await house.post('/data', {}, limited)).status).toBe(429)
    go_on.open()
    for (const answer of await Promise.all(running)) await answer.text()
    await eventually(async () => expect((await house.post('/data', {}, limited)).status).toBe(200), 1_000)
  } finally {
    go_on.open()
    engine.play((request) => answerTo(request))
  }
})

test('a place is free again when its client leaves', async () => {
  const limited = await house.key('t', { concurrent: 1 })
  engine.play([script(sse200, D(CH({ content: 'a' })), { do: 'never' })])
  try {
    const leaving = new AbortController()
    const answer = await house.post('/v1/chat/completions', { ...R0, stream: true }, limited, {}, leaving.signal)
    expect(answer.status).toBe(200)
    expect((await house.post('/data', {}, limited)).status).toBe(429)
    leaving.abort()
    await eventually(async () => expect((await house.post('/data', {}, limited)).status).toBe(200), 1_000)
  } finally {
    engine.play((request) => answerTo(request))
  }
})
