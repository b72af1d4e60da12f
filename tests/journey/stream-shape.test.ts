import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import OpenAI from 'openai'
import {
  bytesOf,
  bytewise,
  CH,
  D,
  DONE,
  body,
  end,
  json,
  script,
  split,
  sse200,
  US,
  wait,
  WHOLE,
} from '../kit/script.ts'
import { readSse } from '../kit/sse-read.ts'
import { newCast, provesAnswer } from './cast.ts'

setDefaultTimeout(60_000)

/** CASES C01, C03, C06, C07, C08, C09, C11, C39: what an engine's stream looks like when it reaches the client. */

const cast = newCast({ server: { ping_ms: 300 } })
const text = (content: string) => D(CH({ content }))
const finish = D(CH({}, 'stop'))
const lines = (content: string) => body(content)

const { choices: _, ...no_choices } = US(5, 1)
const c01 = [US(5, 1), no_choices].map((usage) =>
  cast.part([script(sse200, D(CH({ role: 'assistant', content: 'hi' })), finish, D(usage), DONE, end)]),
)
const c03_end = cast.part([script(sse200, text('ok'), finish, D(US(5, 1)), end)])
const c03_open = cast.part([script(sse200, text('ok'), finish, D(US(5, 1)), wait(120_000))])
const c03_two = cast.part([
  script(
    sse200,
    D(CH({ content: 'a' })),
    finish,
    D({ ...CH({}), choices: [{ index: 1, delta: {}, finish_reason: null }] }),
    end,
  ),
])
const c06 = cast.part([
  script(
    sse200,
    lines(': OPENROUTER PROCESSING\n\n'),
    wait(200),
    lines(':\n\n'),
    lines('retry: 1000\n\n'),
    lines('event: keepalive\n\n'),
    lines('data:\n\n'),
    lines('id: 7\n\n'),
    text('a'),
    lines(': ping - 1\n\n'),
    text('b'),
    finish,
    DONE,
    end,
  ),
])
const plain = [text('x'), finish, D(US(3, 1)), DONE]
const joined = Buffer.concat(plain.map(bytesOf))
const crlf = Buffer.from(joined.toString().replaceAll('\n', '\r\n'))
const after_each_cr = [...crlf.keys()].filter((at) => crlf[at] === 13).map((at) => at + 1)
const LONG = 'L'.repeat(2_000_000)
const c07 = {
  CRLF: [cast.part([script(sse200, lines(crlf.toString()), end)]), 'x'],
  'CRLF, a read boundary inside each': [cast.part([script(sse200, split(crlf, after_each_cr, 3), end)]), 'x'],
  CR: [cast.part([script(sse200, lines(joined.toString().replaceAll('\n', '\r')), end)]), 'x'],
  'no space after the colon': [
    cast.part([script(sse200, lines(joined.toString().replaceAll('data: ', 'data:')), end)]),
    'x',
  ],
  'one byte a write': [cast.part([script(sse200, bytewise(...plain), end)]), 'x'],
  'data over several lines': [
    cast.part([script(sse200, lines(joined.toString().replaceAll(',"choices"', '\ndata: ,"choices"')), end)]),
    'x',
  ],
  'a line of two million letters': [cast.part([script(sse200, text(LONG), finish, D(US(3, 1)), DONE, end)]), LONG],
} as const
const korean = bytesOf(text('안녕 🌍'))
const c08 = cast.part([script(sse200, split(korean, [137, 144], 50), finish, DONE, end)])
const toolCall = (id: string, path: string) =>
  CH({ tool_calls: [{ index: 0, id, type: 'function', function: { name: 'read', arguments: `{"p":"${path}"}` } }] })
const tool_events = [D(toolCall('call_a', 'a')), D(toolCall('call_b', 'b')), D(CH({}, 'tool_calls')), DONE]
const c09 = cast.part([script(sse200, tool_events, end)])
const c11 = cast.part([
  script(
    sse200,
    wait(500),
    Array.from({ length: 20 }, () => [D(CH({ content: 'x'.repeat(80) })), wait(100)]),
    finish,
    DONE,
    end,
  ),
])
const unknown_keys = D({
  ...CH({ reasoning: 'r1', reasoning_content: 'r1', x_new: true }),
  big: 12345678901234567890n.toString(),
})
const alias_stream = cast.part([script(sse200, plain, end)], { rewrite_model: true })
const alias_whole = cast.part([json(200, WHOLE('x', 3, 1))], { rewrite_model: true })
const alias_lines = cast.part(
  [script(sse200, lines(joined.toString().replaceAll(',"choices"', '\ndata: ,"choices"')), end)],
  { rewrite_model: true },
)
const untouched = cast.part([script(sse200, lines('event: message\nid: 3\n'), unknown_keys, ...plain, end)])
const malformed = cast.part([
  script(sse200, text('a'), D('{"id":"chatcmpl-t1","choices":[{'), text('b'), finish, DONE, end),
])
const TX = (text: string, finish: string | null = null) => ({
  id: 'c',
  choices: [{ index: 0, text, finish_reason: finish }],
})
const completions = cast.part([script(sse200, D(TX('one')), D(TX(' two', 'length')), DONE, end)])
const VECTORS = {
  object: 'list',
  data: [{ object: 'embedding', index: 0, embedding: 'AACAPw==' }],
  usage: { prompt_tokens: 4, total_tokens: 4 },
}
const embeddings = cast.part([script(wait(700), json(200, VECTORS))])
const no_last_line = cast.part([script(sse200, text('a'), finish, lines('data: [DONE]'), end)])

beforeAll(cast.open)
afterAll(cast.close)

test('C01: the usage chunk reaches the client only if it asked; the ledger has the tokens each time', async () => {
  for (const part of c01)
    for (const [options, shown] of [
      [undefined, 0],
      [{ include_usage: false }, 0],
      [{ include_usage: true }, 1],
    ] as const) {
      const got = await cast.stream(part, options && { stream_options: options })
      expect(got.chunks().filter((chunk) => chunk.usage)).toHaveLength(shown)
      expect(got.done).toBe(true)
      if (shown) expect(got.chunks().at(-1).usage.total_tokens).toBe(6)
      expect(await cast.row(got.id)).toMatchObject({
        prompt_tokens: 5,
        completion_tokens: 1,
        usage_source: 'engine',
        ending: 'whole',
        finish_reason: 'stop',
        charge_nanodollars: 18_000,
      })
    }
})

test('C03: a finished stream without [DONE] gets one, whether the engine closes or not', async () => {
  for (const part of [c03_end, c03_open]) {
    const began = performance.now()
    const got = await cast.stream(part)
    expect(got.done).toBe(true)
    expect(got.text()).toBe('ok')
    expect(performance.now() - began).toBeLessThan(5_000)
    expect(await cast.row(got.id)).toMatchObject({
      prompt_tokens: 5,
      completion_tokens: 1,
      ending: 'whole',
      failure: '',
    })
  }
  expect(await cast.health(c03_open.names[0]!)).toMatchObject({ health: 'healthy' })
})

test('C03: a choice that never finished makes the stream cut', async () => {
  const got = await cast.stream(c03_two, { n: 2 })
  expect(got.done).toBe(false)
  expect(got.errors()).toMatchObject([{ code: 'engine_cut' }])
})

test('C06: comments and records without data never become events, pings disturb no client', async () => {
  const got = await cast.stream(c06)
  expect(got.text()).toBe('ab')
  expect(got.events.map((event) => event.data).filter((data) => data !== '[DONE]' && !data.startsWith('{'))).toEqual([])
  expect(got.bytes.toString()).not.toMatch(/^(id|retry):/m)
  const client = new OpenAI({ baseURL: `${cast.house().url}/v1`, apiKey: cast.key(), maxRetries: 0 })
  let said = ''
  const messages = [{ role: 'user' as const, content: 'hi' }]
  for await (const chunk of await client.chat.completions.create({ model: c06.model, messages, stream: true }))
    said += chunk.choices[0]?.delta.content ?? ''
  expect(said).toBe('ab')
})

for (const [name, [part, wanted]] of Object.entries(c07))
  test(`C07: ${name}`, async () => {
    const got = await cast.stream(part)
    expect(got.text() === wanted).toBe(true)
    expect(got.done).toBe(true)
    expect(await cast.row(got.id)).toMatchObject({ prompt_tokens: 3, completion_tokens: 1, usage_source: 'engine' })
  })

test('C08: characters that are cut between reads arrive whole', async () => {
  const got = await cast.stream(c08)
  expect(got.text()).toBe('안녕 🌍')
  expect(got.bytes.includes(korean)).toBe(true)
})

test('C09: tool calls that all say index 0 are left alone', async () => {
  const got = await cast.stream(c09)
  expect(got.bytes.equals(Buffer.concat(tool_events.map(bytesOf)))).toBe(true)
})

test('C11: every event reaches the client at once, under headers that forbid buffering', async () => {
  const began = performance.now()
  const got = await cast.stream(c11)
  const { headers } = got.response
  expect(headers.get('x-accel-buffering')).toBe('no')
  expect(headers.get('cache-control')).toBe('no-cache')
  expect(headers.get('content-length')).toBeNull()
  expect(headers.get('content-encoding')).toBeNull()
  expect(headers.get('content-type')).toStartWith('text/event-stream')
  // Far apart enough that a stream held back shows on any machine.
  const times = got.events.map((event) => event.at_ms)
  expect(times[0]! - began).toBeLessThan(1_500)
  expect(times.at(-1)! - times[0]!).toBeGreaterThan(1_500)
  expect(new Set(times).size).toBeGreaterThan(15)
})

test('C39: with rewrite_model the answer shows the name that the client asked for, in both modes', async () => {
  for (const part of [alias_stream, alias_lines]) {
    const got = await cast.stream(part, { stream_options: { include_usage: true } })
    expect(got.chunks().map((chunk) => chunk.model)).toEqual([part.model, part.model, part.model])
    expect(got.text()).toBe('x')
    expect(got.usage().total_tokens).toBe(4)
    expect(got.response.headers.get('x-weir-model')).toBe('m1')
  }
  const whole = await cast.post(alias_whole)
  const answer = (await whole.json()) as any
  expect(answer).toEqual({ ...WHOLE('x', 3, 1), model: alias_whole.model })
  expect(await cast.row(whole.headers.get('x-weir-call-id')!)).toMatchObject({
    model: alias_whole.model,
    engine_model: 'm1',
  })
  expect(alias_whole.engines[0]!.requests[0]!.json().model).toBe('m1')
})

test('what the engine wrote reaches the client byte for byte, and the ledger has its hash', async () => {
  const got = await cast.stream(untouched, { stream_options: { include_usage: true } })
  const sent = Buffer.concat([Buffer.from('event: message\nid: 3\n'), ...[unknown_keys, ...plain].map(bytesOf)])
  expect(got.bytes.toString()).toBe(sent.toString())
  const row = await cast.row(got.id)
  expect(provesAnswer(row, sent)).toBe(true)
})

test('an event that is not JSON is left out of a good stream, and logged', async () => {
  const got = await cast.stream(malformed)
  expect(got.text()).toBe('ab')
  expect(got.done).toBe(true)
  expect(cast.house().logged('engine_events_malformed')).toMatchObject([{ count: 1 }])
})

test('text completions stream as chat does', async () => {
  const body = { model: completions.model, prompt: 'say', stream: true }
  const response = await cast.house().post('/v1/completions', body, cast.key())
  const got = await readSse(response)
  expect(got.text()).toBe('one two')
  expect(got.done).toBe(true)
  expect(await cast.row(response.headers.get('x-weir-call-id')!)).toMatchObject({
    ending: 'whole',
    finish_reason: 'length',
    usage_source: 'estimated',
    completion_tokens: 2,
  })
})

test('an address that never streams is answered with JSON, however long it takes, whatever the body asks', async () => {
  const body = { model: embeddings.model, input: 'x', stream: true }
  const response = await cast.house().post('/v1/embeddings', body, cast.key())
  expect(response.headers.get('content-type')).toBe('application/json')
  expect(await response.json()).toEqual(VECTORS)
  expect(embeddings.engines[0]!.requests[0]!.json()).not.toHaveProperty('stream_options')
  expect(await cast.row(response.headers.get('x-weir-call-id')!)).toMatchObject({ stream: 0, prompt_tokens: 4 })
})

test('a last event without its empty line counts', async () => {
  const got = await cast.stream(no_last_line)
  expect(got.text()).toBe('a')
  expect(await cast.row(got.id)).toMatchObject({ ending: 'whole' })
})

test('nothing stays in flight', async () => {
  expect(await cast.quiet()).toBe(true)
})
