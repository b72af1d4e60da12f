import { expect, setDefaultTimeout, test } from 'bun:test'
import { existsSync } from 'node:fs'
import { startHostileEngine } from './hostile-engine.ts'
import { connectRaw, exchangeRaw, requestBytes, type RawResponse } from './raw-client.ts'
import {
  CH,
  D,
  DONE,
  US,
  body,
  bytesOf,
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
  split,
  splitRaw,
  sse200,
  until,
  wait,
  type Script,
} from './script.ts'
import { readSse, sseEvents } from './sse-read.ts'
import { eventually, forAll, forAllAsync, freePort, gate, rollFrom, tempFolder, within } from './wait.ts'

setDefaultTimeout(60_000)

const R0 = { model: 'm1', messages: [{ role: 'user', content: 'hi' }], stream: true }
const call = requestBytes('POST', '/v1/chat/completions', {}, R0)
const answer = script(sse200, D(CH({ content: 'hi' })), D(CH({}, 'stop')), D(US(5, 1)), DONE, end)

const ask = async (answer: Script, half = false): Promise<RawResponse> => {
  await using engine = startHostileEngine({ answers: [answer], half_open: half })
  using client = await connectRaw(engine.port)
  await client.send(call)
  if (half) client.halfClose()
  return await client.response({ within_ms: 1_000 })
}

const close_delimited = head(200, {}, 'close')
const nine = head(200, { 'content-length': '9' }, 'length')
test.each([
  ['a whole stream', answer, 'whole', 'chunked'],
  ['a stream in single bytes', script(bytewise(answer)), 'whole', 'chunked'],
  ['a body of 3,000,000 letters', json(200, 'x'.repeat(3_000_000)), 'whole', 'length'],
  ['no end before the connection closes', script(sse200, D(CH({ content: 'hi' })), cut), 'cut', 'chunked'],
  ['a reset', script(sse200, D(CH({ content: 'hi' })), wait(5), rst), 'reset', 'chunked'],
  ['a body shorter than its length', script(nine, body('12345'), cut), 'cut', 'length'],
  ['a body up to the close', script(close_delimited, body('12345'), end), 'whole', 'close'],
  ['nothing but a close', script(cut), 'cut', 'none'],
  ['not HTTP', script(raw('SMTP ready\r\n'), cut), 'invalid', 'none'],
  ['an early hint, then the answer', script(raw('HTTP/1.1 103 Early Hints\r\n\r\n'), answer), 'whole', 'chunked'],
  ['bad chunk size', script(sse200, raw('zz\r\nabc'), cut), 'invalid', 'chunked'],
] as const)('the client tells how an answer ended: %s', async (_, played, ended, framing) => {
  const response = await ask(played)
  expect([response.ended, response.framing]).toEqual([ended, framing])
})

test('silence is a timeout', async () => {
  await using engine = startHostileEngine({ answers: [script(never)] })
  expect((await exchangeRaw(engine.port, call, 30)).ended).toBe('timeout')
})

test('bytes, headers and order arrive as scripted', async () => {
  const both = 'content-length: 5\r\nTransfer-Encoding: chunked\r\n'
  const response = await ask(script(raw(`HTTP/1.1 200 OK\r\nX-A: 1\r\nx-a: 2\r\n${both}\r\n0\r\n\r\n`), end))
  expect(response.headers).toEqual([
    ['X-A', '1'],
    ['x-a', '2'],
    ['content-length', '5'],
    ['Transfer-Encoding', 'chunked'],
  ])
  expect(response.header('X-a')).toBe('1, 2')
  expect((await ask(redirect(307, 'http://127.0.0.1:1/'))).header('location')).toBe('http://127.0.0.1:1/')
})

test('split cuts a body where it is told, even inside a character', async () => {
  const event = D(CH({ content: '안녕 🌍' }))
  expect(bytesOf(event).length).toBe(174)
  const response = await ask(script(sse200, split(event, [137, 144], 10), DONE, end))
  expect(response.pieces.map((piece) => piece.bytes.length)).toEqual([137, 7, 30, 14])
  expect((await readSse(response)).text()).toBe('안녕 🌍')
  const cuts = await ask(splitRaw('HTTP/1.1 204 No Content\r\n\r\n', [3, 24], 5))
  expect([cuts.status, cuts.ended]).toEqual([204, 'whole'])
})

test('the engine keeps what it was asked, byte for byte', async () => {
  await using engine = startHostileEngine({ answers: [json(503, {}), answer] })
  using client = await connectRaw(engine.port)
  const pieces = [call.subarray(0, 9), call.subarray(9, 60), call.subarray(60)]
  await client.pieces(pieces, 2)
  expect((await client.response()).status).toBe(503)
  await client.send(
    'POST /v1/x?y HTTP/1.1\r\nHost: a\r\nX-Y:  z \r\nTransfer-Encoding: chunked\r\n\r\n2;e=1\r\nab\r\n1\r\nc\r\n0\r\n\r\n',
  )
  expect((await client.response()).status).toBe(200)
  const [first, second] = engine.requests
  expect([first?.text(), first?.connection, first?.state]).toEqual([JSON.stringify(R0), 0, 'answered'])
  expect([second?.target, second?.text(), second?.connection]).toEqual(['/v1/x?y', 'abc', 0])
  expect(second?.headers[1]).toEqual(['X-Y', 'z'])
  expect(engine.connections[0]?.requests).toBe(2)
  expect(second!.arrived_at_ms).toBeGreaterThan(first!.arrived_at_ms)
})

test('probes are answered apart from the script', async () => {
  await using engine = startHostileEngine({ answers: [json(418, {})] })
  const probe = await fetch(`${engine.url}/models`)
  expect(await probe.json()).toEqual({ object: 'list', data: [] })
  expect((await exchangeRaw(engine.port, call)).status).toBe(418)
  expect([engine.probes.length, engine.requests.length, engine.calls.max]).toEqual([1, 1, 1])
})

test('a script may be chosen by the request, and replaced', async () => {
  await using engine = startHostileEngine({ answers: (request) => json(request.json().model === 'm1' ? 200 : 404, {}) })
  expect((await exchangeRaw(engine.port, call)).status).toBe(200)
  engine.play([json(500, {})])
  expect((await exchangeRaw(engine.port, call)).status).toBe(500)
})

test.each(['fin', 'rst'] as const)('a hang-up by %s during an answer is seen', async (how) => {
  await using engine = startHostileEngine({ answers: [script(sse200, D(CH({ content: 'a' })), never)] })
  using client = await connectRaw(engine.port)
  await client.send(call)
  await client.received(100)
  expect(engine.calls.now).toBe(1)
  if (how === 'fin') client.close()
  else client.reset()
  const hang_up = await engine.hangUp(0)
  expect([hang_up.how, hang_up.by, engine.requests[0]?.state]).toEqual([how, 'peer', 'client_left'])
  await eventually(() => engine.calls.now === 0)
})

test('an abort of fetch is a hang-up, before and after the head', async () => {
  await using engine = startHostileEngine({ answers: [script(never), script(sse200, D(CH({})), never)] })
  for (const index of [0, 1]) {
    const gone = new AbortController()
    const asked = fetch(engine.url, { method: 'POST', body: '{}', signal: gone.signal }).catch(() => undefined)
    await engine.request(index)
    if (index === 1) await asked
    gone.abort()
    expect((await engine.hangUp(index)).by).toBe('peer')
    await asked
  }
})

test('an answer that ends, or that the engine cuts, is not a hang-up', async () => {
  await using engine = startHostileEngine({ answers: [answer, script(sse200, cut)] })
  await exchangeRaw(engine.port, call)
  await exchangeRaw(engine.port, call)
  await expect(engine.hangUp(0, 50)).rejects.toThrow('answered')
  await expect(engine.hangUp(1, 50)).rejects.toThrow('cut')
})

test('calls at once are counted, and a gate holds them', async () => {
  const hold = gate()
  await using engine = startHostileEngine({ answers: [script(until(hold.opened), answer)] })
  const calls = Array.from({ length: 5 }, () => exchangeRaw(engine.port, call))
  await eventually(() => expect(engine.calls.now).toBe(5))
  hold.open()
  expect((await Promise.all(calls)).map((response) => response.ended)).toEqual(Array.from({ length: 5 }, () => 'whole'))
  expect(engine.calls).toEqual({ now: 0, max: 5 })
})

test('an idle connection is closed, and one may be greeted', async () => {
  await using engine = startHostileEngine({
    answers: [answer],
    idle_close_ms: 30,
    on_connect: script(raw('HTTP/1.1 408 Late\r\n\r\n')),
  })
  using client = await connectRaw(engine.port)
  expect(await client.received(10)).toBe(true)
  expect((await client.closed())?.how).toBe('fin')
})

test('a second answer that nobody asked for', async () => {
  await using engine = startHostileEngine({
    answers: [script(json(200, { a: 1 }), raw('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n'))],
  })
  using client = await connectRaw(engine.port)
  await client.send(call)
  expect((await client.response()).json()).toEqual({ a: 1 })
  expect((await client.response()).framing).toBe('length')
})

test('an endless head goes on until the client leaves; one that stops at the bound goes on saying nothing', async () => {
  await using engine = startHostileEngine({
    answers: [script(raw('HTTP/1.1 200 OK\r\n'), forever('x-a: b\r\n', 0, 80_000))],
  })
  using client = await connectRaw(engine.port)
  await client.send(call)
  expect(await client.received(80_000)).toBe(true)
  client.close()
  expect((await engine.hangUp(0)).how).toBe('fin')
})

test('an early engine answers before the body is in', async () => {
  await using engine = startHostileEngine({ answers: [json(413, {})], early: true })
  using client = await connectRaw(engine.port)
  await client.send('POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nabc')
  expect((await client.response()).status).toBe(413)
})

test('a client that stops reading stops the engine', async () => {
  await using engine = startHostileEngine({ answers: [script(sse200, forever('y'.repeat(65_536)))] })
  using client = await connectRaw(engine.port)
  client.pause()
  await client.send(call)
  const stalled = async () => {
    const before = engine.requests[0]?.answer_bytes ?? 0
    await Bun.sleep(30)
    expect(before).toBeGreaterThan(0)
    expect(engine.requests[0]?.answer_bytes).toBe(before)
    return before
  }
  expect(await eventually(stalled)).toBeLessThan(64 * 1024 * 1024)
  client.reset()
  await engine.hangUp(0)
})

test('a client may half-close and still read', async () => {
  expect((await ask(script(wait(10), answer), true)).ended).toBe('whole')
})

test('events of a fetch response come with their times, and a cut shows', async () => {
  await using engine = startHostileEngine({
    answers: [
      script(sse200, D(CH({ content: 'a' })), wait(150), D(CH({ content: 'b' }, 'stop')), D(US(5, 2)), DONE, end),
      script(sse200, drip(1, D('1')), cut),
    ],
  })
  const read = await readSse(await fetch(engine.url, { method: 'POST', body: '{}' }))
  expect([read.text(), read.finish(), read.done, read.ended]).toEqual(['ab', ['stop'], true, 'whole'])
  expect(read.usage()).toEqual({ prompt_tokens: 5, completion_tokens: 2, total_tokens: 7 })
  expect(read.events[1]!.at_ms).toBeGreaterThan(read.events[0]!.at_ms)
  const second = await readSse(await fetch(engine.url, { method: 'POST', body: '{}' }))
  expect([second.events.length, second.ended]).toEqual([1, 'cut'])
})

test.each([
  ['data: a\n\n', ['a']],
  ['data:a\r\n\r\ndata:  b\r\n\r\n', ['a', ' b']],
  ['data: a\rdata: b\r\r', ['a\nb']],
  [': c\n\nid: 1\n\nretry: 5\n\nevent: x\n\n', []],
  ['data\n\ndata:\n\n', ['', '']],
  ['\uFEFFdata: a\n\ndata: lost', ['a']],
  ['data: é\n\n', ['é']],
])('events in %p', (text, data) => {
  expect(sseEvents(text).map((event) => event.data)).toEqual(data)
})

test('errors and comments of a stream', async () => {
  const read = await readSse(
    await ask(script(sse200, body(': ping\nevent: error\n'), D({ error: { code: 'x' } }), end)),
  )
  expect([read.errors(), read.comments, read.events[0]?.event, read.done]).toEqual([
    [{ code: 'x' }],
    [' ping'],
    'error',
    false,
  ])
})

test('a failing property names its seed, and the seed repeats it', async () => {
  const below_ten = (roll: (below: number) => number) => expect(roll(100)).toBeLessThan(10)
  expect(() => forAll(1_000, below_ten)).toThrow(/SEED=\d+/)
  await expect(forAllAsync(1_000, async (roll) => below_ten(roll))).rejects.toThrow(/SEED=\d+/)
  const numbers = (seed: number) =>
    Array.from(
      { length: 5 },
      (
        (roll) => () =>
          roll(1_000)
      )(rollFrom(seed)),
    )
  expect(numbers(7)).toEqual(numbers(7))
  expect(numbers(7)).not.toEqual(numbers(8))
  const seen = new Set(
    Array.from(
      { length: 500 },
      (
        (roll) => () =>
          roll(10)
      )(rollFrom(1)),
    ),
  )
  expect([...seen].sort()).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
})

test('a folder goes with its scope, a free port refuses, waiting says what for', async () => {
  let path = ''
  {
    using folder = tempFolder()
    path = folder.path
    await Bun.write(`${path}/a`, 'b')
  }
  expect(existsSync(path)).toBe(false)
  await expect(connectRaw(freePort())).rejects.toThrow()
  await expect(within(new Promise(() => {}), 5, 'nothing')).rejects.toThrow('nothing')
  await expect(eventually(() => false, 5)).rejects.toThrow('still false')
})
