import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { startDemoEngine } from '../../src/engines/demo/engine.ts'
import type { HostileOptions, Seen } from '../kit/hostile-engine.ts'
import { body, CH, cut, D, DONE, end, json, never, rst, script, type Script, sse200, US, wait } from '../kit/script.ts'
import { readSse, type SseRead } from '../kit/sse-read.ts'
import { eventually } from '../kit/wait.ts'
import { newCast, type Part, type PartSettings, provesAnswer } from './cast.ts'

setDefaultTimeout(60_000)

/** DESIGN §7: an engine breaks off after bytes went to the client, and another goes on where it stopped. */

const cast = newCast({ server: { ping_ms: 200 } })
const demo = startDemoEngine({ ttft_ms: 1, tokens_per_s: 0, models: [{ name: 'm1', kind: 'chat' }] })

const theirs = (delta: object, finish: string | null = null) =>
  D({ ...CH(delta, finish), id: 'chatcmpl-b', created: 1_800_000_000, model: 'mb' })
const C = (content: string) => D(CH({ content }))
/** With a pause, so that it is through before what follows breaks the connection. */
const half = [D(CH({ role: 'assistant', content: '' })), C('The answer '), C('is '), wait(30)]
const their_end = [theirs({}, 'stop'), D(US(40, 1, { prompt_tokens_details: { cached_tokens: 39 } })), DONE, end]
const their_role = theirs({ role: 'assistant', content: '' })
const the_rest = script(sse200, their_role, theirs({ content: '42' }), their_end)
const all_again = script(
  sse200,
  their_role,
  theirs({ content: 'The ' }),
  theirs({ content: 'answer is 4' }),
  theirs({ content: '2' }),
  theirs({}, 'stop'),
  D(US(5, 3)),
  DONE,
  end,
)
const continues = (request: Seen): boolean => request.json().continue_final_message === true
const answers = (answer: (request: Seen) => Script): Omit<HostileOptions, 'port'> => ({ answers: answer })
const able: PartSettings = { engine: { can: ['prefix_continuation'] } }
const stalls: PartSettings = {
  timeouts: { between_tokens_ms: 500, first_byte_ms: 500, first_token_ms: 500, connect_ms: 300 },
}
const error = (code: unknown) => D({ error: { message: 'boom', type: 'x', code } })

/** Ways to break off. */
const BREAKS: readonly (readonly [name: string, steps: Script, because: string])[] = [
  ['a cut', script(sse200, half, cut), 'engine_cut'],
  ['a reset', script(sse200, half, rst), 'engine_cut'],
  ['a clean end', script(sse200, half, end), 'engine_cut'],
  [
    '[DONE] missing and no finish reason, inside an event',
    script(sse200, half, body('data: {"id":'), cut),
    'engine_cut',
  ],
  ['silence', script(sse200, half, never), 'engine_timeout'],
  ['an error event', script(sse200, half, error(500), DONE, end), 'engine_failed'],
  ['an error event about our key', script(sse200, half, error(401), end), 'engine_credential'],
]
const prefixes = BREAKS.map(([, steps]) => cast.part([steps, the_rest], { ...able, ...stalls }))
const replays = BREAKS.map(([, steps]) => cast.part([steps, all_again], stalls))

const broken = script(sse200, half, cut)
const refuses = answers((request) =>
  continues(request) ? json(400, { error: { message: 'no prefill', code: 400 } }) : all_again,
)
const refuses_late = answers((request) => (continues(request) ? script(sse200, error(400), end) : all_again))
const refused = cast.part([broken, refuses], able)
const refused_late = cast.part([broken, refuses_late], able)
const other_text = cast.part([broken, script(sse200, theirs({ content: 'Something else' }), their_end)])
const twice = cast.part(
  [
    broken,
    script(sse200, their_role, theirs({ content: '4' }), wait(30), cut),
    script(sse200, theirs({ content: '2' }), their_end),
  ],
  able,
)
const all_broken = cast.part([broken, broken, broken, the_rest], { ...able, ...stalls })
const alone = cast.part([broken])
const fault_of_call = cast.part([script(sse200, half, error('content_filter'), end), the_rest], able)
const silent_both = cast.part([script(sse200, half, never), [never]], { ...able, ...stalls })
const too_late = cast.part([script(sse200, half, cut), [never]], { ...able, timeouts: { total_ms: 900 } })
const left = cast.part([broken, [never], the_rest], able)
const alias = cast.part([broken, the_rest], { ...able, rewrite_model: true })
const usage = cast.part([broken, the_rest], able)
const second = cast.part([the_rest], able)
const fallback = cast.part([broken], { ...able, fallbacks: [second.model] })
const whole_instead = cast.part([broken, json(200, { choices: [] })], able)

const text = (text: string, finish: string | null = null) =>
  D({
    id: 'cmpl-1',
    object: 'text_completion',
    created: 1,
    model: 'm1',
    choices: [{ index: 0, text, finish_reason: finish }],
  })
const completion = cast.part(
  [script(sse200, text('Once upon'), wait(30), cut), script(sse200, text(' a time', 'stop'), D(US(9, 3)), DONE, end)],
  able,
)

const tool = (made: object, id?: string) => ({
  tool_calls: [{ index: 0, ...(id && { id, type: 'function' }), function: made }],
})
const half_tool = script(
  sse200,
  D(CH(tool({ name: 'f', arguments: '' }, 'call-1'))),
  D(CH(tool({ arguments: '{"a"' }))),
  wait(30),
  cut,
)
const tool_again = (rest: string) =>
  script(
    sse200,
    theirs(tool({ name: 'f', arguments: rest }, 'call-2')),
    theirs({}, 'tool_calls'),
    D(US(5, 9)),
    DONE,
    end,
  )
const tools = cast.part([half_tool, tool_again('{"a":1}')], able)
const other_tools = cast.part([half_tool, tool_again('{"b":1}')], able)

const DEMO_CALL = { messages: [{ role: 'user', content: 'Tell me of rivers' }], seed: 7, max_tokens: 60 }
const on_demo = {
  ...{ replay: cast.part([broken], { last_urls: [demo.url] }), n: cast.part([broken], { last_urls: [demo.url] }) },
  prefix: cast.part([broken], { ...able, last_urls: [demo.url] }),
}

/** Where the answer of the demo engine breaks off: after so many events, and in the midst of the next one. */
const PLACES = [0, 1, 2, 7, -3, -2] as const
const broken_at = PLACES.flatMap((place) =>
  (['replay', 'prefix'] as const).map((way) => ({
    place,
    way,
    part: cast.part([broken], { ...(way === 'prefix' && able), last_urls: [demo.url] }),
  })),
)

/** The demo engine's own answer, and its events. */
const demoAnswer = async (extra: object = {}) => {
  const asked = { ...DEMO_CALL, ...extra, model: 'm1', stream: true, stream_options: { include_usage: true } }
  return readSse(await fetch(`${demo.url}/chat/completions`, { method: 'POST', body: JSON.stringify(asked) }))
}
const firstHalf = ({ events }: SseRead) => events.slice(0, events.length >> 1)
/** An engine that gives the first events of that answer and dies. */
const cutAfter = (events: readonly { readonly data: string }[]) =>
  script(
    sse200,
    events.map(({ data }) => D(data)),
    wait(30),
    cut,
  )

beforeAll(cast.open)
afterAll(async () => {
  await cast.close()
  demo.stop()
})

const asked = (part: Part) => part.engines.map((engine) => engine.requests.length)
const tried = async (id: string): Promise<any[]> => {
  const page: any = await (await cast.house().admin('GET', `calls/${id}`)).json()
  return page.tried
}

for (const [index, [name, , because]] of BREAKS.entries())
  describe(`${name} after bytes were delivered`, () => {
    for (const [way, parts] of [
      ['prefix', prefixes],
      ['replay', replays],
    ] as const)
      test(`${way}: the client has the whole answer, once`, async () => {
        const part = parts[index]!
        const got = await cast.stream(part, { max_tokens: 50 })
        expect(got.text()).toBe('The answer is 42')
        expect(got.errors()).toEqual([])
        expect(got.done).toBe(true)
        expect(got.finish()).toEqual(['stop'])
        expect(asked(part)).toEqual([1, 1])
        const chunks = got.chunks()
        expect(new Set(chunks.map(({ id, created, model }) => `${id} ${created} ${model}`))).toEqual(
          new Set(['chatcmpl-t1 1700000000 m1']),
        )
        expect(chunks.flatMap((chunk) => chunk.choices).filter((choice: any) => choice.delta.role)).toHaveLength(1)
        expect(got.usage()).toBeUndefined()
        const request = part.engines[1]!.requests[0]!.json()
        if (way === 'replay') {
          expect(request).not.toHaveProperty('continue_final_message')
          expect(request).toMatchObject({ max_tokens: 50, messages: [{ role: 'user', content: 'hi' }] })
        } else {
          expect(request).toMatchObject({ continue_final_message: true, add_generation_prompt: false, max_tokens: 48 })
          expect(request.messages[1]).toEqual({ role: 'assistant', content: 'The answer is ' })
        }
        const row = await cast.row(got.id)
        expect(row).toMatchObject({
          ...{ ending: 'whole', attempts: 2, engine: part.names[1], finish_reason: 'stop', failure: '' },
          completion_tokens: 3,
          prompt_tokens: way === 'prefix' ? 38 : 5,
          usage_source: way === 'prefix' ? 'estimated' : 'engine',
        })
        const answer = got.bytes.toString().replaceAll(': ping\n', '')
        expect(provesAnswer(row, answer)).toBe(true)
        expect((await tried(got.id)).map(({ engine, because }) => [engine, because])).toEqual([
          [part.names[0], ''],
          [part.names[1], `${because}, 2 tokens delivered`],
        ])
        expect(await cast.health(part.names[0]!)).toMatchObject({ health: 'cooling' })
        expect(await cast.health(part.names[1]!)).toMatchObject({ health: 'healthy' })
      })
  })

describe('an engine that does not take the text so far', () => {
  for (const [name, part] of [
    ['by its status', refused],
    ['in its first event', refused_late],
  ] as const)
    test(`${name}: a replay; the refusal is nobody's answer`, async () => {
      const got = await cast.stream(part)
      expect(got.text()).toBe('The answer is 42')
      expect(got.done).toBe(true)
      expect(got.bytes.toString()).not.toContain('error')
      expect(asked(part)).toEqual([1, 2])
      expect(await cast.row(got.id)).toMatchObject({ ending: 'whole', attempts: 3, completion_tokens: 3 })
      expect((await tried(got.id)).at(-1)).toMatchObject({ because: 'prefix_refused' })
    })
})

describe('half an answer stays half an answer', () => {
  test('if the replay says something else', async () => {
    const got = await cast.stream(other_text)
    expect(got.text()).toBe('The answer is ')
    expect(got.errors()).toMatchObject([{ code: 'engine_cut' }])
    expect(got.done).toBe(false)
    const row = await cast.row(got.id)
    expect(row).toMatchObject({ ending: 'cut_by_engine', attempts: 2, completion_tokens: 4, prompt_tokens: 2 })
    // To answer otherwise is no fault.
    expect(await cast.health(other_text.names[1]!)).toMatchObject({ health: 'healthy' })
    await eventually(() => other_text.engines[1]!.requests[0]!.state !== 'answering')
  })

  for (const [name, part, delivered, times] of [
    ['if nobody else is there', alone, 'The answer is ', [1]],
    ['if the call itself is at fault', fault_of_call, 'The answer is ', [1, 0]],
    ['if the next gives no stream', whole_instead, 'The answer is ', [1, 1]],
    ['if the next is silent, which is asked once', silent_both, 'The answer is ', [1, 1]],
    ['if the call has no time left', too_late, 'The answer is ', [1, 1]],
  ] as const)
    test(name, async () => {
      const got = await cast.stream(part)
      expect(got.text()).toBe(delivered)
      expect(got.errors()).toHaveLength(1)
      expect(got.done).toBe(false)
      expect(asked(part)).toEqual([...times])
      expect(await cast.row(got.id)).toMatchObject({ ending: 'cut_by_engine', completion_tokens: 4, prompt_tokens: 2 })
    })

  test('if three engines break off, whose parts follow each other', async () => {
    const got = await cast.stream(all_broken)
    expect(got.text()).toBe('The answer is The answer is The answer is ')
    expect(got.errors()).toHaveLength(1)
    expect(asked(all_broken).toSorted()).toEqual([0, 1, 1, 1])
    expect(await cast.row(got.id)).toMatchObject({ ending: 'cut_by_engine', attempts: 3, completion_tokens: 12 })
  })
})

test('an answer that breaks twice goes on twice', async () => {
  const got = await cast.stream(twice)
  expect([got.text(), got.done]).toEqual(['The answer is 42', true])
  const last = twice.engines.map((engine) => engine.requests[0]!.json().messages.at(-1).content)
  expect(last.toSorted()).toEqual(['The answer is ', 'The answer is 4', 'hi'])
  expect(await cast.row(got.id)).toMatchObject({ ending: 'whole', attempts: 3, completion_tokens: 4 })
})

test('a client that left has nothing continued for it', async () => {
  const leaving = new AbortController()
  const response = await cast.post(left, { stream: true }, leaving.signal)
  const reader = response.body!.getReader()
  await reader.read()
  reader.read().catch(() => undefined)
  await eventually(() => {
    expect(asked(left)[0]! + asked(left)[1]! + asked(left)[2]!).toBe(2)
  }, 3_000)
  const silent = left.engines[1]!.requests.length === 1
  leaving.abort()
  if (silent) await left.engines[1]!.hangUp(0)
  expect(await cast.row(response.headers.get('x-weir-call-id')!)).toMatchObject({ attempts: 2, completion_tokens: 4 })
  expect(asked(left)[0]! + asked(left)[1]! + asked(left)[2]!).toBe(2)
})

test('the name that the client asked for stays', async () => {
  const got = await cast.stream(alias)
  expect(new Set(got.chunks().map(({ model }) => model))).toEqual(new Set([alias.model]))
  expect(got.text()).toBe('The answer is 42')
})

test('usage that the client asked for is that of the whole answer', async () => {
  const got = await cast.stream(usage, { stream_options: { include_usage: true } })
  expect(got.usage()).toEqual({
    ...{ prompt_tokens: 38, completion_tokens: 3, total_tokens: 41 },
    prompt_tokens_details: { cached_tokens: 38 },
  })
  expect(await cast.row(got.id)).toMatchObject({ prompt_tokens: 38, cached_tokens: 38, completion_tokens: 3 })
})

test('a fallback model goes on where the model has no other engine', async () => {
  const got = await cast.stream(fallback)
  expect([got.text(), got.done]).toEqual(['The answer is 42', true])
  expect(await cast.row(got.id)).toMatchObject({ asked_model: fallback.model, engine: second.names[0], attempts: 2 })
})

test('a text completion goes on from its prompt', async () => {
  const request = { model: completion.model, prompt: 'Tell: ', max_tokens: 20, stream: true }
  const got = await readSse(await cast.house().post('/v1/completions', request, cast.key()))
  expect([got.text(), got.done]).toEqual(['Once upon a time', true])
  expect(completion.engines[1]!.requests[0]!.json()).toMatchObject({ prompt: 'Tell: Once upon', max_tokens: 19 })
})

describe('a tool call that was cut in its arguments', () => {
  test('goes on if the replay makes the same call', async () => {
    const got = await cast.stream(tools)
    const calls = got.chunks().flatMap((chunk) => chunk.choices[0]?.delta.tool_calls ?? [])
    expect(calls.map((call: any) => call.function.arguments).join('')).toBe('{"a":1}')
    expect(calls.flatMap((call: any) => call.id ?? [])).toEqual(['call-1'])
    expect(tools.engines[1]!.requests[0]!.json()).not.toHaveProperty('continue_final_message')
    expect([got.finish(), got.done]).toEqual([['tool_calls'], true])
  })
  test('stays cut if it makes another', async () => {
    const got = await cast.stream(other_tools)
    expect(got.errors()).toHaveLength(1)
    expect(got.done).toBe(false)
  })
})

describe('the demo engine takes over', () => {
  test('a replay is the same answer, token for token', async () => {
    const reference = await demoAnswer()
    on_demo.replay.engines[0]!.play([cutAfter(firstHalf(reference))])
    const got = await cast.stream(on_demo.replay, DEMO_CALL)
    expect(got.text()).toBe(reference.text())
    expect(got.finish()).toEqual(reference.finish())
    expect([got.done, got.errors()]).toEqual([true, []])
    const { prompt_tokens, completion_tokens } = reference.usage()
    const row = await cast.row(got.id)
    expect(row).toMatchObject({ prompt_tokens, completion_tokens, usage_source: 'engine', attempts: 2 })
  })

  test('a replay of three choices', async () => {
    const reference = await demoAnswer({ n: 3 })
    on_demo.n.engines[0]!.play([cutAfter(firstHalf(reference))])
    const got = await cast.stream(on_demo.n, { ...DEMO_CALL, n: 3 })
    for (const index of [0, 1, 2]) expect(got.text(index)).toBe(reference.text(index))
    expect([got.done, got.finish().length]).toEqual([true, 3])
  })

  for (const { place, way, part } of broken_at)
    test(`by a ${way}, broken at event ${place} and after half of the next`, async () => {
      const reference = await demoAnswer()
      const chunks = reference.events.filter(({ data }) => data !== '[DONE]' && !data.includes('"usage":{'))
      const whole = chunks.slice(0, place < 0 ? chunks.length + place : place)
      const half_event = body(`data: ${chunks[whole.length]!.data.slice(0, 40)}`)
      part.engines[0]!.play([
        script(
          sse200,
          whole.map(({ data }) => D(data)),
          half_event,
          wait(30),
          cut,
        ),
      ])
      const got = await cast.stream(part, DEMO_CALL)
      expect(got.text()).toBe(reference.text())
      expect([got.done, got.errors(), got.finish()]).toEqual([true, [], reference.finish()])
      const { completion_tokens } = reference.usage()
      expect(await cast.row(got.id)).toMatchObject({ ending: 'whole', attempts: 2, completion_tokens })
    })

  test('from the text so far', async () => {
    const reference = await demoAnswer()
    const first = firstHalf(reference)
    on_demo.prefix.engines[0]!.play([cutAfter(first)])
    const got = await cast.stream(on_demo.prefix, DEMO_CALL)
    expect(got.text()).toBe(reference.text())
    expect([got.done, got.errors()]).toEqual([true, []])
    const { completion_tokens } = reference.usage()
    expect(await cast.row(got.id)).toMatchObject({ completion_tokens, attempts: 2, ending: 'whole' })
  })
})

test('what became of it can be explained', async () => {
  const got = await cast.stream(twice)
  await cast.row(got.id)
  const page = await (await cast.house().admin('GET', `calls/${got.id}/explain`)).text()
  for (const name of twice.names.slice(1)) expect(page).toContain(name)
})

test('nothing stays in flight', async () => {
  expect(await cast.quiet()).toBe(true)
})
