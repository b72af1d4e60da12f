import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import OpenAI from 'openai'
import { CH, D, DONE, end, json, never, script, type Script, sse200, US, wait, WHOLE } from '../kit/script.ts'
import { connectRaw, requestBytes, type RawClient } from '../kit/raw-client.ts'
import { eventually, forAllAsync } from '../kit/wait.ts'
import { newCast, type Part } from './cast.ts'

setDefaultTimeout(60_000)

/** CASE C13: the client leaves. The engine hears of it at once, no other engine is asked, and the call has one row. */

const cast = newCast({ server: { ping_ms: 400 } })
const text = (content: string) => D(CH({ content }))
const finish = D(CH({}, 'stop'))
const many = (count: number, ms: number): Script =>
  Array.from({ length: count }, () => [text(' word'), wait(ms)]).flat()
const long = [...many(200, 20), finish, D(US(20, 200)), DONE, end]
const drain = { engine: { on_disconnect: 'drain' } }

const streamed = cast.part([script(sse200, long)])
const silent = cast.part([script(sse200, text('a'), never)])
const headless = cast.part([[never]])
const tokenless = cast.part([script(sse200, never)])
const pinged = cast.part([[never]])
const whole = cast.part([script(wait(10_000), json(200, WHOLE('late', 5, 1)))])
const whole_began = cast.part([script(json(200, WHOLE('late', 5, 1)).slice(0, 1), never)])
const refuses = cast.part([script(wait(500), json(503, { error: { message: 'no' } })), json(200, WHOLE('never', 5, 1))])
const drained = cast.part([script(sse200, many(40, 10), finish, D(US(20, 40)), DONE, end)], drain)
const drained_whole = cast.part([script(wait(600), json(200, WHOLE('late', 5, 9)))], drain)
const drained_early = cast.part([script(wait(300), sse200, many(10, 10), finish, D(US(20, 10)), DONE, end)], drain)
const drained_refused = cast.part([script(wait(300), json(503, {})), json(200, WHOLE('never', 5, 1))], drain)
const drained_cut = cast.part([script(sse200, many(20, 10), never)], { ...drain, timeouts: { between_tokens_ms: 400 } })
const drained_hedged = cast.part([[never], script(wait(800), sse200, long)], {
  engines: [drain.engine],
  hedge_ms: 100,
})
const aborted = cast.part([script(sse200, long)])
const aborted_whole = cast.part([[never]])
const broken_loop = cast.part([script(sse200, long)])
const any_moment = cast.part([script(sse200, many(4, 5), finish, D(US(20, 4)), DONE, end)])

beforeAll(cast.open)
afterAll(cast.close)

/** Sends a request on a connection of its own and leaves when told. */
const begin = async (part: Part, stream: boolean): Promise<RawClient> => {
  const client = await connectRaw(cast.house().port)
  const body = { model: part.model, stream, messages: [{ role: 'user', content: 'hi' }] }
  await client.send(requestBytes('POST', '/v1/chat/completions', { authorization: `Bearer ${cast.key()}` }, body))
  return client
}

const LEAVING = { closes: (client: RawClient) => client.close(), resets: (client: RawClient) => client.reset() }
/** When it leaves: the name, the model, streamed, and what must be in before. */
const MOMENTS = [
  ['in the middle of a stream', streamed, true, 'data: '],
  ['while the stream is silent', silent, true, 'data: '],
  ['before the head', headless, true, ''],
  ['before the first token', tokenless, true, ''],
  ['after a ping, before the head', pinged, true, ': ping'],
  ['while a whole answer is made', whole, false, ''],
  ['while a whole answer is sent', whole_began, false, ''],
] as const

describe('the client leaves', () => {
  for (const [name, part, stream, until] of MOMENTS)
    for (const [how, leave] of Object.entries(LEAVING))
      test(`${name} (${how}): the engine is told, one row, estimated`, async () => {
        const engine = part.engines[0]!
        const index = engine.requests.length
        using client = await begin(part, stream)
        await engine.request(index)
        await eventually(() => client.unread().includes(until), 3_000)
        await Bun.sleep(50)
        const left_at_ms = performance.now()
        leave(client)
        const gone = await engine.hangUp(index)
        expect(gone.at_ms - left_at_ms).toBeLessThan(1_000)
        const rows = await cast.rowsOf(part, index + 1)
        const row = rows.at(-1)!
        expect(row).toMatchObject({
          ending: 'cut_by_client',
          failure: 'client_gone',
          usage_source: 'estimated',
          prompt_tokens: 2,
          attempts: 1,
          status: until === '' ? 499 : 200,
        })
        // What was delivered is billed, and not more.
        const events = client.unread().toString().split('data: ').length - 1
        expect(Math.abs((row['completion_tokens'] as number) - events)).toBeLessThanOrEqual(5)
        await cast.quiet()
        expect(await cast.health(part.names[0]!)).toMatchObject({ health: 'healthy', failures_in_a_row: 0 })
      })

  test('while the first engine fails: no other is asked', async () => {
    using client = await begin(refuses, false)
    await refuses.engines[0]!.request(0)
    await Bun.sleep(200)
    client.close()
    await refuses.engines[0]!.hangUp(0)
    expect(await cast.rowsOf(refuses, 1)).toMatchObject([{ ending: 'cut_by_client', attempts: 1 }])
    await Bun.sleep(600)
    expect(refuses.engines[1]!.requests).toHaveLength(0)
  })

  test('at any moment, also with the last bytes: one row each, nothing left over', async () => {
    await forAllAsync(30, async (roll) => {
      using client = await begin(any_moment, true)
      await Bun.sleep(roll(45))
      if (roll(2)) client.close()
      else client.reset()
    })
    const rows = await cast.rowsAfter(any_moment)
    // Whoever left before the house had read the request never made a call.
    expect(rows.length).toBeLessThanOrEqual(30)
    expect(new Set(rows.map(({ id }) => id)).size).toBe(rows.length)
    expect(rows.filter(({ ending }) => ending !== 'whole' && ending !== 'cut_by_client')).toEqual([])
  })
})

describe('the openai client', () => {
  const messages = [{ role: 'user' as const, content: 'hi' }]
  const client = () => new OpenAI({ baseURL: `${cast.house().url}/v1`, apiKey: cast.key(), maxRetries: 0 })
  const told = async (part: Part) => {
    expect((await part.engines[0]!.hangUp(0)).by).toBe('peer')
    expect(await cast.rowsOf(part, 1)).toMatchObject([{ ending: 'cut_by_client', usage_source: 'estimated' }])
    expect(part.engines[0]!.requests).toHaveLength(1)
  }

  test('aborts a stream', async () => {
    const abort = new AbortController()
    const stream = await client().chat.completions.create(
      { model: aborted.model, messages, stream: true },
      { signal: abort.signal },
    )
    let chunks = 0
    for await (const _chunk of stream) if (++chunks === 5) abort.abort()
    expect(chunks).toBeGreaterThanOrEqual(5)
    await told(aborted)
  })

  test('leaves the loop over a stream', async () => {
    for await (const _chunk of await client().chat.completions.create({
      model: broken_loop.model,
      messages,
      stream: true,
    }))
      break
    await told(broken_loop)
  })

  test('aborts a call that is not streamed', async () => {
    const abort = new AbortController()
    const call = client().chat.completions.create({ model: aborted_whole.model, messages }, { signal: abort.signal })
    await aborted_whole.engines[0]!.request(0)
    abort.abort()
    expect(await call.catch((error: unknown) => error)).toBeInstanceOf(OpenAI.APIUserAbortError)
    await told(aborted_whole)
  })
})

describe('on_disconnect: drain', () => {
  const leaves = async (part: Part, stream: boolean, until: string) => {
    using client = await begin(part, stream)
    await part.engines[0]!.request(0)
    await eventually(() => client.unread().includes(until))
    client.close()
    const [row] = await cast.rowsOf(part, 1)
    return { row: row!, request: part.engines[0]!.requests[0]! }
  }

  for (const [name, part, stream, until, tokens] of [
    ['a stream', drained, true, 'data: ', 40],
    ['a stream that has not begun', drained_early, true, '', 10],
    ['a whole answer', drained_whole, false, '', 9],
  ] as const)
    test(`${name} is read to its end and billed whole`, async () => {
      const { row, request } = await leaves(part, stream, until)
      expect(row).toMatchObject({
        ending: 'cut_by_client',
        usage_source: 'engine',
        completion_tokens: tokens,
        status: 200,
      })
      expect(request.state).toBe('answered')
      expect(request.hang_up).toBeUndefined()
    })

  test('an engine that fails then is the end of it', async () => {
    const { row } = await leaves(drained_refused, false, '')
    expect(row).toMatchObject({ ending: 'cut_by_client', attempts: 1, failure: 'client_gone' })
    expect(drained_refused.engines[1]!.requests).toHaveLength(0)
  })

  test('another engine that begins to answer then, and does not drain, is told to stop', async () => {
    const { row } = await leaves(drained_hedged, true, ': ping')
    expect(row).toMatchObject({ ending: 'cut_by_client', engine: drained_hedged.names[1]!, attempts: 2 })
    expect(Number(row['completion_tokens'])).toBeLessThan(20)
    for (const engine of drained_hedged.engines) expect((await engine.hangUp(0)).by).toBe('peer')
  })

  test('an engine that falls silent then is given up at its limit', async () => {
    const { row, request } = await leaves(drained_cut, true, 'data: ')
    expect(row).toMatchObject({ ending: 'cut_by_client', usage_source: 'estimated', completion_tokens: 20 })
    expect(request.state).toBe('client_left')
  })
})

test('nothing stays in flight', async () => {
  expect(await cast.quiet()).toBe(true)
})
