import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import { ConnectionPool } from '../../src/engines/connection-pool.ts'
import { transportOpener } from '../../src/engines/open-transport.ts'
import { openSocketTransport } from '../../src/engines/socket-transport.ts'
import { answerOf, drained, failureOf, post, stage } from '../contract/transport.contract.ts'
import { startHostileEngine } from '../kit/hostile-engine.ts'
import { body, cut, drip, end, forever, head, json, never, raw, rst, script, wait } from '../kit/script.ts'
import { eventually } from '../kit/wait.ts'

setDefaultTimeout(60_000)

const DEADLINES = { connect_ms: 2_000, first_byte_ms: 2_000 }
const bytesOf = (text: string): Uint8Array => Buffer.from(text)
const OK = 'HTTP/1.1 200 OK\r\n'

describe('an engine that breaks the protocol: invalid, and the connection is closed', () => {
  test.each([
    { why: 'garbage', answer: [raw('\x16\x03\x01\x02')] },
    { why: 'an endless status line', answer: [raw('HTTP/1.1 200 '), forever('x'.repeat(4_096))] },
    { why: 'an endless header', answer: [raw(`${OK}x: `), forever('y'.repeat(4_096))] },
    { why: 'endless headers', answer: [raw(OK), forever('x: y\r\n'.repeat(100))] },
    { why: 'endless interim answers', answer: [forever('HTTP/1.1 102 Processing\r\n\r\n')] },
    { why: 'bare LF', answer: [raw('HTTP/1.1 200 OK\ncontent-length: 0\n\n')] },
    {
      why: 'length and chunked',
      answer: [raw(`${OK}content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n`)],
    },
    { why: 'a switch of protocols', answer: [raw('HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n')] },
  ])('$why', async ({ answer }) => {
    await using it = stage(openSocketTransport, { answers: [[...answer, never]] })
    expect(await failureOf(it.send(bytesOf('{}')).head)).toMatchObject({ kind: 'invalid', sent: true })
    await eventually(() => expect(it.engine.connections[0]!.closed).toMatchObject({ by: 'peer' }))
  })

  test.each([
    { why: 'an endless chunk extension', answer: [head(200), body('abc'), raw('3;'), forever('x'.repeat(4_096))] },
    { why: 'endless trailers', answer: [head(200), body('abc'), raw('0\r\n'), forever('x: y\r\n'.repeat(100))] },
    { why: 'a huge chunk size', answer: [head(200), body('abc'), raw('ffffffffffffffff\r\n')] },
  ])('$why, after what came before', async ({ answer }) => {
    await using it = stage(openSocketTransport, { answers: [[...answer, never]] })
    const { bytes, failure } = await drained(await answerOf(it.send(bytesOf('{}')).head))
    expect(bytes.toString()).toBe('abc')
    expect(failure).toMatchObject({ kind: 'invalid', sent: true })
    await eventually(() => expect(it.engine.connections[0]!.closed).toMatchObject({ by: 'peer' }))
  })
})

test('a reset while the reader is behind: what was held is delivered, then the cut', async () => {
  await using it = stage(openSocketTransport, {
    answers: [[head(200, { 'content-length': '9000000' }, 'length'), body('x'.repeat(600_000)), wait(60), rst]],
  })
  const response = await answerOf(it.send().head)
  await Bun.sleep(100)
  const { bytes, failure } = await drained(response)
  expect(bytes.length).toBeGreaterThan(0)
  expect(failure).toMatchObject({ kind: 'cut' })
})

test('an answer that ended while the reader was behind is whole, and its connection serves the next', async () => {
  const large = 'x'.repeat(3_000_000)
  await using it = stage(openSocketTransport, { answers: [json(200, large), json(200, 'next')] })
  const response = await answerOf(it.send().head)
  await Bun.sleep(30)
  expect((await drained(response)).bytes.toString()).toBe(large)
  expect((await drained(await answerOf(it.send().head))).bytes.toString()).toBe('next')
  expect(it.engine.connections).toHaveLength(1)
})

test('an answer to the close that a reader is slow to take is whole', async () => {
  const large = 'x'.repeat(3_000_000)
  await using it = stage(openSocketTransport, {
    answers: [script(head(200, { connection: 'close' }, 'close'), body(large), end)],
  })
  const response = await answerOf(it.send().head)
  await Bun.sleep(50)
  const { bytes, failure } = await drained(response)
  expect(failure).toBeUndefined()
  expect(bytes.length).toBe(large.length)
})

test('an answer to the close that is reset is cut', async () => {
  await using it = stage(openSocketTransport, { answers: [script(head(200, {}, 'close'), body('abc'), wait(20), rst)] })
  const { bytes, failure } = await drained(await answerOf(it.send().head))
  expect(bytes.toString()).toBe('abc')
  expect(failure).toMatchObject({ kind: 'cut' })
})

test('a stream that drips longer than the first-byte deadline goes on', async () => {
  await using it = stage(openSocketTransport, { answers: [[drip(4, head(200), body('slow but steady')), end]] })
  const exchange = it.transport.send(post(it.url), { connect_ms: 1_000, first_byte_ms: 400 })
  const response = await answerOf(exchange.head)
  expect((await drained(response)).bytes.toString()).toBe('slow but steady')
})

test('after any mix of endings nothing is left behind: no connection, no deadline, no waiting exchange', async () => {
  const pool = new ConnectionPool({ sockets_max: 8 })
  const answers = [
    json(200, 'ok'),
    [rst],
    [cut],
    [raw('nope')],
    script(head(200), body('a'), cut),
    [never],
    script(head(200), body('a'), never),
  ]
  await using it = stage(() => openSocketTransport({ idle_ms: 20, pool }), {
    answers: (request) => answers[request.index % answers.length]!,
  })
  const one = async (n: number) => {
    const exchange = it.transport.send(post(it.url, bytesOf(`${n}`)), { connect_ms: 1_000, first_byte_ms: 40 })
    const patience = setTimeout(() => exchange.cancel(), 60 + (n % 40))
    const result = await exchange.head
    if ('read' in result) while ((await result.read()) instanceof Uint8Array);
    clearTimeout(patience)
  }
  await Promise.all(Array.from({ length: 140 }, (_, n) => one(n)))
  await eventually(() => expect(pool.size).toEqual({ open: 0, waiting: 0 }))
  expect(pool.deadlines.size).toBe(0)
})

test('engines over http share the bound on connections', async () => {
  await using a = startHostileEngine({ answers: [script(wait(5), json(200, 'a'))] })
  await using b = startHostileEngine({ answers: [script(wait(5), json(200, 'b'))] })
  const open = transportOpener(4)
  const [to_a, to_b] = [open({ url: a.url, idle_ms: 1_000 }), open({ url: b.url, idle_ms: 1_000 })]
  const call = async (n: number) => {
    const exchange = n % 2 ? to_a.send(post(a.url), DEADLINES) : to_b.send(post(b.url), DEADLINES)
    return (await drained(await answerOf(exchange.head))).bytes.toString()
  }
  const open_now = () => [...a.connections, ...b.connections].filter((one) => one.closed === undefined).length
  let most = 0
  const watch = setInterval(() => (most = Math.max(most, open_now())), 1)
  const bodies = await Promise.all(Array.from({ length: 40 }, (_, n) => call(n)))
  clearInterval(watch)
  expect(bodies).toEqual(Array.from({ length: 40 }, (_, n) => (n % 2 ? 'a' : 'b')))
  // The engine hears of a close a moment after the place was given away.
  expect(most).toBeLessThanOrEqual(8)
  to_a.close()
  to_b.close()
  await eventually(() => expect(open_now()).toBe(0))
})
