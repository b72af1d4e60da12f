import { describe, expect, test } from 'bun:test'
import {
  type Transport,
  TransportFailure,
  type UpstreamRequest,
  type UpstreamResponse,
} from '../../src/engines/transport.ts'
import { startHostileEngine, type HostileOptions } from '../kit/hostile-engine.ts'
import {
  body,
  bytewise,
  cut,
  drip,
  end,
  forever,
  head,
  json,
  never,
  raw,
  redirect,
  rst,
  script,
  stop_reading,
  type Script,
  wait,
} from '../kit/script.ts'
import { eventually, freePort, within } from '../kit/wait.ts'
import { muteServer } from './mute-server.ts'

export type OpenTransport = (options: { readonly idle_ms: number; readonly sockets_max: number }) => Transport

/** What two transports may do differently; each difference is stated in their doc comments. */
export type Differences = {
  /** How a connection that never comes up ends: `fetch` cannot tell it from a late head. */
  readonly connect_timeout: 'connect_timeout' | 'first_byte_timeout'
}

const DEADLINES = { connect_ms: 2_000, first_byte_ms: 2_000 }
const bytesOf = (text: string): Uint8Array => Buffer.from(text)

export const post = (url: string, ...pieces: Uint8Array[]): UpstreamRequest => ({
  method: 'POST',
  url,
  headers: [['content-type', 'application/json']],
  body: pieces,
})

/** The head, or an error that says what came instead. */
export const answerOf = async (result: Promise<UpstreamResponse | TransportFailure>): Promise<UpstreamResponse> => {
  const found = await within(result, 5_000, 'head')
  if (found instanceof TransportFailure) throw new Error(`${found.kind}: ${String(found.cause)}`)
  return found
}

export const failureOf = async (result: Promise<UpstreamResponse | TransportFailure>): Promise<TransportFailure> => {
  const found = await within(result, 5_000, 'head')
  if (found instanceof TransportFailure) return found
  throw new Error(`an answer came: ${found.status}`)
}

/** Reads to the end: the bytes that came and how it ended. */
export const drained = async (response: UpstreamResponse) => {
  const pieces: Uint8Array[] = []
  for (;;) {
    const piece = await within(response.read(), 10_000, 'read')
    if (piece === null) return { bytes: Buffer.concat(pieces), pieces, failure: undefined }
    if (piece instanceof TransportFailure) return { bytes: Buffer.concat(pieces), pieces, failure: piece }
    pieces.push(piece)
  }
}

/** An engine and a transport for one test, both gone at its end. */
export const stage = (open: OpenTransport, options: HostileOptions, idle_ms = 4_000, sockets_max = 64) => {
  const engine = startHostileEngine({ script_gets: true, ...options })
  const transport = open({ idle_ms, sockets_max })
  return {
    engine,
    transport,
    url: `${engine.url}/chat/completions`,
    send: (...pieces: Uint8Array[]) => transport.send(post(`${engine.url}/chat/completions`, ...pieces), DEADLINES),
    async [Symbol.asyncDispose]() {
      transport.close()
      await engine.stop()
    },
  }
}

const pattern = (bytes: number): Uint8Array => {
  const filled = Buffer.alloc(bytes)
  for (let at = 0; at + 4 <= bytes; at += 4) filled.writeUInt32LE(Math.imul(at, 2_654_435_761) >>> 0, at)
  return filled
}

const length = (content: string | Uint8Array): Script => json(200, content)
const chunked = (...contents: (string | Uint8Array)[]): Script => script(head(200), ...contents.map(body), end)
const closing = (content: string): Script => script(head(200, { connection: 'close' }, 'close'), body(content), end)

/** The contract of `Transport`, run against every implementation. */
export const transportContract = (name: string, open: OpenTransport, differences: Differences): void => {
  describe(`${name}: requests`, () => {
    test.each([
      { why: 'no body', pieces: [] },
      { why: 'one piece', pieces: [bytesOf('{"a":1}')] },
      { why: 'many pieces, one empty', pieces: [bytesOf('{"a"'), bytesOf(''), bytesOf(':'), bytesOf('1}')] },
      { why: '1 MB', pieces: [pattern(1_000_000)] },
      { why: '20 MB in three pieces', pieces: [pattern(15_000_000), pattern(4_999_999), bytesOf('!')] },
    ])('POST arrives byte for byte and comes back: $why', async ({ pieces }) => {
      const whole = Buffer.concat(pieces)
      await using it = stage(open, { answers: (request) => json(200, request.body) })
      const response = await answerOf(it.send(...pieces).head)
      const { bytes, failure } = await drained(response)
      expect(failure).toBeUndefined()
      expect(response.status).toBe(200)
      expect(bytes.equals(whole)).toBe(true)
      expect(it.engine.requests[0]!.body.equals(whole)).toBe(true)
    })

    test('the request line, host, length and headers are what was asked for', async () => {
      await using it = stage(open, { answers: [length('{}')] })
      const url = `${it.engine.url}/a%2fb/c?x=1&y=%20`
      const headers = [
        ['x-one', '1'],
        ['x-latin', 'caf\xe9'],
        ['authorization', 'Bearer k'],
      ] as const
      await drained(
        await answerOf(it.transport.send({ method: 'POST', url, headers, body: [bytesOf('hi')] }, DEADLINES).head),
      )
      await drained(await answerOf(it.transport.send({ method: 'GET', url, headers, body: [] }, DEADLINES).head))
      for (const [index, method] of ['POST', 'GET'].entries()) {
        const seen = it.engine.requests[index]!
        expect(seen).toMatchObject({ method, target: '/v1/a%2fb/c?x=1&y=%20' })
        const found = (name: string) =>
          seen.headers.filter(([at]) => at.toLowerCase() === name).map(([, value]) => value)
        for (const [name, value] of headers) expect(found(name)).toEqual([value])
        expect(found('host')).toEqual([`127.0.0.1:${it.engine.port}`])
        expect(found('content-length')).toEqual(method === 'POST' ? ['2'] : [])
        expect(found('accept-encoding')).toEqual([])
      }
    })

    test.each([
      ['x-a', 'b\r\nx-c: d'],
      ['x-a', 'b\0'],
      ['x-a', 'snow \u2603'],
      ['x a', 'b'],
      ['x-a:', 'b'],
      ['', 'b'],
      ['X-Upper', 'b'],
      ['content-length', '3'],
      ['transfer-encoding', 'chunked'],
      ['host', 'elsewhere'],
      ['connection', 'close'],
    ])('throws for the header %p: %p, before anything is sent', async (header, value) => {
      await using it = stage(open, { answers: [length('{}')] })
      const request = { method: 'POST', url: it.url, headers: [[header, value]], body: [] } as const
      expect(() => it.transport.send(request, DEADLINES)).toThrow(TypeError)
      expect(it.engine.connections).toHaveLength(0)
    })
  })

  describe(`${name}: answers`, () => {
    const text = '{"hello":"w\u00f6rld"}'
    test.each([
      { why: 'content-length', answer: length(text), close_delimited: false },
      { why: 'chunked', answer: chunked(text.slice(0, 5), text.slice(5)), close_delimited: false },
      { why: 'to the close', answer: closing(text), close_delimited: true },
      {
        why: 'one byte per write',
        answer: [bytewise(chunked(text.slice(0, 5), text.slice(5)))],
        close_delimited: false,
      },
      { why: 'slow trickle', answer: [drip(2, head(200), body(text), end)], close_delimited: false },
      {
        why: 'chunk extensions and trailers',
        answer: script(
          head(200),
          raw(`${Buffer.byteLength(text).toString(16).toUpperCase()};a=b;c="d"\r\n${text}\r\n0\r\nx-t: 1\r\n\r\n`),
          end,
        ).slice(0, 2),
        close_delimited: false,
      },
      {
        why: 'after a 100 and a 103',
        answer: [raw('HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n'), ...length(text)],
        close_delimited: false,
      },
    ])('the body comes whole: $why', async ({ answer, close_delimited }) => {
      await using it = stage(open, { answers: [answer] })
      const response = await answerOf(it.send(bytesOf('{}')).head)
      expect(response.status).toBe(200)
      expect(response.close_delimited).toBe(close_delimited)
      const { bytes, failure } = await drained(response)
      expect(failure).toBeUndefined()
      expect(bytes.toString()).toBe(text)
      expect(await response.read()).toBeNull()
    })

    test.each([
      { why: '204', answer: script(head(204, {}, 'length'), end) },
      {
        why: '304 with the length of what it stands for',
        answer: script(head(304, { 'content-length': '7' }, 'length'), end),
      },
      { why: 'length 0', answer: length('') },
      { why: 'no chunk but the last', answer: chunked() },
    ])('no body: $why', async ({ answer }) => {
      await using it = stage(open, { answers: [answer] })
      const { bytes, failure } = await drained(await answerOf(it.send().head))
      expect(failure).toBeUndefined()
      expect(bytes).toHaveLength(0)
    })

    test('20 MB come back byte for byte, chunked, and every piece is the caller’s to keep', async () => {
      const whole = pattern(20_000_000)
      await using it = stage(open, {
        answers: [chunked(whole.subarray(0, 7), whole.subarray(7, 9_000_000), whole.subarray(9_000_000))],
      })
      const { bytes, failure } = await drained(await answerOf(it.send().head))
      expect(failure).toBeUndefined()
      expect(bytes.equals(whole)).toBe(true)
    })

    test('what is in hand is had without a wait, before the rest and in its place', async () => {
      const whole = pattern(400_000)
      await using it = stage(open, { answers: [chunked(whole.subarray(0, 10), whole.subarray(10))] })
      const response = await answerOf(it.send().head)
      const pieces: Uint8Array[] = []
      for (;;) {
        let piece = response.inHand()
        if (piece === undefined) piece = await within(response.read(), 10_000, 'read')
        if (!(piece instanceof Uint8Array)) {
          expect(piece).toBeNull()
          break
        }
        pieces.push(piece)
        // So that pieces wait, and what is held passes its bound.
        if (pieces.length % 2 === 1) await Bun.sleep(20)
      }
      expect(Buffer.concat(pieces).equals(whole)).toBe(true)
      expect(response.inHand()).toBeNull()
    })

    test('headers: any case, several lines joined, unknown is undefined', async () => {
      await using it = stage(open, {
        answers: [
          [
            raw(
              'HTTP/1.1 429 Slow Down\r\nRetry-After:  7 \r\nX-A: 1\r\nx-a: 2\r\nx-latin: caf\xe9\r\nContent-Length: 0\r\n\r\n',
            ),
            end,
          ],
        ],
      })
      const response = await answerOf(it.send().head)
      expect(response.status).toBe(429)
      expect(response.header('retry-after')).toBe('7')
      expect(response.header('x-a')).toBe('1, 2')
      expect(response.header('after')).toBeUndefined()
      expect(response.header('a')).toBeUndefined()
      await drained(response)
    })

    test('a redirect is an answer', async () => {
      await using it = stage(open, { answers: [redirect(307, '/elsewhere')] })
      const response = await answerOf(it.send(bytesOf('{}')).head)
      expect(response.status).toBe(307)
      expect(response.header('location')).toBe('/elsewhere')
      await drained(response)
      expect(it.engine.requests).toHaveLength(1)
    })

    test('compressed bytes come as they are', async () => {
      const packed = Bun.gzipSync('{"a":1}')
      await using it = stage(open, { answers: [json(200, packed, { 'content-encoding': 'gzip' })] })
      const response = await answerOf(it.send().head)
      expect(response.header('content-encoding')).toBe('gzip')
      expect((await drained(response)).bytes.equals(packed)).toBe(true)
    })
  })

  describe(`${name}: connections`, () => {
    test('one after the other share a connection', async () => {
      await using it = stage(open, { answers: [length('{}'), chunked('{', '}')] })
      for (let n = 0; n < 10; n++) {
        await drained(await answerOf(it.send(bytesOf(`${n}`)).head))
        await Bun.sleep(1)
      }
      expect(it.engine.connections).toHaveLength(1)
      expect(it.engine.requests.map((request) => request.text())).toEqual([...'0123456789'])
    })

    test('many at once each get their own answer', async () => {
      await using it = stage(open, { answers: (request) => chunked('<', request.body, '>') })
      const answers = await Promise.all(
        Array.from(
          { length: 100 },
          async (_, n) => (await drained(await answerOf(it.send(bytesOf(`n${n}`)).head))).bytes,
        ),
      )
      expect(answers.map(String)).toEqual(Array.from({ length: 100 }, (_, n) => `<n${n}>`))
    })

    test('a connection that the engine closes after its answer is not used again', async () => {
      await using it = stage(open, {
        answers: [script(head(200, { connection: 'close', 'content-length': '2' }, 'length'), body('{}'), cut)],
      })
      for (let n = 0; n < 3; n++) await drained(await answerOf(it.send(bytesOf('x')).head))
      expect(it.engine.connections).toHaveLength(3)
    })

    test('close() closes idle connections, exchanges under way go on', async () => {
      await using it = stage(open, { answers: [length('{}'), script(head(200), body('a'), wait(50), body('b'), end)] })
      await drained(await answerOf(it.send().head))
      const under_way = await answerOf(it.send().head)
      it.transport.close()
      expect((await drained(under_way)).bytes.toString()).toBe('ab')
    })

    test('an idle connection is closed at its age, before the engine’s own limit', async () => {
      await using it = stage(open, { answers: [length('{}')] }, 50)
      await drained(await answerOf(it.send().head))
      await eventually(() => expect(it.engine.connections[0]!.closed).toMatchObject({ by: 'peer' }))
    })
  })

  describe(`${name}: failures`, () => {
    test('refused', async () => {
      const transport = open({ idle_ms: 1_000, sockets_max: 4 })
      const url = `http://127.0.0.1:${freePort()}/v1`
      expect(await failureOf(transport.send(post(url), DEADLINES).head)).toMatchObject({ kind: 'connect', sent: false })
    })

    test('unknown host', async () => {
      const transport = open({ idle_ms: 1_000, sockets_max: 4 })
      const exchange = transport.send(post('http://nowhere.invalid/v1'), DEADLINES)
      expect(await failureOf(exchange.head)).toMatchObject({ kind: 'connect', sent: false })
    })

    test('never connected', async () => {
      await using server = await muteServer()
      const transport = open({ idle_ms: 1_000, sockets_max: 4 })
      const exchange = transport.send(post(`${server.origin}/v1`), { connect_ms: 60, first_byte_ms: 60 })
      expect(await failureOf(exchange.head)).toMatchObject({ kind: differences.connect_timeout })
    })

    test('silent: the head does not come in time, and the engine sees the connection close', async () => {
      await using it = stage(open, { answers: [[never]] })
      const exchange = it.transport.send(post(it.url), { connect_ms: 60, first_byte_ms: 60 })
      expect(await failureOf(exchange.head)).toMatchObject({ kind: 'first_byte_timeout', sent: true })
      await it.engine.hangUp(0)
    })

    test('half a head does not stop the clock', async () => {
      await using it = stage(open, { answers: [[raw('HTTP/1.1 200 OK\r\nx-a: '), never]] })
      const exchange = it.transport.send(post(it.url), { connect_ms: 60, first_byte_ms: 60 })
      expect(await failureOf(exchange.head)).toMatchObject({ kind: 'first_byte_timeout', sent: true })
    })

    test.each([
      { why: 'closed before the head', answer: [cut] },
      { why: 'reset before the head', answer: [rst] },
      { why: 'closed in the head', answer: [raw('HTTP/1.1 200 OK\r\ncontent-le'), wait(5), cut] },
    ])('reset: $why', async ({ answer }) => {
      await using it = stage(open, { answers: [answer] })
      expect(await failureOf(it.send(bytesOf('{}')).head)).toMatchObject({ kind: 'reset', sent: true })
      expect(it.engine.requests).toHaveLength(1)
    })

    test.each([
      {
        why: 'short of its length',
        answer: script(head(200, { 'content-length': '10' }, 'length'), body('abc'), wait(100), cut),
      },
      { why: 'between chunks', answer: script(head(200), body('abc'), wait(100), cut) },
      { why: 'in a chunk', answer: script(head(200), raw('5\r\nabc'), wait(100), cut) },
      { why: 'in a chunk size', answer: script(head(200), body('abc'), raw('1'), wait(100), cut) },
      { why: 'reset', answer: script(head(200), body('abc'), wait(100), rst) },
    ])('cut: $why; what came before is delivered', async ({ answer }) => {
      await using it = stage(open, { answers: [answer] })
      const { bytes, failure } = await drained(await answerOf(it.send(bytesOf('{}')).head))
      expect(failure).toMatchObject({ kind: 'cut', sent: true })
      expect(bytes.toString()).toBe('abc')
      expect(it.engine.requests).toHaveLength(1)
    })

    test('an answer that goes on after its first failure keeps failing', async () => {
      await using it = stage(open, { answers: [script(head(200), body('abc'), wait(5), cut)] })
      const response = await answerOf(it.send().head)
      const { failure } = await drained(response)
      expect(await response.read()).toBe(failure!)
    })

    test.each([
      { why: 'differing lengths', answer: 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nabc' },
      { why: 'a coding that is not chunked', answer: 'HTTP/1.1 200 OK\r\ntransfer-encoding: xchunked\r\n\r\nabc' },
      { why: 'a folded header', answer: 'HTTP/1.1 200 OK\r\nx-a: b\r\n c\r\ncontent-length: 0\r\n\r\n' },
    ])('invalid: $why', async ({ answer }) => {
      await using it = stage(open, { answers: [[raw(answer)]] })
      expect(await failureOf(it.send().head)).toMatchObject({ kind: 'invalid', sent: true })
    })

    test('invalid: a bad chunk size', async () => {
      await using it = stage(open, { answers: [script(head(200), body('abc'), wait(5), raw('xyz\r\n'))] })
      const { bytes, failure } = await drained(await answerOf(it.send().head))
      expect(bytes.toString()).toBe('abc')
      expect(failure).toMatchObject({ kind: 'invalid', sent: true })
    })
  })

  describe(`${name}: cancel and backpressure`, () => {
    test('before the head: the engine sees it at once', async () => {
      await using it = stage(open, { answers: [[never]] })
      const exchange = it.send(bytesOf('{}'))
      await it.engine.request(0)
      const at_ms = performance.now()
      exchange.cancel()
      exchange.cancel()
      expect(await failureOf(exchange.head)).toMatchObject({ kind: 'cancelled', sent: true })
      const hang_up = await it.engine.hangUp(0)
      // 2 ms on a quiet machine; the bound is for a busy one.
      expect(hang_up.at_ms - at_ms).toBeLessThan(250)
    })

    test('in the body: the engine sees it at once, and a waiting read ends', async () => {
      await using it = stage(open, { answers: [script(head(200), body('abc'), never)] })
      const exchange = it.send(bytesOf('{}'))
      const response = await answerOf(exchange.head)
      expect(Buffer.from((await response.read()) as Uint8Array).toString()).toBe('abc')
      const waiting = response.read()
      const at_ms = performance.now()
      exchange.cancel()
      expect(await within(waiting as Promise<unknown>, 1_000, 'read')).toMatchObject({ kind: 'cancelled', sent: true })
      const hang_up = await it.engine.hangUp(0)
      // 2 ms on a quiet machine; the bound is for a busy one.
      expect(hang_up.at_ms - at_ms).toBeLessThan(250)
    })

    test('at once, and after the end: harmless', async () => {
      await using it = stage(open, { answers: [length('{}')] })
      const early = it.send(bytesOf('1'))
      early.cancel()
      expect(await failureOf(early.head)).toMatchObject({ kind: 'cancelled' })
      const late = it.send(bytesOf('2'))
      const response = await answerOf(late.head)
      await drained(response)
      late.cancel()
      expect(await response.read()).toBeNull()
      expect((await drained(await answerOf(it.send(bytesOf('3')).head))).bytes.toString()).toBe('{}')
    })

    test('an endless body that nobody reads stops the engine', async () => {
      await using it = stage(open, {
        answers: [[head(200, { 'content-length': '9000000000' }, 'length'), forever(pattern(65_536))]],
      })
      const exchange = it.send()
      const response = await answerOf(exchange.head)
      await response.read()
      let before = -1
      // The engine's counter stands still once kernel buffers and ours are full.
      await eventually(async () => {
        await Bun.sleep(60)
        const now = it.engine.requests[0]!.answer_bytes
        const still = now === before
        before = now
        return still
      }, 5_000)
      expect(before).toBeLessThan(24 * 1024 * 1024)
      for (let n = 0; n < 200; n++) expect(await response.read()).toBeInstanceOf(Uint8Array)
      await eventually(() => it.engine.requests[0]!.answer_bytes > before)
      exchange.cancel()
      await it.engine.hangUp(0)
    })

    test('an engine that does not read a large body: the call fails in time', async () => {
      await using it = stage(open, { answers: [[stop_reading, never]], early: true })
      const exchange = it.transport.send(post(it.url, pattern(20_000_000)), { connect_ms: 100, first_byte_ms: 100 })
      expect(await failureOf(exchange.head)).toMatchObject({ kind: 'first_byte_timeout', sent: true })
    })
  })
}
