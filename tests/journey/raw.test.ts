import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { startHostileEngine } from '../kit/hostile-engine.ts'
import { startHouse, type TestHouse } from '../kit/house.ts'
import { connectRaw, exchangeRaw, requestBytes } from '../kit/raw-client.ts'
import { json, WHOLE } from '../kit/script.ts'
import { eventually } from '../kit/wait.ts'

/**
 * Raw requests against a running house: what an attacker or a broken intermediary may send. Each gets one answer as
 * documented here or a closed connection, none is a 500, none but the harmless reaches the engine, and the house goes on.
 */

// The preloaded default holds for the first file of a run only.
setDefaultTimeout(60_000)

const engine = startHostileEngine({ answers: [json(200, WHOLE('ok', 1, 1))] })
let house: TestHouse
let key: string
beforeAll(async () => {
  house = await startHouse({
    config: {
      server: { body_bytes_max: 65_536, body_ms: 500 },
      engines: [{ name: 'e', url: engine.url }],
      models: [{ name: 'm1', targets: [{ engine: 'e' }], free: true }],
      tenants: [{ name: 't' }],
    },
  })
  key = await house.key('t')
})
afterAll(async () => {
  await house[Symbol.asyncDispose]()
  await engine.stop()
})

const BODY = '{"model":"m1","messages":[]}'
const SIZE = BODY.length
const HEX = SIZE.toString(16)

type Parts = {
  readonly line?: string
  readonly host?: string | null
  /** Header lines after Host and Authorization. */
  readonly lines?: readonly string[]
  readonly body?: string
  readonly authorization?: string
}

/** A good call with parts of it changed. */
const call = ({ line, host, lines, body, authorization }: Parts): Buffer => {
  const all = [
    line ?? 'POST /v1/chat/completions HTTP/1.1',
    ...(host === null ? [] : [`Host: ${host ?? 'localhost'}`]),
    `Authorization: ${authorization ?? `Bearer ${key}`}`,
    ...(lines ?? [`Content-Length: ${SIZE}`]),
  ]
  // Latin-1: a byte a character, whatever it is.
  return Buffer.from(`${all.join('\r\n')}\r\n\r\n${body ?? BODY}`, 'latin1')
}
const lengths = (...values: string[]): Parts => ({ lines: values.map((value) => `Content-Length: ${value}`) })
const coded = (coding: string, body = `${HEX}\r\n${BODY}\r\n0\r\n\r\n`, ...more: string[]): Parts => ({
  lines: [`Transfer-Encoding: ${coding}`, ...more],
  body,
})
const also = (...lines: string[]): Parts => ({ lines: [...lines, `Content-Length: ${SIZE}`] })
const asked = (line: string): Parts => ({ line })
const bare = (line: string): Parts => ({ line, lines: [], body: '' })

/** `by`: Bun's parser answers with an empty body, our guard with the OpenAI error of that code. */
type Row = readonly [what: string, parts: Parts | (() => Buffer), status: number, by: string]

const HARMLESS: readonly Row[] = [
  ['a plain call', {}, 200, 'engine'],
  ['CHUNKED in capitals', coded('CHUNKED'), 200, 'engine'],
  ['a chunk extension', coded('chunked', `${HEX};a=b\r\n${BODY}\r\n0\r\n\r\n`), 200, 'engine'],
  ['many small chunks', coded('chunked', `${[...BODY].map((c) => `1\r\n${c}\r\n`).join('')}0\r\n\r\n`), 200, 'engine'],
  ['a Host as short as a service name', { host: 'gw' }, 200, 'engine'],
  ['a Host in brackets with a port', { host: '[::1]:8080' }, 200, 'engine'],
  [
    'an absolute target: Host decides, and routes nothing',
    asked('POST http://evil/v1/chat/completions HTTP/1.1'),
    200,
    'engine',
  ],
  ['a query', asked('POST /v1/chat/completions?api-version=1 HTTP/1.1'), 200, 'engine'],
  ['a slash at the end', asked('POST /v1/chat/completions/ HTTP/1.1'), 200, 'engine'],
  ['dots that lead back to the address', asked('POST /v1/x/../chat/completions HTTP/1.1'), 200, 'engine'],
  ['two cookies', also('Cookie: a=1', 'Cookie: b=2'), 200, 'engine'],
  ['two forwarders', also('X-Forwarded-For: 1.1.1.1', 'X-Forwarded-For: 2.2.2.2'), 200, 'engine'],
  [
    'an upgrade that is not taken up',
    {
      ...bare('GET /v1/models HTTP/1.1'),
      lines: [
        'Connection: Upgrade',
        'Upgrade: websocket',
        'Sec-WebSocket-Version: 13',
        'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
      ],
    },
    200,
    'house',
  ],
]

const REFUSED: readonly Row[] = [
  // Framing: two readers would see two bodies.
  [
    'length, then coding',
    { lines: ['Content-Length: 5', 'Transfer-Encoding: chunked'], body: '0\r\n\r\n' },
    400,
    'bun',
  ],
  [
    'coding, then length',
    { lines: ['Transfer-Encoding: chunked', 'Content-Length: 5'], body: '0\r\n\r\n' },
    400,
    'bun',
  ],
  ['two different lengths', lengths('5', '6'), 400, 'bun'],
  ['two equal lengths', lengths(`${SIZE}`, `${SIZE}`), 400, 'framing_ambiguous'],
  ['a list of equal lengths', lengths(`${SIZE}, ${SIZE}`), 400, 'bun'],
  ['a length with a sign', lengths(`+${SIZE}`), 400, 'bun'],
  ['a negative length', lengths('-1'), 400, 'bun'],
  ['a length in hex', lengths('0x1c'), 400, 'bun'],
  ['a length with a leading zero', lengths(`0${SIZE}`), 400, 'framing_ambiguous'],
  ['a length beyond 64 bits', lengths('18446744073709551619'), 400, 'bun'],
  ['an empty length', lengths(''), 400, 'bun'],
  ['a coding that only looks like chunked', coded('xchunked'), 400, 'bun'],
  ['identity', coded('identity'), 400, 'bun'],
  ['gzip before chunked', coded('gzip, chunked'), 400, 'bun'],
  ['chunked before identity', coded('chunked, identity'), 400, 'bun'],
  ['two codings', coded('chunked', undefined, 'Transfer-Encoding: chunked'), 400, 'bun'],
  ['a vertical tab before the coding', coded('\x0bchunked'), 400, 'bun'],
  ['a coding on HTTP/1.0', { ...coded('chunked'), line: 'POST /v1/chat/completions HTTP/1.0' }, 400, 'bun'],
  ['a folded coding', { lines: ['Transfer-Encoding:', ' chunked'], body: '0\r\n\r\n' }, 400, 'bun'],
  [
    'a body on GET',
    { ...bare('GET /v1/models HTTP/1.1'), lines: ['Content-Length: 3'], body: 'abc' },
    400,
    'framing_ambiguous',
  ],
  ['a chunked body on GET', { ...coded('chunked'), line: 'GET /v1/models HTTP/1.1' }, 400, 'framing_ambiguous'],
  [
    'a body on a probe',
    { ...bare('GET /health HTTP/1.1'), lines: ['Content-Length: 3'], body: 'abc' },
    400,
    'framing_ambiguous',
  ],
  // Headers.
  ['a folded line', also('X-A: 1\r\n 2'), 400, 'bun'],
  ['a bare LF', also('X-A: 1\nX-B: 2'), 400, 'bun'],
  ['a bare CR', also('X-A: 1\r2'), 400, 'bun'],
  ['NUL in a value', also('X-A: 1\x002'), 400, 'bun'],
  ['NUL in a name', also('X\x00A: 1'), 400, 'bun'],
  ['a space before the colon', { lines: [`Content-Length : ${SIZE}`] }, 400, 'bun'],
  ['a bracket in a name', also('X(A: 1'), 400, 'bun'],
  ['an empty name', also(': 1'), 400, 'bun'],
  ['an underscore for a dash', also('Content_Length: 3'), 400, 'header_invalid'],
  ['__proto__', also('__proto__: x'), 400, 'header_invalid'],
  ['two credentials in one header', also('Authorization: Bearer other'), 400, 'header_invalid'],
  ['two content types', also('Content-Type: a/b', 'Content-Type: c/d'), 400, 'header_invalid'],
  ['two idempotency keys', also('Idempotency-Key: a', 'Idempotency-Key: b'), 400, 'header_invalid'],
  ['a key that is not ASCII', { authorization: 'Bearer k\xe9y' }, 400, 'header_invalid'],
  ['a header of 20 KB', also(`X-A: ${'a'.repeat(20_480)}`), 431, 'bun'],
  ['300 header lines', also(...Array.from({ length: 300 }, (_, n) => `X-${n}: a`)), 431, 'bun'],
  // Host.
  ['no Host', { host: null }, 400, 'bun'],
  ['two Hosts', also('Host: evil'), 400, 'header_invalid'],
  ['an empty Host', { host: '' }, 400, 'header_invalid'],
  ['a Host with a user', { host: 'a@b' }, 400, 'header_invalid'],
  ['a Host with a path', { host: 'a/b' }, 400, 'header_invalid'],
  ['a Host with a space', { host: 'a b' }, 400, 'header_invalid'],
  [
    'an upgrade without Host',
    { host: null, line: 'GET /v1/models HTTP/1.1', lines: ['Connection: Upgrade', 'Upgrade: websocket'], body: '' },
    400,
    'bun',
  ],
  // Start line.
  ['a line end before the request', () => Buffer.concat([Buffer.from('\r\n'), call({})]), 400, 'bun'],
  ['a space before the request', () => Buffer.concat([Buffer.from(' '), call({})]), 400, 'bun'],
  ['a bracket in the method', bare('PO(ST /v1/chat/completions HTTP/1.1'), 400, 'bun'],
  ['LF alone', () => Buffer.from(call({}).toString('latin1').replaceAll('\r\n', '\n'), 'latin1'), 505, 'bun'],
  ['tabs', asked('POST\t/v1/chat/completions\tHTTP/1.1'), 505, 'bun'],
  ['HTTP/9.9', asked('POST /v1/chat/completions HTTP/9.9'), 505, 'bun'],
  ['HTTP/2.0', asked('POST /v1/chat/completions HTTP/2.0'), 505, 'bun'],
  ['HTTP/0.9', () => Buffer.from('GET /health\r\n'), 505, 'bun'],
  ['the preface of HTTP/2', () => Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), 400, 'bun'],
  ['a TLS hello', () => Buffer.from('\x16\x03\x01\x02\x00\x01\x00', 'latin1'), 400, 'bun'],
  ['a target of 17 KB', bare(`POST /${'a'.repeat(17_000)} HTTP/1.1`), 431, 'bun'],
  ['a target with a fragment', asked('POST /v1/chat/completions#x HTTP/1.1'), 400, 'header_invalid'],
  ['CONNECT', { ...bare('CONNECT evil:80 HTTP/1.1'), host: 'evil:80' }, 400, 'header_invalid'],
  ['OPTIONS *', bare('OPTIONS * HTTP/1.1'), 400, 'bun'],
  ['TRACE', bare('TRACE /v1/chat/completions HTTP/1.1'), 405, 'method_not_allowed'],
  ['PUT', asked('PUT /v1/chat/completions HTTP/1.1'), 405, 'method_not_allowed'],
  ['PROPFIND', bare('PROPFIND /v1/models HTTP/1.1'), 405, 'method_not_allowed'],
  ['GET of a call', bare('GET /v1/chat/completions HTTP/1.1'), 405, 'method_not_allowed'],
  ['a method nobody knows', bare('FOO /v1/chat/completions HTTP/1.1'), 0, 'closed'],
  // Address: only what stands in the table, whatever normalises to it elsewhere.
  ['%ff', asked('POST /v1/chat/completions%ff HTTP/1.1'), 404, 'address_unknown'],
  ['an encoded letter', asked('POST /v1/%63hat/completions HTTP/1.1'), 404, 'address_unknown'],
  ['an encoded slash after dots', asked('POST /v1/..%2fadmin HTTP/1.1'), 404, 'address_unknown'],
  ['dots out of the prefix', bare('GET /v1/../admin/keys HTTP/1.1'), 404, 'address_unknown'],
  ['encoded dots out of the prefix', bare('GET /v1/%2e%2e/admin/keys HTTP/1.1'), 404, 'address_unknown'],
  ['a backslash', bare('GET /v1/a\\..\\admin HTTP/1.1'), 404, 'address_unknown'],
  ['an authority in the path', asked('POST //evil/v1/chat/completions HTTP/1.1'), 404, 'address_unknown'],
  ['a doubled slash', asked('POST /v1//chat/completions HTTP/1.1'), 404, 'address_unknown'],
  ['a NUL in the target', bare('GET /v1/models%00 HTTP/1.1'), 404, 'address_unknown'],
  // Bodies.
  ['a length over the limit', { lines: ['Content-Length: 65537'], body: 'a' }, 413, 'body_too_large'],
  ['a length far over the limit', { lines: ['Content-Length: 999999999999'], body: 'a' }, 413, 'body_too_large'],
  ['chunks over the limit', coded('chunked', `20000\r\n${'a'.repeat(0x2_0000)}\r\n0\r\n\r\n`), 413, 'body_too_large'],
  [
    'small chunks over the limit',
    coded('chunked', `1000\r\n${'a'.repeat(0x1000)}\r\n`.repeat(17)),
    413,
    'body_too_large',
  ],
  [
    'a chunk extension of 100 KB',
    coded('chunked', `${HEX};${'a'.repeat(100_000)}\r\n${BODY}\r\n0\r\n\r\n`),
    413,
    'bun',
  ],
  ['a chunk size ended by LF', coded('chunked', `${HEX}\n${BODY}\r\n0\r\n\r\n`), 400, 'bun'],
  ['a chunk size in C', coded('chunked', `0x${HEX}\r\n${BODY}\r\n0\r\n\r\n`), 400, 'bun'],
  ['a negative chunk size', coded('chunked', `-3\r\n${BODY}\r\n0\r\n\r\n`), 400, 'bun'],
  ['a space after the chunk size', coded('chunked', `${HEX} \r\n${BODY}\r\n0\r\n\r\n`), 400, 'bun'],
  ['a chunk size beyond 64 bits', coded('chunked', `fffffffffffffffff\r\n${BODY}\r\n0\r\n\r\n`), 400, 'bun'],
  ['a chunk longer than its size', coded('chunked', `3\r\n${BODY}\r\n0\r\n\r\n`), 400, 'bun'],
  ['a body that does not come', { body: '' }, 408, 'body_timeout'],
  ['a body that stops half-way', { body: BODY.slice(0, 10) }, 408, 'body_timeout'],
  ['chunks that stop half-way', coded('chunked', `3\r\nabc\r\n`), 408, 'body_timeout'],
  ['an empty body', { lines: ['Content-Length: 0'], body: '' }, 400, 'json_invalid'],
  ['neither length nor coding', { lines: [], body: '' }, 400, 'json_invalid'],
]

/** Sends the bytes on a connection of their own; answers what came, and that nothing else did. */
const play = async (bytes: Buffer) => {
  using client = await connectRaw(house.port)
  const before = engine.requests.length
  await client.send(bytes)
  const answer = await client.response({ within_ms: 3_000 })
  const closing = answer.status === 0 || answer.header('connection') === 'close'
  const gone = closing ? await client.closed(1_000) : undefined
  // Whatever else the house has to say on this connection it says before it answers a probe on another.
  const probe = await exchangeRaw(house.port, requestBytes('GET', '/health'))
  expect(probe.status).toBe(200)
  expect(client.unread().toString('latin1')).toBe('')
  if (closing) expect(gone?.how).toBe('fin')
  return { answer, asked_engine: engine.requests.length - before }
}

test.each(HARMLESS)('%s → served', async (_what, parts, status, by) => {
  const { answer, asked_engine } = await play(parts instanceof Function ? parts() : call(parts))
  expect([answer.status, asked_engine]).toEqual([status, by === 'engine' ? 1 : 0])
  if (by === 'engine') expect(engine.requests.at(-1)!.text()).toBe(BODY)
})

test.each(REFUSED)('%s → refused', async (_what, parts, status, by) => {
  const { answer, asked_engine } = await play(parts instanceof Function ? parts() : call(parts))
  expect([answer.status, asked_engine]).toEqual([status, 0])
  if (by === 'bun') expect([answer.header('connection'), answer.body.length]).toEqual(['close', 0])
  else if (by !== 'closed') expect(answer.json().error).toMatchObject({ code: by, message: expect.any(String) })
})

// Bun ends a connection on which bytes follow a body while its answer is pending: the call is one that its client left.
test.each([
  ['a second request in the same breath', () => Buffer.concat([call({}), call({})])],
  ['a trailer section', () => call(coded('chunked', `${HEX}\r\n${BODY}\r\n0\r\nX-A: b\r\n\r\n`))],
  [
    'a request in a trailer section',
    () => call(coded('chunked', `${HEX}\r\n${BODY}\r\n0\r\nGET /health HTTP/1.1\r\nHost: a\r\n\r\n`)),
  ],
])('%s → at most one call, never an answer to the second', async (_what, bytes) => {
  using client = await connectRaw(house.port)
  const before = engine.requests.length
  await client.send(bytes())
  expect((await client.closed(2_000))?.how).toBe('fin')
  expect(client.unread().toString('latin1')).not.toContain(' 200 ')
  expect(engine.requests.length - before).toBeLessThanOrEqual(1)
  expect((await exchangeRaw(house.port, call({}))).status).toBe(200)
})

test('a refused request’s body is never read as the next request', async () => {
  const hidden = 'GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n'
  using client = await connectRaw(house.port)
  await client.send(call({ authorization: 'Bearer nope', lines: [`Content-Length: ${hidden.length}`], body: hidden }))
  expect((await client.response()).status).toBe(401)
  await client.send(call({}))
  expect((await client.response()).status).toBe(200)
  expect(client.unread().length).toBe(0)
})

test('a client that leaves during its body costs no call', async () => {
  const before = engine.requests.length
  for (const leave of ['close', 'reset', 'halfClose'] as const) {
    using client = await connectRaw(house.port)
    await client.send(call({ body: BODY.slice(0, 10) }))
    client[leave]()
  }
  expect((await exchangeRaw(house.port, call({}))).status).toBe(200)
  expect(engine.requests.length - before).toBe(1)
})

test('nothing of it was a fault of the house, and every call that reached the engine is in the ledger', async () => {
  const rows = await house.rowsReach(engine.requests.length)
  const others = rows.filter(({ ending }) => ending !== 'whole')
  // The three connections that Bun ended: their calls may or may not have reached the engine by then.
  expect(others.every(({ ending }) => ending === 'cut_by_client')).toBe(true)
  expect(others.length).toBeLessThanOrEqual(3)
  expect(engine.requests.length).toBeGreaterThanOrEqual(rows.length - others.length)
  expect(house.logged('internal_error')).toEqual([])
  await eventually(() => expect(engine.calls.now).toBe(0))
  expect(house.pids('worker')).toHaveLength(1)
})
