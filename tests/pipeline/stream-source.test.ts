import { describe, expect, test } from 'bun:test'
import { TransportFailure } from '../../src/engines/transport.ts'
import { errorJson, errorStatus } from '../../src/pipeline/engine-error.ts'
import { streamTokens } from '../../src/pipeline/estimate.ts'
import { eventOf } from '../../src/pipeline/event-bytes.ts'
import { StreamSource, type StreamWishes } from '../../src/pipeline/stream-source.ts'
import { bytesOf, CH, D, DONE, US } from '../kit/script.ts'
import { sseEvents } from '../kit/sse-read.ts'
import { forAll, pick } from '../kit/wait.ts'

const WISHES: StreamWishes = { usage: false, choices: 1, alias: undefined }
const of = (...steps: Parameters<typeof bytesOf>[0][]) => Buffer.concat(steps.map(bytesOf))
const choice = (index: number, finish: string | null = null) => ({
  ...CH({}),
  choices: [{ index, delta: {}, finish_reason: finish }],
})

/** Feeds the pieces and the end of the body; what came out, joined. */
const run = (pieces: readonly Uint8Array[], wishes = WISHES, end: null | TransportFailure = null) => {
  const source = new StreamSource(wishes)
  const out: Uint8Array[] = []
  const collect = () => {
    const output = source.output()
    if (output !== undefined) out.push(output)
  }
  for (const piece of pieces) {
    if (source.state === 'open') source.take(piece)
    collect()
  }
  if (source.state === 'open') source.take(end)
  collect()
  return { source, out, text: Buffer.concat(out).toString() }
}

const ERROR = { error: { message: 'm', type: 't', code: 'c' } }
/** What comes in, what goes out, how the stream stands after a clean end. */
const TABLE: readonly (readonly [
  name: string,
  given: Uint8Array,
  shown: Uint8Array,
  state: string,
  finished: boolean,
])[] = [
  ['one event', of(D(CH({ content: 'a' }))), of(D(CH({ content: 'a' }))), 'ended', false],
  [
    'a whole stream',
    of(D(CH({ content: 'a' })), D(CH({}, 'stop')), DONE),
    of(D(CH({ content: 'a' })), D(CH({}, 'stop'))),
    'done',
    true,
  ],
  ['nothing after [DONE]', of(DONE, D(CH({ content: 'a' }))), of(), 'done', false],
  [
    'comments and empty records',
    of(': c\n\n', 'id: 1\n\n', 'retry: 5\n\n', 'event: x\n\n', 'data:\n\n', ':\n\n'),
    of(),
    'ended',
    false,
  ],
  [
    'a comment before data in one record',
    of(': c\n', D(CH({ content: 'a' }))),
    of(D(CH({ content: 'a' }))),
    'ended',
    false,
  ],
  [
    'fields beside the data',
    of('event: m\nid: 1\n', D(CH({ content: 'a' }))),
    of('event: m\nid: 1\n', D(CH({ content: 'a' }))),
    'ended',
    false,
  ],
  ['usage that was not asked for', of(D(CH({}, 'stop')), D(US(1, 2)), DONE), of(D(CH({}, 'stop'))), 'done', true],
  [
    'usage beside choices stays',
    of(D({ ...CH({}, 'stop'), usage: US(1, 2).usage })),
    of(D({ ...CH({}, 'stop'), usage: US(1, 2).usage })),
    'ended',
    true,
  ],
  [
    'null usage is none',
    of(D({ ...CH({ content: 'a' }), usage: null })),
    of(D({ ...CH({ content: 'a' }), usage: null })),
    'ended',
    false,
  ],
  [
    'broken JSON is left out',
    of(D('{"a"'), D(CH({ content: 'a' })), D('true')),
    of(D(CH({ content: 'a' }))),
    'ended',
    false,
  ],
  [
    'an error event is held back',
    of(D(CH({ content: 'a' })), D(ERROR), D(CH({ content: 'b' }))),
    of(D(CH({ content: 'a' }))),
    'error',
    false,
  ],
  [
    'a null error is none',
    of(D({ ...CH({ content: 'a' }), error: null })),
    of(D({ ...CH({ content: 'a' }), error: null })),
    'ended',
    false,
  ],
  [
    'two choices, one finished',
    of(D(choice(0)), D(choice(1)), D(choice(0, 'stop'))),
    of(D(choice(0)), D(choice(1)), D(choice(0, 'stop'))),
    'ended',
    false,
  ],
  [
    'two choices, both finished',
    of(D(choice(1, 'stop')), D(choice(0, 'length'))),
    of(D(choice(1, 'stop')), D(choice(0, 'length'))),
    'ended',
    true,
  ],
  [
    'more of a choice after its finish',
    of(D(choice(0, 'stop')), D(choice(0))),
    of(D(choice(0, 'stop')), D(choice(0))),
    'ended',
    true,
  ],
  ['a last event without its empty line', of(D(CH({}, 'stop')), 'data: [DONE]'), of(D(CH({}, 'stop'))), 'done', true],
]

describe('what goes out', () => {
  for (const [name, given, shown, state, finished] of TABLE)
    test(`${name}, split anywhere`, () => {
      for (let at = 0; at <= given.length; at++) {
        const { source, text } = run([given.subarray(0, at), given.subarray(at)].filter((piece) => piece.length > 0))
        expect(text).toBe(shown.toString())
        expect({ state: source.state, finished: source.finished }).toEqual({ state, finished } as any)
      }
    })

  test('any mix of events under any split', () => {
    const kinds = [
      ': c\n\n',
      'id: 4\n\n',
      D(CH({ content: 'é🌍' })),
      D(CH({ reasoning: 'r' })),
      D(US(3, 4)),
      D('{'),
      'data: {"choices":\ndata: []}\n\n',
    ]
    forAll(300, (roll) => {
      const given = of(...Array.from({ length: 1 + roll(8) }, () => pick(roll, kinds)), D(CH({}, 'stop')), DONE)
      const whole = run([given])
      const pieces: Uint8Array[] = []
      for (let at = 0; at < given.length;) {
        const next = Math.min(given.length, at + 1 + roll(40))
        pieces.push(given.subarray(at, next))
        at = next
      }
      const split = run(pieces)
      expect(split.text).toBe(whole.text)
      expect(split.source.usage).toEqual(whole.source.usage)
      expect([split.source.text.events, split.source.text.bytes, split.source.text.take()]).toEqual([
        whole.source.text.events,
        whole.source.text.bytes,
        whole.source.text.take(),
      ])
      for (const { data } of sseEvents(whole.text)) expect(() => JSON.parse(data)).not.toThrow()
    })
  })

  test('a piece of whole events goes on as it is, without a copy', () => {
    const given = of(D(CH({ content: 'a' })), D(CH({ content: 'b' })))
    const { out } = run([given])
    expect(out).toHaveLength(1)
    expect(out[0]!.buffer).toBe(given.buffer)
    expect(out[0]!.byteOffset).toBe(given.byteOffset)
  })

  test('the usage chunk is shown once to whoever asked', () => {
    const given = of(D(US(1, 2)), D(US(1, 3)), DONE)
    const { text, source } = run([given], { ...WISHES, usage: true })
    expect(text).toBe(of(D(US(1, 2))).toString())
    expect(source.usage).toMatchObject({ completion_tokens: 3 })
  })

  test('an alias takes the place of every model, and of nothing else', () => {
    const given = of(
      D({ ...CH({ content: '"model":"m1"' }), n: '12345678901234567890' }),
      'event: x\n',
      D(CH({}, 'stop')),
      DONE,
    )
    const wanted = given.toString().replaceAll(/(?<=[,{])"model":"m1"(?=,)/g, '"model":"al\\"ias"')
    for (let at = 1; at < given.length; at++) {
      const { text } = run([given.subarray(0, at), given.subarray(at)], { ...WISHES, alias: 'al"ias' })
      expect(`${text}data: [DONE]\n\n`).toBe(wanted)
    }
  })

  test('a cut keeps what was whole and drops half an event', () => {
    const given = of(D(CH({ content: 'a' })), 'data: {"id"')
    const { source, text } = run([given], WISHES, new TransportFailure('cut', true))
    expect(text).toBe(of(D(CH({ content: 'a' }))).toString())
    expect(source).toMatchObject({ state: 'cut', failure: { kind: 'cut' } })
  })
})

test('one event a token, unless events are large', () => {
  expect(streamTokens(0, 0)).toBe(0)
  expect(streamTokens(40, 160)).toBe(40)
  expect(streamTokens(1, 400)).toBe(100)
})

test('JSON as one event, whatever its line ends', () => {
  for (const json of ['{"a":1}', '{\n  "a": "é",\r\n  "b": [\r1]\n}'])
    expect(sseEvents(eventOf(Buffer.from(json))).map(({ data }) => JSON.parse(data))).toEqual([JSON.parse(json)])
})

test('the status of an error inside a 200', () => {
  for (const [code, type, wanted] of [
    ['429', 'x', 429],
    ['200', 'x', 502],
    ['99999', 'x', 502],
    ['', 'BadRequestError', 400],
    ['context_length_exceeded', 'server_error', 400],
    ['', 'authentication_error', 401],
    ['toString', 'constructor', 502],
    ['', '', 502],
  ] as const)
    expect(errorStatus({ message: '', code, type })).toBe(wanted)
})

test('an error always reaches the client as an error object', () => {
  const none = { message: '', type: '', code: '' }
  const given = Buffer.from('{"error": {"message":"m", "x":12345678901234567890}}')
  expect(errorJson(given, { ...none, message: 'm' })).toBe(given)
  for (const [bytes, error, message] of [
    [undefined, none, 'The engine failed.'],
    [Buffer.from('{"error":"busy"}'), { ...none, message: 'busy' }, 'busy'],
    [Buffer.from('{"detail":"odd"}'), none, '{"detail":"odd"}'],
  ] as const)
    expect(JSON.parse(Buffer.from(errorJson(bytes, error)).toString()).error).toMatchObject({ message })
})

describe('usage beside a choice, asked for by the gateway alone', () => {
  const usage = '"usage" : { "prompt_tokens":9,"completion_tokens": 4, "note":"a \\"usage\\": }" }'
  const choices = '"choices":[{"index":0,"delta":{"content":"a \\"usage\\":1"}}]'
  for (const [name, given, shown] of [
    ['at the end', `{"id":"x",${choices},${usage}}`, `{"id":"x",${choices}}`],
    ['at the start', `{ ${usage} , ${choices}}`, `{ ${choices}}`],
    ['in the middle', `{"id":"x", ${usage},${choices} }`, `{"id":"x", ${choices} }`],
    ['null', `{"usage":null,${choices}}`, `{"usage":null,${choices}}`],
    ['without a choice', `{"choices":[],${usage}}`, ''],
  ] as const)
    for (const line of ['\n', '\r\n'])
      test(`${name}, line end ${JSON.stringify(line)}: taken out, and no other byte`, () => {
        const event = (data: string) => `id: 7${line}data: ${data}${line}${line}`
        const { source, text } = run([Buffer.from(event(given))], { ...WISHES, hides_usage: true })
        expect(text).toBe(shown === '' ? '' : event(shown))
        expect(source.usage?.completion_tokens).toBe(name === 'null' ? undefined : 4)
      })

  test('over several lines of data: the same JSON without it', () => {
    const given = Buffer.from(`data: {${choices},\ndata: ${usage}}\n\n`)
    const { text } = run([given], { ...WISHES, hides_usage: true })
    expect(sseEvents(text).map(({ data }) => JSON.parse(data))).toEqual([JSON.parse(`{${choices}}`)])
  })

  test('what was generated after the last figure is known to be so', () => {
    const told = D({ ...CH({ content: 'a' }), usage: { prompt_tokens: 9, completion_tokens: 4 } })
    expect(run([of(told)]).source).toMatchObject({ counted: true, text: { bytes: 0 } })
    expect(run([of(told, D(CH({ content: 'bc' })))]).source).toMatchObject({ counted: false, text: { bytes: 2 } })
    // Of a whole answer the engine's word stands.
    expect(run([of(told, D(CH({ content: 'bc' })), DONE)]).source).toMatchObject({ counted: true })
  })
})
