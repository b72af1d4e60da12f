import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import zlib from 'node:zlib'
import { startHostileEngine, type Seen } from '../kit/hostile-engine.ts'
import { startHouse, type TestHouse } from '../kit/house.ts'
import { bytesOf, CH, D, DONE, end, json, script, sse200, type Script, US, WHOLE } from '../kit/script.ts'
import { readSse } from '../kit/sse-read.ts'
import { eventually } from '../kit/wait.ts'

/** Bodies, byte for byte: compression (CASES C37), images (C41), unknown fields (C42), odd but legal shapes (C44). */

// The preloaded default holds for the first file of a run only.
setDefaultTimeout(60_000)

const MB = 1_000_000
const LIMIT = 24 * 1024 * 1024
const engine = startHostileEngine({ answers: (request) => answerTo(request) })
const answerTo = (request: Seen): Script =>
  request.text().includes('"stream":true')
    ? script(sse200, D(CH({ content: 'ok' })), D(CH({}, 'stop')), D(US(1, 1)), DONE, end)
    : json(200, WHOLE('ok', 1, 1))

let house: TestHouse
let key: string
beforeAll(async () => {
  house = await startHouse({
    config: {
      server: { body_bytes_max: LIMIT },
      engines: [{ name: 'e', url: engine.url }],
      models: [
        { name: 'm1', targets: [{ engine: 'e' }], free: true },
        { name: 'alias', targets: [{ engine: 'e', model: 'served-name' }], free: true },
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

const CHAT = '/v1/chat/completions'
const TEXT = '{"model":"m1","messages":[{"role":"user","content":"hi"}]}'
const GZIP_OF_CASES =
  '1f8b08000000000002ffab56cacd4f49cd51b252ca3554d251ca4d2d2e4e4c4f2d56b28aae562acacf49054a9416a71601a592f3f34a52f34a800219994ab5b1b5009d1b71743a000000'
const PACK: Record<string, (bytes: Buffer) => Buffer> = {
  gzip: (bytes) => zlib.gzipSync(bytes),
  'x-gzip': (bytes) => zlib.gzipSync(bytes),
  deflate: (bytes) => zlib.deflateSync(bytes),
  br: (bytes) => zlib.brotliCompressSync(bytes, { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 1 } }),
  zstd: (bytes) => zlib.zstdCompressSync(bytes),
}

const rssMb = (): number => {
  const status = readFileSync(`/proc/${house.pids('worker')[0]}/status`, 'utf8')
  return Number(/^VmRSS:\s+(\d+)/m.exec(status)![1]) / 1_024
}

test.each(Object.keys(PACK))('%s: the engine gets plain bytes with the right length and no encoding', async (name) => {
  const packed = name === 'gzip' ? Buffer.from(GZIP_OF_CASES, 'hex') : PACK[name]!(Buffer.from(TEXT))
  const answer = await house.post(CHAT, packed, key, { 'content-encoding': name })
  expect(answer.status).toBe(200)
  const seen = engine.requests.at(-1)!
  expect(seen.text()).toBe(TEXT)
  expect(seen.header('content-length')).toBe(String(TEXT.length))
  expect(seen.header('content-encoding')).toBeUndefined()
})

test.each([
  ['gzip', Buffer.from(GZIP_OF_CASES, 'hex').subarray(0, 40), 400, 'encoding_invalid'],
  ['gzip', Buffer.from(TEXT), 400, 'encoding_invalid'],
  ['gzip', Buffer.alloc(0), 400, 'encoding_invalid'],
  ['deflate', Buffer.from(TEXT), 400, 'encoding_invalid'],
  ['br', Buffer.from(TEXT), 400, 'encoding_invalid'],
  ['zstd', Buffer.from(TEXT), 400, 'encoding_invalid'],
  ['foo', Buffer.from(TEXT), 415, 'encoding_unsupported'],
  ['gzip, br', Buffer.from(TEXT), 415, 'encoding_unsupported'],
  ['identity', Buffer.from(GZIP_OF_CASES, 'hex'), 400, 'json_invalid'],
] as const)('%s that is not: %i %s', async (encoding, bytes, status, code) => {
  const before = engine.requests.length
  const answer = await house.post(CHAT, bytes, key, { 'content-encoding': encoding })
  const text = await answer.text()
  expect([answer.status, JSON.parse(text).error.code]).toEqual([status, code])
  // Raw bytes are never shown.
  expect(text).not.toContain('\ufffd')
  expect(text).not.toContain('messages')
  if (status === 415) {
    expect(JSON.parse(text).error.message).toContain('gzip, x-gzip, deflate, br, zstd')
    expect(answer.headers.get('accept-encoding')).toBe('gzip, x-gzip, deflate, br, zstd')
  }
  expect(engine.requests.length).toBe(before)
})

test('200 MB of zeros, packed, are refused as too large, and memory stays flat', async () => {
  const zeros = Buffer.alloc(200 * MB)
  const bombs = Object.keys(PACK).map((name) => [name, PACK[name]!(zeros)] as const)
  await house.post(CHAT, TEXT, key)
  const before_mb = rssMb()
  for (let round = 0; round < 6; round++)
    for (const [name, bomb] of bombs) {
      expect(bomb.length).toBeLessThan(1 * MB)
      const answer = await house.post(CHAT, bomb, key, { 'content-encoding': name })
      expect([name, answer.status, ((await answer.json()) as any).error.code]).toEqual([name, 413, 'body_too_large'])
    }
  // 30 bombs are 6 GB unpacked, and 750 MB if what is unpacked up to the limit stayed. What is refused is given back at once.
  expect(rssMb() - before_mb).toBeLessThan((6 * LIMIT) / MB)
})

const image = (letters: number): string =>
  JSON.stringify({
    model: 'm1',
    messages: [
      {
        role: 'user',
        content: [
          { type: 'text', text: 'What is it?' },
          { type: 'image_url', image_url: { url: `data:image/png;base64,${'A'.repeat(letters)}` } },
        ],
      },
    ],
  })
const sha = (bytes: Uint8Array | string) => Bun.SHA256.hash(bytes, 'hex')

test.each([0.9, 1.1, 8, 19])('an image of %d MB reaches the engine byte for byte', async (mb) => {
  const sent = image(mb * MB)
  const answer = await house.post(CHAT, sent, key)
  expect(answer.status).toBe(200)
  const seen = engine.requests.at(-1)!
  expect([seen.body.length, sha(seen.body)]).toEqual([sent.length, sha(sent)])
})

test.each([
  ['declared', (text: string): BodyInit => text],
  [
    'in chunks',
    (text: string): BodyInit => {
      let at = 0
      return new ReadableStream({
        pull: (stream) => {
          stream.enqueue(Buffer.from(text.slice(at, at + MB)))
          at += MB
          if (at >= text.length) stream.close()
        },
      })
    },
  ],
] as const)(
  'a body over the limit, %s, is 413 in JSON with the limit, and no engine hears of it',
  async (_how, bodyOf) => {
    const before = engine.requests.length
    const headers = { authorization: `Bearer ${key}` }
    const answer = await fetch(`${house.url}${CHAT}`, { method: 'POST', headers, body: bodyOf(image(LIMIT)) })
    const { error } = (await answer.json()) as any
    expect([answer.status, error.code, error.type]).toEqual([413, 'body_too_large', 'invalid_request_error'])
    expect(error.message).toContain(`${LIMIT} bytes`)
    expect(engine.requests.length).toBe(before)
  },
)

test('a 413 of the engine is final and shown as the engine wrote it', async () => {
  const refusal = { error: { message: 'too big for me', type: 'invalid_request_error', code: null } }
  engine.play([json(413, refusal)])
  const before = engine.requests.length
  try {
    const answer = await house.post(CHAT, TEXT, key)
    expect([answer.status, await answer.json()]).toEqual([413, refusal])
    expect(engine.requests.length).toBe(before + 1)
  } finally {
    engine.play((request) => answerTo(request))
  }
})

test('20 images of 8 MB at once, three times: memory stays under three times their bytes and falls back below one and a half', async () => {
  const sent = image(8 * MB)
  const hash = sha(sent)
  const wave = async (count: number) => {
    const before = engine.requests.length
    const answers = await Promise.all(Array.from({ length: count }, () => house.post(CHAT, sent, key)))
    for (const answer of answers) expect([answer.status, (await answer.text()).length > 0]).toEqual([200, true])
    const seen = engine.requests.splice(before)
    expect(seen.map(({ body }) => sha(body))).toEqual(Array.from({ length: count }, () => hash))
  }
  await wave(1)
  const before_mb = rssMb()
  let most_mb = 0
  const sampler = setInterval(() => (most_mb = Math.max(most_mb, rssMb())), 10)
  try {
    for (let round = 0; round < 3; round++) await wave(20)
  } finally {
    clearInterval(sampler)
  }
  const wave_mb = (20 * sent.length) / MB
  expect(most_mb - before_mb).toBeLessThan(3 * wave_mb)
  // 60 bodies, 480 MB, have passed: at rest less than one and a half waves of them stay, as the allocator has it.
  await eventually(async () => {
    for (let n = 0; n < 20; n++) await (await house.post(CHAT, TEXT, key)).text()
    expect(rssMb() - before_mb).toBeLessThan(1.5 * wave_mb)
  }, 30_000)
})

test('the ledger and the log hold nothing of an image', async () => {
  await house.rowsReach(1)
  expect(house.log()).not.toContain('AAAAAAAAAAAAAAAA')
  for (const row of house.rows()) expect(JSON.stringify(row).length).toBeLessThan(4_096)
})

/** Fields that no schema of ours knows, numbers that a parser would bend, and spacing that a printer would not keep. */
const ODD_FIELDS =
  '"guided_json": {"type":"object"} ,"chat_template_kwargs":{"enable_thinking":false},"top_k":20,"min_p":0.050,' +
  '"x_unknown":{"a":[1,null]},"max_completion_tokens":64,"user":null,"seed":12345678901234567890,"big":1e400,' +
  '"neg":-0.0,"esc":"\\u00e9\\/","emoji":"안녕 🌍","n":1,"logit_bias":{"50256":-100},"reasoning_effort":"low","\\u0066oo":1'

test.each([false, true])('stream %p: every field reaches the engine as it was written', async (stream) => {
  const sent = `{ "model" : "m1",\n\t"messages":[{"role":"user","content":"hi","x":{"y":[]}}],"stream":${stream}, ${ODD_FIELDS} }`
  await (await house.post(CHAT, sent, key)).text()
  const got = engine.requests.at(-1)!.text()
  if (!stream) return expect(got).toBe(sent)
  // One member more, asking for the usage to bill by; every other byte is the client's.
  const added = got.replace(/,"stream_options":\{"include_usage":true\}/, '')
  expect(added.length).toBe(got.length - ',"stream_options":{"include_usage":true}'.length)
  expect(added).toBe(sent)
})

test('only the model’s name changes under an alias, wherever it stands', async () => {
  const sent = `{"messages":[{"role":"user","content":"model"}],"metadata":{"model":"alias"}, "model" :\t"alias" ,${ODD_FIELDS}}`
  await (await house.post(CHAT, sent, key)).text()
  expect(engine.requests.at(-1)!.text()).toBe(sent.replace('"model" :\t"alias"', '"model" :\t"served-name"'))
})

test('include_usage is set without touching the client’s other stream options', async () => {
  for (const [given, wanted] of [
    ['{"include_usage":false,"x":1}', '{"include_usage":true,"x":1}'],
    ['{"continuous":null}', '{"continuous":null,"include_usage":true}'],
    ['{}', '{"include_usage":true}'],
    ['null', '{"include_usage":true}'],
    ['{"include_usage":true}', '{"include_usage":true}'],
  ]) {
    const sent = `{"model":"m1","messages":[],"stream":true,"stream_options":${given},"z":0.10}`
    await (await house.post(CHAT, sent, key)).text()
    expect(engine.requests.at(-1)!.text()).toBe(sent.replace(given!, wanted!))
  }
})

test('every key of a delta reaches the client, byte for byte', async () => {
  const events = [
    D(CH({ role: 'assistant', reasoning: 'r1', reasoning_content: 'r1', x_new: true })),
    D(
      '{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[{"token":"a","logprob":-0.10}]},"stop_reason":null,"token_ids":[1,2]}],"seq":12345678901234567890}',
    ),
    D(CH({ content: 'b', tool_calls: null, refusal: null })),
    D({ ...CH({}, 'stop'), x_last: { a: [1, null] } }),
    DONE,
  ]
  engine.play([script(sse200, events, end)])
  try {
    const { bytes } = await readSse(await house.post(CHAT, { ...JSON.parse(TEXT), stream: true }, key))
    expect(bytes.toString()).toBe(Buffer.concat(events.map((event) => bytesOf(event))).toString())
  } finally {
    engine.play((request) => answerTo(request))
  }
})

test('a whole answer reaches the client byte for byte, whatever its numbers and spaces', async () => {
  const answered = `{ "id":"x", "choices":[{"index":0,"message":{"role":"assistant","content":"\\u00e9","reasoning_content":"r"},"finish_reason":"stop","stop_reason":128009}],\n"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2,"x":1.0},"big":12345678901234567890 }\n`
  engine.play([json(200, answered)])
  try {
    expect(await (await house.post(CHAT, TEXT, key)).text()).toBe(answered)
  } finally {
    engine.play((request) => answerTo(request))
  }
})

test.each(['base64', 'float', undefined])(
  'embeddings with encoding_format %p: the format asked for comes back',
  async (format) => {
    const embedding = format === 'base64' ? 'zczMPc3MTD4=' : [0.1, 0.2]
    const answered = JSON.stringify({
      object: 'list',
      data: [{ object: 'embedding', index: 0, embedding }],
      model: 'm1',
      usage: { prompt_tokens: 1, total_tokens: 1 },
    })
    engine.play([json(200, answered)])
    try {
      const sent = JSON.stringify({ model: 'm1', input: ['a', 'b'], encoding_format: format, dimensions: 2 })
      expect(await (await house.post('/v1/embeddings', sent, key)).text()).toBe(answered)
      expect(engine.requests.at(-1)!.text()).toBe(sent)
    } finally {
      engine.play((request) => answerTo(request))
    }
  },
)

const TOOL_CALLS = [{ id: 'call_a', type: 'function', function: { name: 'f', arguments: '{}' } }]
const PARTS = [
  { type: 'text', text: 'a' },
  { type: 'text', text: 'b' },
]
const shaped = (fields: object) => JSON.stringify({ model: 'm1', ...fields })
const saying = (...messages: object[]) => shaped({ messages })

test.each([
  [
    'content null beside tool calls, then a result',
    saying(
      { role: 'assistant', content: null, tool_calls: TOOL_CALLS },
      { role: 'tool', tool_call_id: 'call_a', content: 'r' },
    ),
  ],
  ['empty content, tool calls null', saying({ role: 'assistant', content: '', tool_calls: null })],
  ['content as an empty list', saying({ role: 'user', content: [] })],
  [
    'content in parts for each role',
    saying(...['system', 'user', 'assistant', 'tool'].map((role) => ({ role, content: PARTS }))),
  ],
  ['the role developer', saying({ role: 'developer', content: 'a' })],
  ['a role nobody knows', saying({ role: 'critic', content: 'a' })],
  ['no message', shaped({ messages: [] })],
  [
    'messages missing, input and flat tools instead',
    shaped({ input: 'hi', tools: [{ type: 'function', name: 'f', parameters: {} }] }),
  ],
  ['stream null', shaped({ messages: [], stream: null, stream_options: null, tools: null, stop: null })],
  ['a byte order mark', `\ufeff${TEXT}`],
  ['white space around', `\r\n\t ${TEXT} \n`],
  ['deep but bounded nesting', shaped({ messages: [], x: JSON.parse('['.repeat(60) + ']'.repeat(60)) })],
] as const)('%s: relayed as sent', async (_what, sent) => {
  const answer = await house.post(CHAT, sent, key)
  expect(answer.status).toBe(200)
  expect(engine.requests.at(-1)!.text()).toBe(sent)
})

test.each([
  ['{}', 'field_invalid', 'model'],
  ['[]', 'json_invalid', null],
  ['"x"', 'json_invalid', null],
  ['null', 'json_invalid', null],
  ['', 'json_invalid', null],
  ['{"model":"m1"', 'json_invalid', null],
  ["{'model':'m1'}", 'json_invalid', null],
  ['{"model":["m1"],"messages":[]}', 'field_invalid', 'model'],
  ['{"model":"m1","messages":{"role":"user"}}', 'field_invalid', 'messages'],
  ['{"model":"m1","messages":[],"stream":"yes"}', 'field_invalid', 'stream'],
  ['{"model":"m1","messages":[],"stream":true,"stream_options":7}', 'field_invalid', 'stream_options'],
  ['{"model":"m1","model":"m1","messages":[]}', 'field_invalid', 'model'],
  [`{"model":"m1","x":${'['.repeat(5_000)}${']'.repeat(5_000)}}`, 'json_invalid', null],
])('%s: refused in OpenAI’s shape, naming the field', async (sent, code, param) => {
  const before = engine.requests.length
  const answer = await house.post(CHAT, sent, key)
  const { error } = (await answer.json()) as any
  expect([answer.status, error.code, error.param]).toEqual([400, code, param])
  expect(error.message).toBeString()
  expect(engine.requests.length).toBe(before)
})

test('bytes that are not UTF-8 are refused, not bent', async () => {
  const sent = Buffer.from('{"model":"m1","messages":[{"role":"user","content":"\xff"}]}', 'latin1')
  const answer = await house.post(CHAT, sent, key)
  expect([answer.status, ((await answer.json()) as any).error.code]).toEqual([400, 'json_invalid'])
})

test('a 400 of the engine is passed on as it is', async () => {
  const refusal =
    '{"error":{"message":"messages: too few",  "type":"invalid_request_error","param":"messages","code":null}}'
  engine.play([json(400, refusal)])
  try {
    const answer = await house.post(CHAT, shaped({ messages: [] }), key)
    expect([answer.status, await answer.text()]).toEqual([400, refusal])
  } finally {
    engine.play((request) => answerTo(request))
  }
})

test.each([['text/plain'], ['application/octet-stream'], ['text/json'], ['application/json; charset=utf-8'], ['']])(
  'content type %p does not matter: the body is JSON',
  async (type) => {
    const answer = await house.post(CHAT, TEXT, key, { 'content-type': type })
    expect(answer.status).toBe(200)
    expect(engine.requests.at(-1)!.header('content-type')).toBe('application/json')
  },
)

test('nothing of all this was a fault of the house', () => {
  expect(house.logged('internal_error')).toEqual([])
  expect(house.logged('unhandled_rejection')).toEqual([])
})
