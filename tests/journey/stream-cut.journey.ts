import { afterAll, beforeAll, expect, test } from 'bun:test'
import OpenAI from 'openai'
import {
  body,
  CH,
  cut,
  D,
  DONE,
  end,
  head,
  json,
  never,
  rst,
  script,
  type Script,
  sse200,
  US,
  wait,
  WHOLE,
} from '../kit/script.ts'
import { eventually } from '../kit/wait.ts'
import { newCast, type Over, provesAnswer, type Read } from './cast.ts'

/** CASES C04 and C12: streams that break, and streams that are only slow. */
export const streamCutsOver = (over: Over): void => {
  const cast = newCast({ over, server: { ping_ms: 200 } })
  const text = (content: string) => D(CH({ content }))
  const finish = D(CH({}, 'stop'))
  const role = D(CH({ role: 'assistant' }))
  /** With a pause, so that it is through before what follows breaks the connection. */
  const half = [role, text('The answer is '), wait(30)]
  const rest = [text('42'), finish, D(US(5, 2)), DONE, end]
  const good = script(sse200, rest)

  /** Ways to break off after text was delivered: the error code that the client gets. */
  const BREAKS: readonly (readonly [name: string, script: Script, code: string])[] = [
    ['a cut', script(sse200, half, cut), 'engine_cut'],
    ['a reset', script(sse200, half, rst), 'engine_cut'],
    ['a clean end', script(sse200, half, end), 'engine_cut'],
    ['a cut inside an event', script(sse200, half, body('data: {"id":'), cut), 'engine_cut'],
    [
      'the end of a body without framing',
      script(head(200, { 'content-type': 'text/event-stream' }, 'close'), half, cut),
      'engine_cut',
    ],
    ['silence', script(sse200, half, never), 'engine_timeout'],
    [
      'an error event',
      script(sse200, half, D({ error: { message: 'CUDA error', type: 'x', code: 'boom' } }), DONE, end),
      'boom',
    ],
    [
      'an error event, and no end',
      script(sse200, half, D({ error: { message: 'm', type: 'x', code: 'open' } }), never),
      'open',
    ],
    [
      'an error event about our key',
      script(sse200, half, D({ error: { message: 'key sk-house expired', code: 401 } }), end),
      'engine_credential',
    ],
  ]
  const short = { timeouts: { between_tokens_ms: 600 } }
  /** The second engine says something else, so it cannot go on with the first one's answer. */
  const breaks = BREAKS.map(([, steps]) => cast.part([steps, good], short))
  const before = cast.part([script(sse200, cut), good])
  const after_finish = cast.part([script(sse200, half, finish, wait(30), cut)])

  const times = (count: number, make: (at: number) => Script) =>
    Array.from({ length: count }, (_, at) => make(at)).flat()
  const patient = { timeouts: { first_token_ms: 5_000, first_byte_ms: 5_000, between_tokens_ms: 1_500 } }
  const late_head = cast.part([script(wait(1_000), sse200, rest)], patient)
  const late_token = cast.part([script(sse200, body('id: 9\n\n'), wait(1_000), rest)], patient)
  const trickle = cast.part(
    [
      script(
        sse200,
        times(10, () => [text('x'), wait(250)]),
        rest,
      ),
    ],
    patient,
  )
  const pause = cast.part([script(sse200, body('id: 4\n'), half, wait(1_200), rest)], patient)
  const comments = cast.part(
    [
      script(
        sse200,
        half,
        times(12, () => [body(': alive\n\n'), wait(250)]),
        rest,
      ),
    ],
    patient,
  )
  const late_refusal = cast.part([script(wait(500), json(400, { error: { message: 'too long', code: 400 } }))])
  const late_html = cast.part([script(wait(500), json(503, '<html>down', { 'content-type': 'text/html' }))])
  const late_whole = cast.part([script(wait(500), json(200, JSON.stringify(WHOLE('all', 5, 7), null, 2)))])
  const late_other = cast.part([script(wait(500), cut), good])
  const late_silence = cast.part([script(never)], { timeouts: { first_byte_ms: 600, connect_ms: 200 } })

  /** Each deadline of a model, alone: what the engine does and what the client is told. */
  const allOf = (ms: number) => ({
    connect_ms: ms,
    first_byte_ms: ms,
    first_token_ms: ms,
    between_tokens_ms: ms,
    total_ms: ms,
  })
  const DEADLINES: readonly (readonly [
    name: string,
    timeouts: { readonly total_ms?: number; readonly [name: string]: number },
    script: Script,
    stream: boolean,
    code: string,
  ])[] = [
    ['first_byte_ms', { first_byte_ms: 150, connect_ms: 20 }, [never], true, 'engine_timeout'],
    ['first_byte_ms of a whole answer', { first_byte_ms: 150, connect_ms: 20 }, [never], false, 'engine_timeout'],
    ['first_token_ms', { first_token_ms: 150 }, script(sse200, never), true, 'engine_timeout'],
    ['between_tokens_ms', { between_tokens_ms: 300 }, script(sse200, half, never), true, 'engine_timeout'],
    [
      'between_tokens_ms of a whole answer',
      { between_tokens_ms: 300 },
      script(head(200), body('{'), never),
      false,
      'engine_timeout',
    ],
    ['total_ms before the head', { total_ms: 150 }, [never], true, 'deadline_passed'],
    ['total_ms before the first event', { total_ms: 150 }, script(sse200, never), true, 'deadline_passed'],
    [
      'total_ms in a busy stream',
      { total_ms: 700 },
      script(
        sse200,
        times(100, () => [text('x'), wait(50)]),
      ),
      true,
      'deadline_passed',
    ],
    ['total_ms of a whole answer', { total_ms: 150 }, [never], false, 'deadline_passed'],
  ]
  const deadlines = DEADLINES.map(([, timeouts, steps]) =>
    cast.part([steps], { timeouts: { ...allOf(timeouts.total_ms ?? 60_000), ...timeouts } }),
  )

  const SLOW = [
    ['A: a late head', late_head, '42'],
    ['A: a late first token', late_token, '42'],
    ['B: a trickle longer than every limit between tokens', trickle, 'xxxxxxxxxx42'],
    ['C: a pause', pause, 'The answer is 42'],
    ['nothing but comments for longer than the limit between tokens', comments, 'The answer is 42'],
  ] as const

  /** What the openai client makes of a stream. */
  const heard = async (model: string): Promise<string> => {
    const client = new OpenAI({ baseURL: `${cast.house().url}/v1`, apiKey: cast.key(), maxRetries: 0 })
    const messages = [{ role: 'user' as const, content: 'hi' }]
    let said = ''
    for await (const chunk of await client.chat.completions.create({ model, messages, stream: true })) {
      expect(chunk.object).toBe('chat.completion.chunk')
      said += chunk.choices[0]?.delta.content ?? ''
    }
    return said
  }

  /** Begun together: each is slow by nature. */
  let slow: (readonly [Promise<Read>, Promise<string>])[] = []

  beforeAll(async () => {
    await cast.open()
    slow = SLOW.map(([, part]) => [cast.stream(part), heard(part.model)] as const)
  })
  afterAll(cast.close)

  for (const [index, [name, , code]] of BREAKS.entries())
    test(`C04: ${name} in the middle: the text stays, one error event, no [DONE], billed as delivered`, async () => {
      const part = breaks[index]!
      const got = await cast.stream(part)
      expect(got.text()).toBe('The answer is ')
      expect(got.errors()).toHaveLength(1)
      expect(got.errors()[0]).toMatchObject({ code, message: expect.any(String), type: expect.any(String) })
      expect(got.events.at(-1)!.data).toContain('"error"')
      expect(got.finish()).toEqual([])
      expect(got.done).toBe(false)
      expect(got.bytes.includes('sk-house')).toBe(false)
      expect(await cast.row(got.id)).toMatchObject({
        ending: 'cut_by_engine',
        failure: code.startsWith('engine_') ? code : 'engine_failed',
        status: 200,
        attempts: 2,
        usage_source: 'estimated',
        // As the tokenizer has them: The, answer, is, and a space.
        completion_tokens: 4,
        prompt_tokens: 2,
      })
      // Nothing more is expected of it.
      await eventually(() => part.engines[0]!.requests[0]!.state !== 'answering')
      // An engine that breaks off is out for a while: the next call goes elsewhere.
      expect((await cast.stream(part)).text()).toBe('42')
      expect(part.engines[0]!.requests).toHaveLength(1)
    })

  test('C04: a cut before any event is served by the other engine, whole', async () => {
    const got = await cast.stream(before)
    expect(got.text()).toBe('42')
    expect(got.errors()).toEqual([])
    expect(await cast.row(got.id)).toMatchObject({ attempts: 2, ending: 'whole', engine: before.names[1] })
  })

  test('an engine that is cut after its last finish reason had said everything', async () => {
    const got = await cast.stream(after_finish)
    expect(got.done).toBe(true)
    expect(await cast.row(got.id)).toMatchObject({ ending: 'whole', usage_source: 'estimated' })
  })

  for (const [index, [name, part, wanted]] of SLOW.entries()) {
    test(`C12 ${name}: completes`, async () => {
      const got = await slow[index]![0]
      expect(got.text()).toBe(wanted)
      expect(got.done).toBe(true)
      expect(got.errors()).toEqual([])
      expect(got.response.headers.get('x-weir-engine')).toBe(part.names[0]!)
      const row = await cast.row(got.id)
      expect(row).toMatchObject({ ending: 'whole', prompt_tokens: 5, completion_tokens: 2 })
      // Pings stand between events, with one newline, and are no part of the answer that the ledger has hashed.
      if (part !== trickle) expect(got.comments.length).toBeGreaterThan(0)
      expect(got.comments.filter((comment) => comment !== ' ping')).toEqual([])
      expect(got.bytes.toString()).not.toContain(': ping\n\n')
      const answer = got.bytes.toString().replaceAll(': ping\n', '')
      expect(provesAnswer(row, answer)).toBe(true)
    })
    test(`C12 ${name}: the openai client counts no ping as an event`, async () => {
      expect(await slow[index]![1]).toBe(wanted)
    })
  }

  for (const [index, [name, , , stream, code]] of DEADLINES.entries())
    test(`deadline ${name}`, async () => {
      const part = deadlines[index]!
      const began = performance.now()
      const response = await cast.post(part, stream ? { stream: true } : {})
      const said = await response.text()
      expect(said).toContain(`"code":"${code}"`)
      expect(said).not.toContain('[DONE]')
      const delivered = said.includes('"content"')
      // Once the status went out (a ping was due) only an event can tell.
      const told_by_status = !response.headers.get('content-type')!.startsWith('text/event-stream')
      if (told_by_status) expect(response.status).toBe(504)
      expect(performance.now() - began).toBeLessThan(5_000)
      const row = await cast.row(response.headers.get('x-weir-call-id')!)
      expect(row).toMatchObject({ ending: delivered ? 'cut_by_engine' : 'refused', failure: code, attempts: 1 })
      expect((await part.engines[0]!.hangUp(0)).by).toBe('peer')
      const { health } = await cast.health(part.names[0]!)
      expect(health).toBe(code === 'engine_timeout' ? 'cooling' : 'healthy')
    })

  test('a status that went out with a ping: a refusal can only be an event', async () => {
    for (const [part, message] of [
      [late_refusal, 'too long'],
      [late_html, 'down'],
    ] as const) {
      const got = await cast.stream(part)
      expect(got.response.status).toBe(200)
      expect(got.comments).toContain(' ping')
      expect(got.errors()).toHaveLength(1)
      expect(got.errors()[0].message).toContain(message)
      expect(got.done).toBe(false)
      expect(await cast.row(got.id)).toMatchObject({
        ending: 'refused',
        failure: 'engine_refused',
        charge_nanodollars: 0,
      })
    }
  })

  test('a plain answer after a ping goes on as one event, and is billed', async () => {
    const got = await cast.stream(late_whole)
    expect(got.chunks()).toEqual([WHOLE('all', 5, 7)])
    expect(got.done).toBe(true)
    expect(await cast.row(got.id)).toMatchObject({ ending: 'whole', completion_tokens: 7, finish_reason: 'stop' })
  })

  test('after a ping another engine can still take over', async () => {
    const got = await cast.stream(late_other)
    expect(got.text()).toBe('42')
    expect(got.done).toBe(true)
    expect(await cast.row(got.id)).toMatchObject({ attempts: 2, ending: 'whole' })
  })

  test('after a ping a silent engine ends in an error event', async () => {
    const got = await cast.stream(late_silence)
    expect(got.errors()).toMatchObject([{ code: 'engine_timeout' }])
    expect(await cast.row(got.id)).toMatchObject({ ending: 'refused', failure: 'engine_timeout', status: 200 })
  })

  test('nothing stays in flight', async () => {
    expect(await cast.quiet()).toBe(true)
  })
}
