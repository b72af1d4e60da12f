import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { Failure, type FailureCode, FAILURES } from '../../src/base/failure.ts'
import { clientDocument } from '../../src/http/client-api.ts'
import { dataPlane } from '../../src/http/data-plane.ts'
import { renderFailure } from '../../src/http/render.ts'
import { hotPath } from '../../src/pipeline/pipeline.ts'
import { connectRaw, exchangeRaw, requestBytes } from '../kit/raw-client.ts'
import { SECRET, unitHouse } from '../pipeline/unit-house.ts'

setDefaultTimeout(60_000)

const CODES = Object.keys(FAILURES) as FailureCode[]

test.each(CODES)('%s renders its row and hides its cause', async (code) => {
  const row = FAILURES[code]
  const answer = renderFailure(new Failure(code, { cause: new Error('db password') }), 'call_1')
  const text = await answer.text()
  expect(answer.status).toBe(row.status)
  expect(answer.headers.get('content-type')).toBe('application/json')
  expect(answer.headers.get('x-weir-call-id')).toBe('call_1')
  expect(JSON.parse(text)).toEqual({ error: { message: row.says, type: row.type, param: null, code } })
  expect(text + JSON.stringify([...answer.headers])).not.toContain('password')
  expect(answer.headers.get('retry-after')).toBe(row.retry === 'after' ? '1' : null)
  expect(answer.headers.get('www-authenticate')).toBe(row.status === 401 ? 'Bearer' : null)
})

test('every row is a client error or a server error, and 429 and 503 always say when to come back', () => {
  for (const [code, row] of Object.entries(FAILURES)) {
    expect([code, row.status >= 400 && row.status < 600]).toEqual([code, true])
    if (row.status === 429 || row.status === 503) expect([code, row.retry]).toEqual([code, 'after'])
  }
})

test.each([
  [undefined, '1'],
  [0, '1'],
  [0.2, '1'],
  [1.2, '2'],
  [42, '42'],
])('a wait of %p s is a Retry-After of %s', (retry_after_s, wanted) => {
  const answer = renderFailure(
    new Failure('rate_exceeded', { ...(retry_after_s !== undefined && { retry_after_s }), headers: { 'x-a': 'b' } }),
  )
  expect(answer.headers.get('retry-after')).toBe(wanted)
  expect(answer.headers.get('x-a')).toBe('b')
})

type Unit = Awaited<ReturnType<typeof unitHouse>>
type Plane = { readonly unit: Unit; readonly port: number; stop(): void }

/** A data plane of its own on loopback, in this process. */
const open = async (origins: readonly string[]): Promise<Plane> => {
  const unit = await unitHouse({ config: { cors: { origins } } })
  const app = dataPlane(unit.house, hotPath(renderFailure)).listen({ port: 0, hostname: '127.0.0.1' })
  return { unit, port: app.server!.port!, stop: () => void app.server!.stop(true) }
}

let off: Plane
let listed: Plane
let any: Plane
beforeAll(async () => {
  off = await open([])
  listed = await open(['https://app.example', 'https://other.example'])
  any = await open(['*'])
})
afterAll(async () => {
  for (const plane of [off, listed, any]) {
    plane.stop()
    await plane.unit[Symbol.asyncDispose]()
  }
})

const AUTHORIZATION = { authorization: `Bearer ${SECRET}` }
const ask = (plane: Plane, method: string, path: string, headers: Record<string, string> = {}, body?: unknown) =>
  exchangeRaw(plane.port, requestBytes(method, path, headers, body))

const corsOf = (headers: readonly (readonly [string, string])[]) =>
  Object.fromEntries(
    headers
      .map(([name, value]) => [name.toLowerCase(), value] as const)
      .filter(([name]) => name.startsWith('access-control-') || name === 'vary'),
  )

const ASKED = 'authorization,content-type,x-stainless-timeout,x-stainless-helper-method'
const PREFLIGHT = { 'access-control-request-method': 'POST', 'access-control-request-headers': ASKED }

test.each([
  // plane, origin, access-control-allow-origin
  ['off', 'https://app.example', undefined],
  ['listed', 'https://app.example', 'https://app.example'],
  ['listed', 'https://evil.example', undefined],
  ['listed', 'null', undefined],
  ['any', 'https://app.example', '*'],
  ['any', 'null', '*'],
] as const)('CORS %s, origin %s → %p on preflights, errors and answers alike', async (name, origin, wanted) => {
  const plane = { off, listed, any }[name]
  const preflight = await ask(plane, 'OPTIONS', '/v1/chat/completions', { origin, ...PREFLIGHT })
  expect(preflight.status).toBe(204)
  const answers = [
    preflight,
    await ask(plane, 'POST', '/v1/chat/completions', { origin, authorization: 'Bearer nope' }, {}),
    await ask(plane, 'POST', '/v1/chat/completions', { origin, ...AUTHORIZATION }, {}),
    await ask(plane, 'POST', '/data', { origin, ...AUTHORIZATION }, { a: 1 }),
    await ask(plane, 'GET', '/v1/models', { origin, ...AUTHORIZATION }),
    await ask(plane, 'GET', '/nope', { origin }),
    await ask(plane, 'PUT', '/v1/models', { origin }),
  ]
  expect(answers.map(({ status }) => status)).toEqual([204, 401, 400, 200, 200, 404, 405])
  for (const answer of answers) {
    const cors = corsOf(answer.headers)
    expect(cors['access-control-allow-origin']).toBe(wanted as never)
    expect(cors).not.toHaveProperty('access-control-allow-credentials')
    if (name === 'off') expect(cors).toEqual({})
    if (name === 'listed') expect(cors['vary']).toContain('Origin')
    if (wanted === undefined) continue
    expect(cors['access-control-expose-headers']).toContain('retry-after')
    expect(cors['access-control-expose-headers']).toContain('x-weir-call-id')
  }
  if (wanted === undefined) return
  expect(preflight.header('access-control-allow-headers')).toBe(ASKED)
  expect(preflight.header('access-control-allow-methods')).toBe('POST')
})

test('a preflight of an address that does not exist, and a bad head, are refused as any other', async () => {
  expect((await ask(any, 'OPTIONS', '/nope', { origin: 'https://a.example', ...PREFLIGHT })).status).toBe(404)
  expect((await ask(any, 'OPTIONS', '/v1/models', { host: 'a, b' })).status).toBe(400)
})

test.each([
  // method, path, status, Allow
  ['GET', '/', 200, undefined],
  ['GET', '/health', 200, undefined],
  ['GET', '/health/', 200, undefined],
  ['GET', '/v1/models', 200, undefined],
  ['GET', '/v1/models/m1', 200, undefined],
  ['GET', '/v1/models/nope', 404, undefined],
  ['GET', '/v1/models/a/b/c/d/e/f/g/h', 404, undefined],
  ['GET', '/v1/models/a/b/c/d/e/f/g/h/i', 404, undefined],
  ['GET', '/v1/models/%ff', 404, undefined],
  ['GET', '/v1/models/%', 404, undefined],
  ['GET', '/docs', 200, undefined],
  ['GET', '/docs/json', 200, undefined],
  ['GET', '/docs/swagger-ui.css', 200, undefined],
  ['GET', '/docs/../v1/models', 200, undefined],
  ['GET', '/docs/nope.js', 404, undefined],
  ['GET', '/docs/..%2f..%2fpackage.json', 404, undefined],
  ['GET', '/admin/keys', 404, undefined],
  ['GET', '/metrics', 404, undefined],
  ['POST', '/', 405, 'GET, HEAD'],
  ['POST', '/health', 405, 'GET, HEAD'],
  ['POST', '/docs', 405, 'GET, HEAD'],
  ['POST', '/v1/models', 405, 'GET, HEAD'],
  ['DELETE', '/v1/models/m1', 405, 'GET, HEAD'],
  ['GET', '/v1/chat/completions', 405, 'POST'],
  ['HEAD', '/v1/chat/completions', 405, 'POST'],
  ['PUT', '/v1/completions', 405, 'POST'],
  ['PATCH', '/v1/embeddings', 405, 'POST'],
  ['PROPFIND', '/data', 405, 'POST'],
  ['TRACE', '/data', 405, 'POST'],
] as const)('%s %s → %i, Allow %p', async (method, path, status, allow) => {
  using client = await connectRaw(off.port)
  await client.send(requestBytes(method, path, AUTHORIZATION))
  const answer = await client.response({ bodyless: method === 'HEAD' })
  expect([answer.status, answer.header('allow')]).toEqual([status, allow])
  if (status >= 400 && method !== 'HEAD') expect(answer.json().error.code).toBeString()
})

test.each(['api', 'gw', 'x', 'a:80'])('every address is found behind the short Host %s', async (host) => {
  for (const path of ['/health', '/v1/models', '/v1/models/m1', '/docs/json', '/'])
    expect([path, (await ask(off, 'GET', path, { host, ...AUTHORIZATION })).status]).toEqual([path, 200])
  expect((await ask(off, 'GET', '/v1/models/a/b', { host, ...AUTHORIZATION })).json().error.code).toBe('model_unknown')
  expect((await ask(off, 'POST', '/data', { host, ...AUTHORIZATION }, 1)).json()).toEqual({
    status: 'success',
    received: 1,
  })
})

test('every documented address and method exists, and says 401 without a key where a key is asked for', async () => {
  for (const [template, operations] of Object.entries(clientDocument().paths)) {
    const path = template.replace('{model}', 'm1').replace('{id}', 'call_1')
    for (const [method, operation] of Object.entries(operations)) {
      const answer = await ask(off, method.toUpperCase(), path, {}, method === 'post' ? {} : undefined)
      const keyed = (operation['security'] as object[]).length > 0
      expect([path, method, answer.status]).toEqual([path, method, keyed ? 401 : 200])
    }
  }
})

test('the guard of the head stands before every address', async () => {
  for (const path of ['/', '/health', '/v1/models', '/v1/models/m1', '/nope']) {
    const answer = await ask(off, 'GET', path, { ...AUTHORIZATION, x_forwarded_for: '1' })
    expect([path, answer.status, answer.header('connection')]).toEqual([path, 400, 'close'])
  }
})

// Bun answers a chunked body that turns out malformed, after whatever was answered before it was read. A proxy that read on
// would take that for the answer to its next request, so the first answer ends the connection.
test.each([
  ['POST', '/data', { authorization: 'Bearer nope' }, 401],
  ['POST', '/nope', AUTHORIZATION, 404],
  ['POST', '/health', AUTHORIZATION, 405],
] as const)(
  '%s %s refused before its chunked body is read closes, whatever follows',
  async (method, path, auth, status) => {
    for (const body of [
      '0\r\n\r\n',
      '3\r\nabc\r\nzz\r\n',
      '0\r\nX-A: b\r\n\r\n',
      '0\r\n\r\nGET /health HTTP/1.1\r\nHost: a\r\n\r\n',
    ]) {
      using client = await connectRaw(off.port)
      await client.send(
        Buffer.concat([requestBytes(method, path, { ...auth, 'transfer-encoding': 'chunked' }), Buffer.from(body)]),
      )
      const answer = await client.response()
      expect([answer.status, answer.header('connection')]).toEqual([status, 'close'])
      expect((await client.closed())?.how).toBe('fin')
      expect(client.unread().toString()).not.toContain(' 200 ')
    }
  },
)

test('a worker about to go asks every client to close the connection', async () => {
  off.unit.house.leaving = true
  try {
    for (const path of ['/health', '/v1/models', '/nope'])
      expect((await ask(off, 'GET', path, AUTHORIZATION)).header('connection')).toBe('close')
    expect((await ask(off, 'POST', '/data', AUTHORIZATION, 1)).header('connection')).toBe('close')
  } finally {
    off.unit.house.leaving = false
  }
})

test('refusals outside the pipeline are counted too', async () => {
  const failed: string[] = []
  const { metrics } = off.unit.house
  const counting = { ...off.unit.house, metrics: { ...metrics, failed: (code: FailureCode) => void failed.push(code) } }
  const app = dataPlane(counting, hotPath(renderFailure)).listen({ port: 0, hostname: '127.0.0.1' })
  for (const path of ['/nope', '/v1/models']) await exchangeRaw(app.server!.port!, requestBytes('GET', path))
  app.server!.stop(true)
  expect(failed).toEqual(['address_unknown', 'key_missing'])
})
