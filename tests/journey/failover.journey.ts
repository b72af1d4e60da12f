import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { eventually, freePort } from '../kit/wait.ts'
import {
  body,
  CH,
  cut,
  D,
  DONE,
  end,
  forever,
  head,
  json,
  never,
  raw,
  redirect,
  rst,
  script,
  type Script,
  sse200,
  US,
  WHOLE,
} from '../kit/script.ts'
import { newCast, type Over, type Part, type PartSettings } from './cast.ts'

/** CASES C24, C23 B and D, C04 B: what is left to another engine, what is final, and what each does to an engine's record. */
export const failoverOver = (over: Over): void => {
  const cast = newCast({ over })
  const good_stream = script(sse200, D(CH({ content: 'good' })), D(CH({}, 'stop')), D(US(5, 1)), DONE, end)
  const good: Parameters<typeof cast.part>[0][number] = {
    answers: (request) => (request.json().stream ? good_stream : json(200, WHOLE('good', 5, 1))),
  }
  const errorOf = (status: number, message: string) => json(status, { error: { message, type: 'x', code: status } })

  /** By status: whether another engine is asked, and the first one's record afterwards. */
  const STATUSES = [
    [500, true, 'cooling'],
    [502, true, 'cooling'],
    [503, true, 'cooling'],
    [504, true, 'cooling'],
    [429, true, 'cooling'],
    [401, true, 'cooling'],
    [403, true, 'cooling'],
    [408, true, 'healthy'],
    [404, true, 'healthy'],
    [400, false, 'healthy'],
    [413, false, 'healthy'],
    [422, false, 'healthy'],
  ] as const
  const by_status = STATUSES.map(([status]) => cast.part([errorOf(status, `says ${status}`), good]))
  const by_status_alone = STATUSES.map(([status]) => cast.part([errorOf(status, `says ${status}`)]))

  const short: PartSettings = {
    timeouts: { first_byte_ms: 450, first_token_ms: 450, between_tokens_ms: 450, connect_ms: 500 },
  }
  const headed = (...steps: Script) => script(sse200, steps)
  /** Ways of a first engine to fail before the client got anything; the second one answers. Name, script, failure if alone. */
  const STREAM_FAULTS: readonly (readonly [name: string, script: Script, failure: string])[] = [
    ['closes at once', [cut], 'engine_failed'],
    ['resets', [rst], 'engine_failed'],
    ['says nothing', [never], 'engine_timeout'],
    ['sends headers and no token', headed(never), 'engine_timeout'],
    [
      'sends headers and only comments',
      script(head(200, { 'content-type': 'text/event-stream' }, 'close'), forever(': wait\n\n', 50)),
      'engine_timeout',
    ],
    ['cuts before the first event', headed(cut), 'engine_cut'],
    ['ends before the first event', headed(end), 'engine_cut'],
    ['cuts inside the first event', headed(body('data: {"id":"chat'), cut), 'engine_cut'],
    ['has only an event that is not JSON', headed(D('oops'), end), 'engine_invalid'],
    [
      'has an error as its first event',
      headed(D({ error: { message: 'out of memory', code: 500 } }), end),
      'engine_refused',
    ],
    [
      'has an error as its first event, and no end',
      headed(D({ error: { message: 'm', code: 500 } }), never),
      'engine_refused',
    ],
    [
      'has an error event of a name',
      headed(body('event: error\ndata: {"message":"broken"}\n\n'), end),
      'engine_refused',
    ],
    [
      'answers a JSON error with 200',
      json(200, { error: { message: 'busy', type: 'server_error' } }),
      'engine_refused',
    ],
    [
      'compresses unasked',
      script(head(200, { 'content-type': 'text/event-stream', 'content-encoding': 'gzip' }), body('xx'), end),
      'engine_invalid',
    ],
    ['redirects', redirect(307, 'http://127.0.0.1:1/elsewhere'), 'engine_failed'],
    ['is no HTTP', [raw('SSH-2.0-OpenSSH\r\n\r\n'), cut], 'engine_invalid'],
    ['has an endless header', [raw('HTTP/1.1 200 OK\r\nx-a: '), forever('a'.repeat(4096))], 'engine_invalid'],
  ]
  const WHOLE_FAULTS: readonly (readonly [name: string, script: Script, failure: string])[] = [
    ['closes at once', [cut], 'engine_failed'],
    ['says nothing', [never], 'engine_timeout'],
    [
      'stops in its answer',
      script(head(200, { 'content-type': 'application/json' }), body('{"id":'), never),
      'engine_timeout',
    ],
    ['sends half a JSON body', json(200, '{"id":"chatcmpl-t1","choices":[{'), 'engine_invalid'],
    [
      'promises more than it sends',
      script(
        head(200, { 'content-type': 'application/json', 'content-length': '9999' }, 'length'),
        body('{"id":1}'),
        cut,
      ),
      'engine_cut',
    ],
    [
      'cuts a chunked answer',
      script(head(200, { 'content-type': 'application/json' }), body('{"id":1}'), cut),
      'engine_cut',
    ],
    ['answers HTML', json(200, '<html>', { 'content-type': 'text/html' }), 'engine_invalid'],
    ['answers nothing', json(200, ''), 'engine_invalid'],
    ['answers an error with 200', json(200, { object: 'error', message: 'CUDA error', code: 500 }), 'engine_refused'],
    ['redirects', redirect(302, 'http://127.0.0.1:1/elsewhere'), 'engine_failed'],
  ]
  const FAULTS = [
    ...STREAM_FAULTS.map(([name, steps, failure]) => ({ name: `stream: ${name}`, steps, failure, stream: true })),
    ...WHOLE_FAULTS.map(([name, steps, failure]) => ({ name: `whole: ${name}`, steps, failure, stream: false })),
  ].map((fault) => ({ ...fault, both: cast.part([fault.steps, good], short), alone: cast.part([fault.steps], short) }))

  const refused = cast.part([good], { ...short, urls: [`${over}://127.0.0.1:${freePort()}/v1`] })
  const refused_alone = cast.part([], { ...short, urls: [`${over}://127.0.0.1:${freePort()}/v1`] })
  const context = cast.part([
    json(400, { error: { message: 'maximum context length is 8192 tokens', code: 400 } }),
    good,
  ])
  const hint = cast.part([json(429, { error: { message: 'slow down' } }, { 'retry-after': '30' })])
  const long_hint = cast.part([json(429, { error: { message: 'slow down' } }, { 'retry-after': '3600' })])
  const no_hint = cast.part([json(429, { error: { message: 'slow down' } })])
  const context_in_stream = cast.part([
    headed(D({ error: { message: 'maximum context length', type: 'BadRequestError', code: 400 } }), end),
    good,
  ])
  const key_in_stream = cast.part([headed(D({ error: { message: 'no such key sk-house', code: 401 } }), end)])
  const odd_code = cast.part([json(200, { error: { message: 'm', code: 7 } })])
  const html_error = cast.part([json(500, '<html><h1>Bad gateway</h1>', { 'content-type': 'text/html' })])
  const slow_error = cast.part([script(head(500, { 'content-type': 'application/json' }), body('{"err'), never), good])
  const four = cast.part([[cut], [cut], [cut], [cut]], short)

  beforeAll(cast.open)
  afterAll(cast.close)

  const call = async (part: Part, stream = false) => {
    const response = await cast.post(part, stream ? { stream: true } : {})
    const said = await response.text()
    return { response, said, row: await cast.row(response.headers.get('x-weir-call-id')!) }
  }
  const asked = (part: Part) => part.engines.map((engine) => engine.requests.length)

  describe('C24: a status of the first engine', () => {
    for (const [index, [status, moves, health]] of STATUSES.entries())
      test(`${status} ${moves ? 'is left to another engine' : 'is final'}`, async () => {
        const part = by_status[index]!
        const { response, said, row } = await call(part)
        expect(asked(part)).toEqual([1, moves ? 1 : 0])
        expect(response.status).toBe(moves ? 200 : status)
        expect(said).toContain(moves ? 'good' : `says ${status}`)
        expect(row).toMatchObject({
          attempts: moves ? 2 : 1,
          ending: moves ? 'whole' : 'refused',
          status: moves ? 200 : status,
          engine: part.names[moves ? 1 : 0],
        })
        expect(await cast.health(part.names[0]!)).toMatchObject({ health })
        await call(part)
        expect(asked(part)[0]).toBe(health === 'healthy' ? 2 : 1)
      })

    for (const [index, [status]] of STATUSES.entries())
      test(`${status} of the only engine is what the client sees`, async () => {
        const { response, said, row } = await call(by_status_alone[index]!)
        const credential = status === 401 || status === 403
        expect(response.status).toBe(credential ? 502 : status)
        const error = JSON.parse(said).error
        expect(error).toMatchObject(credential ? { code: 'engine_credential' } : { message: `says ${status}` })
        expect(response.headers.get('www-authenticate')).toBeNull()
        expect(response.headers.has('retry-after')).toBe(status === 429 || status === 503)
        expect(row).toMatchObject({ attempts: 1, status: response.status, charge_nanodollars: 0, completion_tokens: 0 })
      })

    test('a refused credential is alarmed', () => {
      const alarmed = cast.house().logged('engine_refuses_our_credential')
      expect(alarmed.length).toBeGreaterThanOrEqual(4)
      expect(alarmed[0]).toMatchObject({ level: 'error' })
    })
  })

  describe('before the client got anything', () => {
    for (const { name, both, alone, stream, failure } of FAULTS) {
      test(`${name}: another engine answers`, async () => {
        const { response, said, row } = await call(both, stream)
        expect(response.status).toBe(200)
        expect(said).toContain('good')
        expect(said).not.toContain('error')
        if (stream) expect(said).toContain('[DONE]')
        else expect(JSON.parse(said).choices[0].message.content).toBe('good')
        expect(asked(both)).toEqual([1, 1])
        expect(row).toMatchObject({ attempts: 2, ending: 'whole', engine: both.names[1], completion_tokens: 1 })
        expect(await cast.health(both.names[0]!)).toMatchObject({ health: 'cooling', failures_in_a_row: 1 })
        // A request that was given up is given up at the engine as well.
        await eventually(() => both.engines[0]!.requests[0]!.state !== 'answering')
      })
      test(`${name}: alone, the client is told so`, async () => {
        const { response, said, row } = await call(alone, stream)
        expect(response.status).toBeGreaterThanOrEqual(500)
        expect(JSON.parse(said).error).toBeDefined()
        expect(row).toMatchObject({ attempts: 1, ending: 'refused', failure, charge_nanodollars: 0 })
      })
    }

    test('nobody listens: another engine answers', async () => {
      const { response, row } = await call(refused)
      expect(response.status).toBe(200)
      expect(row).toMatchObject({ attempts: 2 })
      const alone = await call(refused_alone)
      expect(alone.response.status).toBe(502)
      expect(JSON.parse(alone.said).error.code).toBe('engine_unreachable')
    })

    test('no more than three engines are asked', async () => {
      const { response, row } = await call(four)
      expect(response.status).toBe(502)
      expect(row).toMatchObject({ attempts: 3 })
      expect(four.engines.map((engine) => engine.requests.length).toSorted()).toEqual([0, 1, 1, 1])
    })

    test('an error whose body never ends does not hold the next engine up', async () => {
      const { response, row } = await call(slow_error)
      expect(response.status).toBe(200)
      expect(row).toMatchObject({ attempts: 2 })
      expect(row['total_ms']).toBeLessThan(10_000)
    })
  })

  describe('what is passed on', () => {
    for (const [name, part, stream] of [
      ['in the status', context, false],
      ['in the first event', context_in_stream, true],
    ] as const)
      test(`a context that is too long (${name}): 400, one attempt, the message kept`, async () => {
        const { response, said, row } = await call(part, stream)
        expect(response.status).toBe(400)
        expect(said).toContain('maximum context length')
        expect(asked(part)).toEqual([1, 0])
        expect(row).toMatchObject({ attempts: 1, status: 400, ending: 'refused' })
        await call(part, stream)
        expect(asked(part)).toEqual([2, 0])
      })

    for (const [name, part, seconds] of [
      ['its own advice', hint, '30'],
      ['its own advice, however long', long_hint, '3600'],
      ['the time of the bench', no_hint, '2'],
    ] as const)
      test(`C23: a 429 goes on with ${name}`, async () => {
        const { response } = await call(part)
        expect(response.status).toBe(429)
        expect(response.headers.get('retry-after')).toBe(seconds)
      })

    test('a refused credential in the first event is not shown', async () => {
      const { response, said } = await call(key_in_stream, true)
      expect(response.status).toBe(502)
      expect(JSON.parse(said).error.code).toBe('engine_credential')
      expect(said).not.toContain('sk-house')
    })

    test('an error code that is no status is a 502', async () => {
      expect((await call(odd_code)).response.status).toBe(502)
    })

    test('an error that is no JSON becomes the message of one', async () => {
      const { response, said } = await call(html_error)
      expect(response.status).toBe(500)
      expect(response.headers.get('content-type')).toBe('application/json')
      expect(JSON.parse(said).error.message).toContain('Bad gateway')
    })
  })

  test('nothing stays in flight', async () => {
    expect(await cast.quiet()).toBe(true)
  })
}
