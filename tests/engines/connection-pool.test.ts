import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import { openSocketTransport } from '../../src/engines/socket-transport.ts'
import { TransportFailure } from '../../src/engines/transport.ts'
import { answerOf, drained, failureOf, post, stage } from '../contract/transport.contract.ts'
import { muteServer } from '../contract/mute-server.ts'
import { startHostileEngine } from '../kit/hostile-engine.ts'
import { body, cut, end, head, json, never, raw, rst, script, until, wait } from '../kit/script.ts'
import { eventually, freePort, gate, within } from '../kit/wait.ts'

setDefaultTimeout(60_000)

const DEADLINES = { connect_ms: 2_000, first_byte_ms: 2_000 }
const bytesOf = (text: string): Uint8Array => Buffer.from(text)

describe('the cap', () => {
  test('never more connections than sockets_max; the queue is first come, first served', async () => {
    await using it = stage(
      openSocketTransport,
      { answers: (request) => script(wait(1), json(200, request.body)) },
      4_000,
      3,
    )
    const order: number[] = []
    const bodies = await Promise.all(
      Array.from({ length: 60 }, async (_, n) => {
        const answer = await answerOf(it.send(bytesOf(`${n}`)).head)
        order.push(n)
        return (await drained(answer)).bytes.toString()
      }),
    )
    expect(bodies).toEqual(Array.from({ length: 60 }, (_, n) => `${n}`))
    expect(it.engine.connections).toHaveLength(3)
    expect(it.engine.requests.map((request) => request.text())).toEqual(bodies)
    expect(order).toHaveLength(60)
  })

  test('an exchange in the queue obeys its connect deadline and cancel, and nothing of it is sent', async () => {
    const free = gate()
    await using it = stage(openSocketTransport, { answers: [script(until(free.opened), json(200, 'first'))] }, 4_000, 1)
    const first = it.send(bytesOf('1'))
    await it.engine.request(0)
    const late = it.transport.send(post(it.url), { connect_ms: 30, first_byte_ms: 2_000 })
    const cancelled = it.send(bytesOf('3'))
    const last = it.send(bytesOf('4'))
    cancelled.cancel()
    expect(await failureOf(cancelled.head)).toMatchObject({ kind: 'cancelled', sent: false })
    expect(await failureOf(late.head)).toMatchObject({ kind: 'connect_timeout', sent: false })
    free.open()
    await drained(await answerOf(first.head))
    await drained(await answerOf(last.head))
    expect(it.engine.requests.map((request) => request.text())).toEqual(['1', '4'])
    expect(it.engine.connections).toHaveLength(1)
  })

  test('a queue that is full fails the next exchange at once', async () => {
    await using engine = startHostileEngine({ answers: [[never]] })
    const transport = openSocketTransport({ idle_ms: 1_000, sockets_max: 1, waiting_max: 2 })
    const exchanges = Array.from({ length: 3 }, () => transport.send(post(engine.url), DEADLINES))
    await engine.request(0)
    exchanges.push(transport.send(post(engine.url), DEADLINES))
    const over = exchanges.map(async (exchange) => {
      const result = await exchange.head
      return result instanceof TransportFailure ? result.kind : result.status
    })
    expect(await over[2]!).toBe('connect')
    for (const exchange of exchanges) exchange.cancel()
    expect(await Promise.all(over)).toEqual(['cancelled', 'cancelled', 'connect', 'cancelled'])
  })

  test('thousands that wait for an engine that refuses all fail, each once', async () => {
    const transport = openSocketTransport({ idle_ms: 1_000, sockets_max: 8 })
    const url = `http://127.0.0.1:${freePort()}/v1`
    const heads = Array.from({ length: 10_000 }, () => transport.send(post(url), DEADLINES).head)
    const kinds = await within(
      Promise.all(heads.map(async (one) => ((await one) as TransportFailure).kind)),
      5_000,
      'all',
    )
    expect(kinds.every((kind) => kind === 'connect')).toBe(true)
  })

  test('idle connections to one engine make room for another', async () => {
    await using a = startHostileEngine({ answers: [json(200, 'a')] })
    await using b = startHostileEngine({ answers: [json(200, 'b')] })
    const transport = openSocketTransport({ idle_ms: 4_000, sockets_max: 2 })
    const call = async (url: string) =>
      (await drained(await answerOf(transport.send(post(url), DEADLINES).head))).bytes.toString()
    expect(await Promise.all([call(a.url), call(a.url)])).toEqual(['a', 'a'])
    expect(await Promise.all([call(b.url), call(b.url), call(a.url), call(b.url)])).toEqual(['b', 'b', 'a', 'b'])
    transport.close()
  })

  test('at the cap the exchange that has waited longest is next, whatever its engine', async () => {
    const free = gate()
    await using a = startHostileEngine({ answers: [script(until(free.opened), json(200, 'a')), json(200, 'a')] })
    await using b = startHostileEngine({ answers: [json(200, 'b')] })
    const transport = openSocketTransport({ idle_ms: 4_000, sockets_max: 1 })
    const first = transport.send(post(a.url), DEADLINES)
    await a.request(0)
    const order: string[] = []
    const call = async (url: string) =>
      order.push((await drained(await answerOf(transport.send(post(url), DEADLINES).head))).bytes.toString())
    const rest = [call(b.url), call(b.url)]
    free.open()
    await drained(await answerOf(first.head))
    await within(Promise.all(rest), 2_000, 'the rest')
    expect(order).toEqual(['b', 'b'])
    transport.close()
  })

  test('an engine that never accepts does not take the places of others for ever, and recovers', async () => {
    await using mute = await muteServer()
    await using engine = startHostileEngine({ answers: [json(200, 'ok')] })
    const transport = openSocketTransport({ idle_ms: 4_000, sockets_max: 64 })
    const lost = Array.from({ length: 100 }, () =>
      transport.send(post(`${mute.origin}/v1`), { connect_ms: 40, first_byte_ms: 40 }),
    )
    for (const exchange of lost)
      expect(await failureOf(exchange.head)).toMatchObject({ kind: 'connect_timeout', sent: false })
    const more = Array.from({ length: 100 }, () =>
      transport.send(post(`${mute.origin}/v1`), { connect_ms: 40, first_byte_ms: 40 }),
    )
    for (const exchange of more)
      expect(await failureOf(exchange.head)).toMatchObject({ kind: 'connect_timeout', sent: false })
    expect((await drained(await answerOf(transport.send(post(engine.url), DEADLINES).head))).bytes.toString()).toBe(
      'ok',
    )
    transport.close()
  })
})

describe('a pooled connection that died', () => {
  test('closed by the engine while idle, and noticed: the next exchange takes a fresh one', async () => {
    await using it = stage(openSocketTransport, { answers: [json(200, 'ok')], idle_close_ms: 20 })
    await drained(await answerOf(it.send(bytesOf('1')).head))
    await eventually(() => expect(it.engine.connections[0]!.closed).toMatchObject({ by: 'us' }))
    await Bun.sleep(5)
    await drained(await answerOf(it.send(bytesOf('2')).head))
    expect(it.engine.connections).toHaveLength(2)
    expect(it.engine.requests).toHaveLength(2)
  })

  test('one exchange around each idle close of the engine, with an age below it: no failure', async () => {
    await using it = stage(openSocketTransport, { answers: [json(200, 'ok')], idle_close_ms: 50 }, 35)
    for (let n = 0; n < 20; n++) {
      const { failure } = await drained(await answerOf(it.send(bytesOf(`${n}`)).head))
      expect(failure).toBeUndefined()
      await Bun.sleep(30 + n)
    }
    expect(it.engine.requests.map((request) => request.text())).toEqual(Array.from({ length: 20 }, (_, n) => `${n}`))
  })

  test.each([
    { why: 'closed', last: cut },
    { why: 'reset', last: rst },
  ])(
    '$why on arrival of the second request: a reset, sent, on a reused connection, and sent once only',
    async ({ last }) => {
      await using it = stage(openSocketTransport, { answers: [json(200, 'ok'), [last]] })
      await drained(await answerOf(it.send(bytesOf('1')).head))
      expect(await failureOf(it.send(bytesOf('2')).head)).toMatchObject({ kind: 'reset', sent: true, reused: true })
      expect(it.engine.requests).toHaveLength(2)
    },
  )

  test('the whole engine is gone: a failure of connecting, or a reset that tells the connection was reused', async () => {
    await using it = stage(openSocketTransport, { answers: [json(200, 'ok')] })
    await drained(await answerOf(it.send(bytesOf('1')).head))
    await it.engine.stop()
    // Whether the close was noticed before the write is a race; both answers are true.
    const failure = await failureOf(it.send(bytesOf('2')).head)
    expect(['reset', 'connect']).toContain(failure.kind)
    if (failure.kind === 'reset') expect(failure.reused).toBe(true)
  })

  test('silent on the second request: the first-byte deadline, not minutes', async () => {
    await using it = stage(openSocketTransport, { answers: [json(200, 'ok'), [never]] })
    await drained(await answerOf(it.send(bytesOf('1')).head))
    const exchange = it.transport.send(post(it.url), { connect_ms: 1_000, first_byte_ms: 50 })
    expect(await failureOf(exchange.head)).toMatchObject({ kind: 'first_byte_timeout', sent: true, reused: true })
  })

  test('reset on a fresh connection is not called reused', async () => {
    await using it = stage(openSocketTransport, { answers: [[rst]] })
    expect(await failureOf(it.send(bytesOf('1')).head)).toMatchObject({ kind: 'reset', sent: true, reused: false })
  })
})

describe('what an engine must not do to the next exchange', () => {
  test.each([
    { why: 'a second answer at once', extra: [] },
    { why: 'a second answer later', extra: [wait(15)] },
  ])('$why: the connection is closed, the next exchange gets its own answer', async ({ extra }) => {
    const lie = raw('HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nWRONG')
    await using it = stage(openSocketTransport, {
      answers: (request) =>
        request.text() === '1' ? script(json(200, 'one').slice(0, 2), ...extra, lie, never) : json(200, request.body),
    })
    expect((await drained(await answerOf(it.send(bytesOf('1')).head))).bytes.toString()).toBe('one')
    await Bun.sleep(40)
    expect((await drained(await answerOf(it.send(bytesOf('2')).head))).bytes.toString()).toBe('2')
    expect(it.engine.connections).toHaveLength(2)
  })

  test('bytes on a connection before any request: closed', async () => {
    await using engine = startHostileEngine({
      answers: [json(200, 'ok')],
      on_connect: [raw('HTTP/1.1 408 Timeout\r\ncontent-length: 0\r\n\r\n')],
    })
    const transport = openSocketTransport({ idle_ms: 1_000, sockets_max: 2 })
    const result = await within(transport.send(post(engine.url), DEADLINES).head, 2_000, 'head')
    // The greeting can only be taken for the answer, as the request was on its way: but it ends the connection.
    if (!(result instanceof TransportFailure)) expect(result.status).toBe(408)
    transport.close()
  })

  test('an answer before the request is whole: delivered, and the connection is not used again', async () => {
    const large = Buffer.alloc(30_000_000, 'x')
    await using it = stage(openSocketTransport, {
      early: true,
      answers: (request) =>
        request.header('content-length') === '2'
          ? json(200, 'ok')
          : [head(413, { 'content-length': '3' }, 'length'), body('big'), wait(200), cut],
    })
    const response = await answerOf(it.send(large).head)
    expect(response.status).toBe(413)
    expect((await drained(response)).bytes.toString()).toBe('big')
    await drained(await answerOf(it.send(bytesOf('ok')).head))
    expect(it.engine.connections).toHaveLength(2)
  })

  test('a body that is given up does not reach the next exchange', async () => {
    await using it = stage(openSocketTransport, {
      answers: [script(head(200), body('old'), wait(20), body('old'), end), json(200, 'new')],
    })
    const first = it.send(bytesOf('1'))
    await answerOf(first.head)
    first.cancel()
    expect((await drained(await answerOf(it.send(bytesOf('2')).head))).bytes.toString()).toBe('new')
    expect(it.engine.connections).toHaveLength(2)
  })
})

test('a name that resolves, an IPv6 address, and a host header as written', async () => {
  await using it = stage(openSocketTransport, { answers: [json(200, 'ok')] })
  const url = `http://localhost:${it.engine.port}/v1/x`
  await drained(await answerOf(it.transport.send(post(url), DEADLINES).head))
  expect(it.engine.requests[0]!.header('host')).toBe(`localhost:${it.engine.port}`)
  expect(() => it.transport.send(post('https://127.0.0.1/v1'), DEADLINES)).toThrow(
    'not an http:// address: https://127.0.0.1',
  )
})
