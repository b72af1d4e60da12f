import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { startHostileEngine } from '../kit/hostile-engine.ts'
import {
  body,
  CH,
  cut,
  D,
  DONE,
  end,
  json,
  never,
  raw,
  script,
  type Script,
  sse200,
  US,
  wait,
  WHOLE,
} from '../kit/script.ts'
import { freePort } from '../kit/wait.ts'
import { newCast, type Over, type Part, type PartSettings } from './cast.ts'

/**
 * Faults of engines that end well for the client, those that are a course of calls or of one answer. Faults before the
 * first byte stand in failover.test.ts, ways to break off in continue.test.ts.
 */
export const faultsOver = (over: Over): void => {
  const cast = newCast({ over })
  const good_stream = script(sse200, D(CH({ content: 'good' })), D(CH({}, 'stop')), D(US(5, 1)), DONE, end)
  const answers = (answer: (asked: { stream?: boolean; [name: string]: unknown }) => Script) => ({
    answers: (request: { json(): any }) => answer(request.json()),
  })
  const good = answers(({ stream }) => (stream ? good_stream : json(200, WHOLE('good', 5, 1))))
  const says = (status: number, headers: Record<string, string> = {}, more: object = {}) =>
    json(status, { error: { message: `says ${status}`, type: 'x', code: status, ...more } }, headers)
  /** An engine that fails once and is well from then on. */
  const once = (fault: Script) => {
    let calls = 0
    return answers(({ stream }) => (calls++ === 0 ? fault : stream ? good_stream : json(200, WHOLE('good', 5, 1))))
  }

  const limited_once = cast.part([once(says(429, { 'retry-after': '2' })), good])
  const limited = cast.part([says(429), good])
  const broken_once = [false, true].map((stream) => ({ stream, part: cast.part([once(says(500)), good]) }))
  const down = cast.part([says(503), good])

  const short: PartSettings = {
    timeouts: { first_token_ms: 400, first_byte_ms: 2_000, connect_ms: 500, between_tokens_ms: 600 },
  }
  const late_token = cast.part([script(sse200, wait(1_500), D(CH({ content: 'late' })), DONE, end), good], short)

  const TOKENS = Array.from({ length: 60 }, (_, n) => `t${n} `)
  const tokens = (from: number, to: number) => TOKENS.slice(from, to).map((content) => D(CH({ content })))
  const closing = [D(CH({}, 'stop')), D(US(5, 60)), DONE, end]
  /** An engine that goes on from whatever text it is given. */
  const goes_on = answers(({ messages }) => {
    const last = (messages as { role: string; content: string }[]).at(-1)!
    const had = last.role === 'assistant' ? last.content.trim().split(' ').length : 0
    return script(sse200, D(CH({ role: 'assistant', content: '' })), tokens(had, 60), closing)
  })
  const able: PartSettings = { ...short, engine: { can: ['prefix_continuation'] } }
  const cut_at_40 = script(sse200, tokens(0, 40), wait(30), cut)
  const silent_at_20 = script(sse200, tokens(0, 20), never)
  const no_prefill = answers(({ continue_final_message }) =>
    continue_final_message ? says(400) : script(sse200, tokens(0, 60), closing),
  )
  const BREAKS = [
    ['cut after 40 of 60 tokens', cast.part([cut_at_40, goes_on], able), 2],
    ['cut after 40 of 60 tokens, by a replay', cast.part([cut_at_40, goes_on], short), 2],
    ['silent after 20 of 60 tokens', cast.part([silent_at_20, goes_on], able), 2],
    ['silent after 20 of 60 tokens, by a replay', cast.part([silent_at_20, goes_on], short), 2],
    ['cut after 40 of 60 tokens, and the next refuses the text so far', cast.part([cut_at_40, no_prefill], able), 3],
  ] as const
  const malformed = cast.part([script(sse200, tokens(0, 30), body('data: {"choices":[{\n\n'), tokens(30, 60), closing)])
  const no_done = cast.part([script(sse200, tokens(0, 60), D(CH({}, 'stop')), D(US(5, 60)), end)])

  const too_long = says(400, {}, { message: 'maximum context length is 100 tokens', code: 'context_length_exceeded' })
  const too_long_first = script(
    sse200,
    D({ error: { message: 'maximum context length is 100 tokens', code: 400 } }),
    end,
  )
  const large = cast.part([good], { engine_model: 'm-large', target: { context_tokens: 100_000 } })
  const small = cast.part([too_long, good], { fallbacks: [large.model] })
  const small_stream = cast.part([too_long_first, good], { fallbacks: [large.model] })
  const filtered = cast.part([says(400, {}, { message: 'filtered', code: 'content_filter' }), good])

  const cheap = cast.part([good], { engine_model: 'm-cheap' })
  const dear = cast.part([says(500)], { engine_model: 'm-dear', fallbacks: [cheap.model] })

  const second = json(200, WHOLE('of another', 900, 900))
  const bytesOf = (steps: Script) => steps.flatMap((step) => ('bytes' in step ? [raw(step.bytes)] : []))
  const unasked = cast.part([
    { answers: [[...json(200, WHOLE('mine', 5, 1)), ...bytesOf(second)], json(200, WHOLE('mine too', 5, 1))] },
  ])
  const unasked_late = cast.part([
    {
      answers: [[...json(200, WHOLE('mine', 5, 1)), wait(100), ...bytesOf(second)], json(200, WHOLE('mine too', 5, 1))],
    },
  ])

  const away_port = freePort()
  const away = cast.part([good], { urls: [`${over}://127.0.0.1:${away_port}/v1`] })

  /** The courses of calls begin together: each takes seconds. */
  let limited_course: ReturnType<typeof course>
  let down_course: ReturnType<typeof course>
  let away_course: ReturnType<typeof awayForAWhile>
  beforeAll(async () => {
    await cast.open()
    limited_course = course(limited, 3_000, 100)
    down_course = course(down, 3_000, 100)
    away_course = awayForAWhile()
  })
  afterAll(cast.close)

  const call = async (part: Part, stream = false) => {
    const response = await cast.post(part, stream ? { stream: true } : {})
    const said = await response.text()
    return { response, said, id: response.headers.get('x-weir-call-id')! }
  }
  const asked = (part: Part) => part.engines.map((engine) => engine.requests.length)
  /** A call every so often, for so long: the answers. */
  const course = async (part: Part, ms: number, every_ms: number) => {
    const got: { status: number; engine: string | null }[] = []
    for (const until = performance.now() + ms; performance.now() < until; await Bun.sleep(every_ms)) {
      const { response, said } = await call(part, got.length % 2 === 1)
      expect(said).toContain('good')
      got.push({ status: response.status, engine: response.headers.get('x-weir-engine') })
    }
    return got
  }

  /** The first engine is not there; then it is. Two benches pass, of two and of four seconds. */
  const awayForAWhile = async () => {
    const first = await course(away, 4_500, 300)
    await using back = startHostileEngine({ ...good, port: away_port, tls: over === 'https' })
    const later = await course(away, 2_500, 100)
    return { first, later, asked: back.requests.length }
  }

  describe('an engine that refuses or fails', () => {
    test('429 with Retry-After: 2, once: another answers, and after two seconds it is back', async () => {
      expect((await call(limited_once)).said).toContain('good')
      expect((await call(limited_once, true)).said).toContain('good')
      expect(asked(limited_once)).toEqual([1, 2])
      await Bun.sleep(2_050)
      await call(limited_once)
      expect(asked(limited_once)).toEqual([2, 2])
    })

    for (const [name, part, calls] of [
      ['429 for ever without Retry-After', limited, () => limited_course],
      ['503 for ever', down, () => down_course],
    ] as const)
      test(`${name}: every call is answered, and the engine is asked at most four times in three seconds`, async () => {
        const got = await calls()
        expect(got.filter(({ status, engine }) => status !== 200 || engine !== part.names[1])).toEqual([])
        expect(asked(part)[0]).toBeLessThanOrEqual(4)
      })

    for (const { stream, part } of broken_once)
      test(`500 once (${stream ? 'stream' : 'whole'})`, async () => {
        const { response, said } = await call(part, stream)
        expect([response.status, asked(part)[0]]).toEqual([200, 1])
        expect(said).toContain('good')
      })

    test('away for a while: every call is answered, few tries, and it is used again once it is back', async () => {
      const { first, later, asked } = await away_course
      expect(first.filter(({ engine }) => engine !== away.names[1])).toEqual([])
      expect(later.at(-1)!.engine).toBe(away.names[0]!)
      expect(asked).toBeGreaterThan(0)
      const tries = cast
        .house()
        .logged('engine_failed')
        .filter(({ engine }) => engine === away.names[0])
      expect(tries.length).toBeLessThanOrEqual(3)
    })
  })

  test('headers at once, and the first token after the limit for it: another answers', async () => {
    const { said } = await call(late_token, true)
    expect(said).toContain('good')
    expect(said).not.toContain('late')
    expect(asked(late_token)).toEqual([1, 1])
  })

  for (const [name, part, attempts] of BREAKS)
    test(`a stream ${name}: the client has all sixty, and pays for sixty`, async () => {
      const got = await cast.stream(part)
      expect(got.text()).toBe(TOKENS.join(''))
      expect([got.done, got.errors(), got.finish()]).toEqual([true, [], ['stop']])
      expect(await cast.row(got.id)).toMatchObject({ ending: 'whole', attempts, engine: part.names[1] })
      expect(part.engines[0]!.requests).toHaveLength(1)
    })

  test('one event that is not JSON: the client has everything else', async () => {
    const got = await cast.stream(malformed)
    expect([got.text(), got.done, got.errors()]).toEqual([TOKENS.join(''), true, []])
    expect(await cast.row(got.id)).toMatchObject({ ending: 'whole', completion_tokens: 60, attempts: 1 })
  })

  test('a whole stream without [DONE]: the client gets one', async () => {
    const got = await cast.stream(no_done)
    expect([got.text(), got.done, got.errors()]).toEqual([TOKENS.join(''), true, []])
    expect(await cast.row(got.id)).toMatchObject({ ending: 'whole', completion_tokens: 60, attempts: 1 })
  })

  describe('a refusal of the request itself', () => {
    for (const [name, part, stream] of [
      ['in the status', small, false],
      ['in the first event', small_stream, true],
    ] as const)
      test(`a context that is too long (${name}): the larger model answers, and the same one is not asked again`, async () => {
        const { response, said, id } = await call(part, stream)
        expect(response.status).toBe(200)
        expect(said).toContain('good')
        expect(response.headers.get('x-weir-model')).toBe('m-large')
        expect(asked(part)).toEqual([1, 0])
        expect(await cast.row(id)).toMatchObject({ attempts: 2, engine: large.names[0], engine_model: 'm-large' })
        expect(await cast.health(part.names[0]!)).toMatchObject({ health: 'healthy' })
      })

    test('a content filter: passed on, and routed around by nobody', async () => {
      const { response, said, id } = await call(filtered)
      expect(response.status).toBe(400)
      expect(said).toContain('content_filter')
      expect(asked(filtered)).toEqual([1, 0])
      expect(await cast.row(id)).toMatchObject({ attempts: 1, charge_nanodollars: 0 })
    })
  })

  test('a failover names the model that answered, and bills it alone', async () => {
    const { response, id } = await call(dear)
    expect(response.headers.get('x-weir-model')).toBe('m-cheap')
    expect(response.headers.get('x-weir-engine')).toBe(cheap.names[0]!)
    expect(await cast.row(id)).toMatchObject({ engine_model: 'm-cheap', prompt_tokens: 5, completion_tokens: 1 })
  })

  for (const [name, part] of [
    ['at once', unasked],
    ['later', unasked_late],
  ] as const)
    test(`a second answer that nobody asked for, ${name}: the next call gets its own`, async () => {
      expect(JSON.parse((await call(part)).said).choices[0].message.content).toBe('mine')
      await Bun.sleep(200)
      const next = await call(part)
      expect(JSON.parse(next.said).choices[0].message.content).toBe('mine too')
      expect(await cast.row(next.id)).toMatchObject({ prompt_tokens: 5, completion_tokens: 1 })
    })

  test('nothing stays in flight', async () => {
    expect(await cast.quiet()).toBe(true)
  })
}
