import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { countTokens } from 'gpt-tokenizer/encoding/o200k_base'
import { bytesOf, CH, cut, D, DONE, end, json, script, sse200, type Step, US, wait } from '../kit/script.ts'
import { readSse, sseEvents } from '../kit/sse-read.ts'
import { eventually } from '../kit/wait.ts'
import { newCast, type Part, provesAnswer } from './cast.ts'

setDefaultTimeout(60_000)

/** CASES C09: parallel tool calls, under one index, under none, or under their own, reach the client as they were written. */

const cast = newCast()

type Call = { readonly index?: number; readonly id?: string; readonly name?: string; readonly arguments?: string }
const made = ({ index, id, name, arguments: text }: Call) => ({
  ...(index !== undefined && { index }),
  ...(id !== undefined && { id, type: 'function' }),
  function: { ...(name !== undefined && { name }), ...(text !== undefined && { arguments: text }) },
})
const calls = (...list: readonly Call[]): Step => D(CH({ tool_calls: list.map(made) }))

const ARGUMENTS = ['{"p":"a","n":12345678901234567890}', '{"p":"b"}', '{}']
const whole = (index?: number) =>
  ARGUMENTS.map((text, at) => ({
    ...(index !== undefined && { index }),
    id: `call_${'abc'[at]}`,
    name: `read_${at}`,
    arguments: text,
  }))
const numbered = whole().map((call, at) => ({ ...call, index: at }))
/** A call in four events: its id and name, then its arguments. */
const pieces = ({ arguments: text, ...call }: Call & { arguments: string }): Step[] => [
  calls({ ...call, arguments: '' }),
  calls({ index: call.index!, arguments: text.slice(0, 1) }),
  calls({ index: call.index!, arguments: text.slice(1, 4) }),
  calls({ index: call.index!, arguments: text.slice(4) }),
]
const [first, second, third] = numbered.map(pieces)

const SHAPES: Readonly<Record<string, readonly Step[]>> = {
  'each whole, all index 0': whole(0).map((call) => calls(call)),
  'each whole, no index': whole().map((call) => calls(call)),
  'all in one event, all index 0': [calls(...whole(0))],
  'all in one event, no index': [calls(...whole())],
  'in pieces, all index 0': whole(0).flatMap(pieces),
  'each whole, well indexed': numbered.map((call) => calls(call)),
  'in pieces, well indexed, in turns': first!.flatMap((step, at) => [step, second![at]!, third![at]!]),
}
const events = (steps: readonly Step[]) => [D(CH({ role: 'assistant', content: null })), ...steps]
const finish = D(CH({}, 'tool_calls'))
const streams = Object.entries(SHAPES).map(([name, steps]) => {
  const sent = [...events(steps), finish, D(US(9, 31)), DONE]
  return { name, steps, sent: Buffer.concat(sent.map(bytesOf)), part: cast.part([script(sse200, sent, end)]) }
})
const silent = Object.entries(SHAPES).map(([name, steps]) => ({
  name,
  part: cast.part([script(sse200, events(steps), finish, DONE, end)]),
}))

/** Numbers that a parser would spoil, blanks that a printer would not make, a key that stands twice. */
const answer = (list: readonly Call[]) =>
  `{ "id":"chatcmpl-t1","object":"chat.completion", "choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":${JSON.stringify(list.map(made))}},"finish_reason":"tool_calls","x":1.0,"x":12345678901234567890}],"usage":{"prompt_tokens":9,"completion_tokens":31,"total_tokens":40}}\n`
const answers = [
  ['all index 0', whole(0)],
  ['no index', whole()],
  ['well indexed', numbered],
] as const
const whole_parts = answers.map(([name, list]) => ({
  name,
  text: answer(list),
  part: cast.part([json(200, answer(list))]),
}))

/** Breaks off in the second call; another engine says both again, under ids of its own. */
const half = script(
  sse200,
  pieces({ index: 0, id: 'call_a', name: 'read', arguments: ARGUMENTS[0]! }),
  calls({ index: 0, id: 'call_b', name: 'read', arguments: '{"p"' }),
  wait(30),
  cut,
)
const again = (indices: readonly number[]) =>
  script(
    sse200,
    indices.map((index, at) => calls({ index, id: `other_${at}`, name: 'read', arguments: ARGUMENTS[at]! })),
    finish,
    D(US(9, 31)),
    DONE,
    end,
  )
const rescued = cast.part([half, again([0, 0])])
const renumbered = cast.part([half, again([0, 1])])

beforeAll(cast.open)
afterAll(cast.close)

/** As a client should: a new id at an index that is taken begins another call. */
const assembled = (chunks: readonly any[]): { id: string; name: string; arguments: string }[] => {
  const all: { id: string; name: string; arguments: string }[] = []
  const last = new Map<number, (typeof all)[number]>()
  for (const chunk of chunks)
    for (const [at, call] of (chunk.choices[0]?.delta.tool_calls ?? []).entries()) {
      const index = call.index ?? at
      let known = last.get(index)
      if (known === undefined || (call.id && call.id !== known.id)) {
        known = { id: call.id, name: '', arguments: '' }
        all.push(known)
        last.set(index, known)
      }
      known.name += call.function.name ?? ''
      known.arguments += call.function.arguments ?? ''
    }
  return all
}
const expected: readonly Required<Omit<Call, 'index'>>[] = whole()

describe('a stream', () => {
  for (const { name, part, sent } of streams)
    test(`${name}: byte for byte, and the ledger has its hash`, async () => {
      const got = await cast.stream(part, { stream_options: { include_usage: true } })
      expect(got.bytes.toString()).toBe(sent.toString())
      expect(assembled(got.chunks())).toEqual([...expected])
      const row = await cast.row(got.id)
      expect(row).toMatchObject({ ending: 'whole', finish_reason: 'tool_calls', completion_tokens: 31 })
      expect(provesAnswer(row, sent)).toBe(true)
    })

  for (const { name, part } of silent)
    test(`${name}, without usage: the tokens of each call are counted by themselves`, async () => {
      const got = await cast.stream(part)
      const tokens = expected.reduce((sum, call) => sum + countTokens(call.name) + countTokens(call.arguments), 0)
      expect(await cast.row(got.id)).toMatchObject({ usage_source: 'estimated', completion_tokens: tokens })
    })
})

describe('a whole answer', () => {
  for (const { name, part, text } of whole_parts)
    test(`${name}: byte for byte, and the ledger has its hash`, async () => {
      const got = await cast.post(part)
      expect(await got.text()).toBe(text)
      const row = await cast.row(got.headers.get('x-weir-call-id')!)
      expect(row).toMatchObject({ ending: 'whole', finish_reason: 'tool_calls', completion_tokens: 31 })
      expect(provesAnswer(row, text)).toBe(true)
    })
})

describe('an answer that was kept', () => {
  const post = (part: Part, headers: Record<string, string>, extra: object = {}) => {
    const body = { model: part.model, messages: [{ role: 'user', content: 'kept' }], ...extra }
    return cast.house().post('/v1/chat/completions', body, cast.key(), headers)
  }
  const asked = (part: Part) => part.engines[0]!.requests.length

  test('for an idempotency key, streamed: all calls, each with valid arguments', async () => {
    const { part, sent } = streams[0]!
    const before = asked(part)
    const extra = { stream: true, stream_options: { include_usage: true } }
    for (let time = 0; time < 2; time++) {
      const got = await readSse(await post(part, { 'idempotency-key': 'calls' }, extra))
      expect(got.bytes.toString()).toBe(sent.toString())
    }
    expect(asked(part)).toBe(before + 1)
  })

  test('for an idempotency key, whole', async () => {
    const { part, text } = whole_parts[0]!
    const before = asked(part)
    for (let time = 0; time < 2; time++)
      expect(await (await post(part, { 'idempotency-key': 'whole calls' })).text()).toBe(text)
    expect(asked(part)).toBe(before + 1)
  })

  test('of a job', async () => {
    const { part, text } = whole_parts[0]!
    const { id } = (await (await post(part, { prefer: 'respond-async' })).json()) as { id: string }
    const shown = await eventually(async () => {
      const headers = { authorization: `Bearer ${cast.key()}` }
      const job = await (await fetch(`${cast.house().url}/v1/jobs/${id}`, { headers })).text()
      expect(JSON.parse(job)).toMatchObject({ status: 'done' })
      return job
    }, 10_000)
    // Within the job, as it was written.
    expect(shown).toContain(text.trim())
  })
})

describe('cut in its second call', () => {
  test('at the index of the first, and said again so: two calls, the ids of the first engine', async () => {
    const got = await cast.stream(rescued)
    expect([got.done, got.finish()]).toEqual([true, ['tool_calls']])
    expect(assembled(got.chunks())).toEqual([
      { id: 'call_a', name: 'read', arguments: ARGUMENTS[0]! },
      { id: 'call_b', name: 'read', arguments: ARGUMENTS[1]! },
    ])
  })

  test('and said again under other indices: one error, no [DONE], no finish', async () => {
    const got = await cast.stream(renumbered)
    expect([got.done, got.finish(), got.errors()]).toMatchObject([false, [], [{ code: 'engine_cut' }]])
    expect(sseEvents(got.bytes).at(-1)!.data).toContain('"error"')
  })
})

test('nothing stays in flight', async () => {
  expect(await cast.quiet()).toBe(true)
})
