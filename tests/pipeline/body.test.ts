import { expect, test } from 'bun:test'
import zlib from 'node:zlib'
import { Failure } from '../../src/base/failure.ts'
import { parseBody, readBody } from '../../src/pipeline/body.ts'
import { forAll, pick } from '../kit/wait.ts'

const TEXT = '{"model":"m1","messages":[{"role":"user","content":"hi"}]}'
const ENCODERS: Record<string, (bytes: Buffer) => Buffer> = {
  gzip: zlib.gzipSync,
  'x-gzip': zlib.gzipSync,
  deflate: zlib.deflateSync,
  br: zlib.brotliCompressSync,
  zstd: zlib.zstdCompressSync,
}

const read = (bytes: Uint8Array, encoding?: string, bytes_max = 65_536) =>
  readBody(
    new Request('http://localhost/', {
      method: 'POST',
      body: bytes as BodyInit,
      headers: encoding === undefined ? {} : { 'content-encoding': encoding },
    }),
    bytes_max,
    5_000,
    () => undefined,
  )

test.each(Object.keys(ENCODERS))('%s: decoded; damaged, cut and plain bytes are the client’s fault', async (name) => {
  const packed = ENCODERS[name]!(Buffer.from(TEXT))
  expect(Buffer.from((await read(packed, name)) as Uint8Array).toString()).toBe(TEXT)
  expect(Buffer.from((await read(packed, name.toUpperCase())) as Uint8Array).toString()).toBe(TEXT)
  // A zstd frame that is cut yields what it had; the JSON then stops too early.
  const cut = await read(packed.subarray(0, packed.length >> 1), name)
  expect(cut instanceof Failure ? cut.code : (parseBody(cut, true) as Failure).code).toMatch(
    /^(encoding|json)_invalid$/,
  )
  const plain = (await read(Buffer.from(TEXT), name)) as Failure
  expect(plain.code).toBe('encoding_invalid')
  expect(plain.detail.says).toBe(`The request body is not valid ${name}.`)
})

test.each(Object.keys(ENCODERS))('%s: what unpacks to more than the limit is too large', async (name) => {
  const packed = ENCODERS[name]!(Buffer.alloc(1_000_000))
  expect(packed.length).toBeLessThan(2_000)
  expect(await read(packed, name)).toMatchObject({ code: 'body_too_large' })
  expect(await read(packed, name, 1_000_000)).toHaveLength(1_000_000)
})

test.each(['foo', 'gzip, br', '', 'gzip;q=1', '__proto__', 'constructor'])(
  'encoding %p is refused with the ones accepted',
  async (encoding) => {
    const refused = (await read(Buffer.from(TEXT), encoding)) as Failure
    expect(refused).toMatchObject({
      code: 'encoding_unsupported',
      detail: { param: 'content-encoding', headers: { 'accept-encoding': 'gzip, x-gzip, deflate, br, zstd' } },
    })
  },
)

test('identity is no encoding', async () => {
  expect(Buffer.from((await read(Buffer.from(TEXT), 'identity')) as Uint8Array).toString()).toBe(TEXT)
})

test.each([
  // body, model is needed, the failure and the field at fault, or ok
  ['{"model":"m1"}', true, 'ok'],
  ['{"model":"m1","messages":[]}', true, 'ok'],
  ['{"model":"m1","stream":null,"stream_options":null,"max_tokens":null}', true, 'ok'],
  ['\ufeff{"model":"m1"}', true, 'ok'],
  ['{"model":"m1","messages":[{"a":1,"a":2}]}', true, 'ok'],
  ['', true, 'json_invalid'],
  ['   ', true, 'json_invalid'],
  ['{}', true, 'field_invalid model'],
  ['[]', true, 'json_invalid'],
  ['"x"', true, 'json_invalid'],
  ['1', true, 'json_invalid'],
  ['null', true, 'json_invalid'],
  ['{"model":null}', true, 'field_invalid model'],
  ['{"model":""}', true, 'field_invalid model'],
  ['{"model":7}', true, 'field_invalid model'],
  [`{"model":"${'m'.repeat(257)}"}`, true, 'field_invalid model'],
  ['{"model":"m1","messages":{}}', true, 'field_invalid messages'],
  ['{"model":"m1","messages":"hi"}', true, 'field_invalid messages'],
  ['{"model":"m1","messages":null}', true, 'field_invalid messages'],
  ['{"model":"m1","stream":"true"}', true, 'field_invalid stream'],
  ['{"model":"m1","stream":1}', true, 'field_invalid stream'],
  ['{"model":"m1","stream_options":[]}', true, 'field_invalid stream_options'],
  ['{"model":"m1","max_tokens":"5"}', true, 'field_invalid max_tokens'],
  ['{"model":"m1","model":"m2"}', true, 'field_invalid model'],
  ['{"model":"m1","mod\\u0065l":"m2"}', true, 'field_invalid model'],
  [
    '{"model":"m1","stream_options":{"include_usage":true,"include_usage":false}}',
    true,
    'field_invalid stream_options.include_usage',
  ],
  ['{"model":"m1",}', true, 'json_invalid'],
  ['{"model":"m1"} x', true, 'json_invalid'],
  ['[1,"x",null]', false, 'ok'],
  ['"x"', false, 'ok'],
  ['{"stream":7,"model":8}', false, 'ok'],
  ['{', false, 'json_invalid'],
] as const)('%p (model needed: %p) → %s', (text, needs_model, wanted) => {
  const body = parseBody(Buffer.from(text), needs_model)
  const got = body instanceof Failure ? [body.code, body.detail.param ?? ''].join(' ').trim() : 'ok'
  expect(got).toBe(wanted)
})

test('nesting is bounded before anything recursive sees it', () => {
  const nested = (depth: number) => Buffer.from(`{"model":"m1","x":${'['.repeat(depth)}${']'.repeat(depth)}}`)
  expect(parseBody(nested(127), true)).not.toBeInstanceOf(Failure)
  expect(parseBody(nested(128), true)).toMatchObject({ code: 'json_invalid' })
  expect(parseBody(nested(1_000_000), true)).toMatchObject({ code: 'json_invalid' })
})

test.each([
  ['{"model":"m","max_tokens":5}', { tokens_max: 5, n: 1, stream: false, wants_usage: false, end_user: '' }],
  ['{"model":"m","max_tokens":5,"max_completion_tokens":7}', { tokens_max: 7 }],
  ['{"model":"m","max_tokens":-1,"n":0}', { tokens_max: undefined, n: 1 }],
  ['{"model":"m","max_tokens":1e3,"n":2.0}', { tokens_max: 1000, n: 2 }],
  ['{"model":"m","max_tokens":1.5,"n":"3"}', { tokens_max: undefined, n: 1 }],
  ['{"model":"m","stream":true,"stream_options":{"include_usage":true}}', { stream: true, wants_usage: true }],
  ['{"model":"m","stream_options":{"include_usage":null}}', { wants_usage: false }],
  ['{"model":"m","user":"\\ud800x"}', { end_user: '\ufffdx' }],
  ['{"model":"m","user":["x"]}', { end_user: '' }],
] as const)('%s is read as %j', (text, wanted) => {
  expect(parseBody(Buffer.from(text), true)).toMatchObject(wanted)
})

test.each([
  ['{"model":"m","messages":"x"}', '"messages" is a string; it must be an array.'],
  ['{"model":"m","stream":"yes"}', '"stream" is a string; it must be a boolean or null.'],
  ['{"model":"m","max_tokens":[]}', '"max_tokens" is an array; it must be a number or null.'],
] as const)('%s is refused in words', (text, says) => {
  expect(parseBody(Buffer.from(text), true)).toMatchObject({ code: 'field_invalid', detail: { says } })
})

test('property: any bytes give a body or a failure, and never an exception', () => {
  const parts = [
    '{',
    '}',
    '[',
    ']',
    '"',
    ':',
    ',',
    'model',
    'stream',
    '\\',
    'u0041',
    'true',
    'null',
    '1e9',
    ' ',
    '\xff',
  ]
  forAll(300, (roll) => {
    const text = Array.from({ length: roll(24) }, () => pick(roll, parts)).join('')
    const body = parseBody(Buffer.from(text, 'latin1'), roll(2) === 0)
    if (body instanceof Failure) expect(body.status).toBe(400)
    else expect(body.sha256).toHaveLength(32)
  })
})
