import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { startHouse, type TestHouse } from '../kit/house.ts'
import { eventually } from '../kit/wait.ts'

setDefaultTimeout(60_000)

/** Calls whose clients do not wait: accepted, run at the engine's pace, kept, shown, cancelled. */

const CAPACITY = 4
const SECRET = 'a-secret-of-sixteen-or-more'

/** An engine that says what it was asked, late if asked to, and counts. */
const openEngine = () => {
  const seen = { calls: 0, running: 0, running_max: 0, aborted: 0 }
  const engine = Bun.serve({
    port: 0,
    hostname: '127.0.0.1',
    async fetch(request) {
      if (request.method !== 'POST') return new Response('OK')
      const body = (await request.json()) as { messages: { content: string }[] }
      const said = body.messages[0]!.content
      seen.calls++
      seen.running_max = Math.max(seen.running_max, ++seen.running)
      request.signal.addEventListener('abort', () => void seen.aborted++)
      await Bun.sleep(Number(/sleep (\d+)/.exec(said)?.[1] ?? 5))
      seen.running--
      if (said.includes('refuse')) return Response.json({ error: { message: 'no', code: 'nope' } }, { status: 400 })
      // A number that JSON.parse would spoil, and a space where nobody else puts one.
      const text = `{"id":"c-1","object":"chat.completion", "big":12345678901234567890,"choices":[{"index":0,"message":{"role":"assistant","content":${JSON.stringify(said)}},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`
      return new Response(text, { headers: { 'content-type': 'application/json' } })
    },
  })
  return { url: `http://127.0.0.1:${engine.port}`, seen, stop: () => engine.stop(true) }
}

const ASYNC = { prefer: 'respond-async' }
const chat = (content: string, more: object = {}) => ({ model: 'm', messages: [{ role: 'user', content }], ...more })
type Job = Readonly<Record<string, any>>

let engine: ReturnType<typeof openEngine>
let house: TestHouse
let key: string
let small: string
/** What webhooks were told. */
const told: { path: string; signature: string; body: string }[] = []
let hook: ReturnType<typeof Bun.serve>

beforeAll(async () => {
  engine = openEngine()
  hook = Bun.serve({
    port: 0,
    hostname: '127.0.0.1',
    async fetch(request) {
      const path = new URL(request.url).pathname
      const body = await request.text()
      told.push({ path, signature: request.headers.get('x-weir-signature') ?? '', body })
      // The first time it is not taken.
      const times = told.filter((one) => one.path === path).length
      return new Response('', { status: path === '/late' && times === 1 ? 503 : 204 })
    },
  })
  house = await startHouse({
    workers: 2,
    config: {
      engines: [{ name: 'e', url: `${engine.url}/v1`, capacity: CAPACITY, probe_ms: 0, scrape_ms: 0 }],
      models: [{ name: 'm', targets: [{ engine: 'e' }], price: { input: '1', output: '1' } }],
      jobs: { queue_max: 200, webhook_private: true },
      tenants: [{ name: 'acme', webhook: { secret: SECRET } }, { name: 'small' }],
    },
  })
  key = await house.key('acme')
  small = await house.key('small')
})
afterAll(async () => {
  await house[Symbol.asyncDispose]()
  await engine.stop()
  await hook.stop(true)
})

const show = async (id: string, secret = key): Promise<Job> => {
  const answer = await fetch(`${house.url}/v1/jobs/${id}`, { headers: { authorization: `Bearer ${secret}` } })
  if (answer.status !== 200) throw new Error(`${answer.status} ${await answer.text()}`)
  return (await answer.json()) as Job
}
const accept = async (
  body: object,
  headers: Record<string, string> = {},
  secret = key,
  path = '/v1/chat/completions',
) => {
  const answer = await house.post(path, body, secret, { ...ASYNC, ...headers })
  const json = (await answer.json()) as Job
  expect([answer.status, json]).toEqual([202, expect.objectContaining({ status: 'queued' })])
  expect(answer.headers.get('location')).toBe(`/v1/jobs/${json['id']}`)
  return json
}
const over = (id: string, secret = key): Promise<Job> =>
  eventually(async () => {
    const job = await show(id, secret)
    if (job['status'] === 'queued' || job['status'] === 'running') throw new Error(job['status'])
    return job
  }, 15_000)

describe('a job', () => {
  test('is accepted, runs once, and shows the answer byte for byte', async () => {
    const calls = engine.seen.calls
    const { id } = await accept(chat('one'))
    const done = await over(id)
    expect(done).toMatchObject({ id, object: 'job', status: 'done', attempts: 1, model: 'm', answer_status: 200 })
    const text = await (
      await fetch(`${house.url}/v1/jobs/${id}`, { headers: { authorization: `Bearer ${key}` } })
    ).text()
    expect(text).toContain('"answer":{"id":"c-1","object":"chat.completion", "big":12345678901234567890,')
    expect(engine.seen.calls).toBe(calls + 1)
    const rows = await house.rowsReach(1)
    expect(rows.filter((row) => row['id'] === done['call_id'])).toHaveLength(1)
  })

  test('of /data does not wait for the engines of a model that its body happens to name', async () => {
    const { running_max } = engine.seen
    const calls = Array.from({ length: CAPACITY }, () =>
      house.post('/v1/chat/completions', chat('sleep 2500'), key).then((answer) => answer.text()),
    )
    await eventually(() => expect(engine.seen.running).toBe(CAPACITY))
    const { id, model } = await accept({ model: 'm' }, {}, key, '/data')
    expect(await over(id)).toMatchObject({ status: 'done', answer: { received: { model: 'm' } } })
    expect([model, engine.seen.running]).toEqual([null, CAPACITY])
    await Promise.all(calls)
    engine.seen.running_max = running_max
  })

  test('of /data runs without an engine', async () => {
    const { id } = await accept({ n: 1 }, {}, key, '/data')
    expect((await over(id))['answer']).toEqual({ status: 'success', received: { n: 1 } })
  })

  test('that the engine refuses has failed, with the engine’s error', async () => {
    const { id } = await accept(chat('refuse'))
    expect(await over(id)).toMatchObject({ status: 'failed', answer_status: 400, error: { code: 'nope' } })
  })

  test('is nobody else’s, and its id cannot be made up', async () => {
    const { id } = await accept(chat('mine'))
    const other = await fetch(`${house.url}/v1/jobs/${id}`, { headers: { authorization: `Bearer ${small}` } })
    expect(other.status).toBe(404)
    const offset = Number.parseInt(id.slice(-8), 16)
    const forged = [id.slice(0, -8) + (offset + 8).toString(16).padStart(8, '0'), `${id}0`, 'job_', '../secret']
    for (const one of forged) {
      const answer = await fetch(`${house.url}/v1/jobs/${one}`, { headers: { authorization: `Bearer ${key}` } })
      expect([one, answer.status]).toEqual([one, 404])
    }
    const nobody = await fetch(`${house.url}/v1/jobs/${id}`)
    expect(nobody.status).toBe(401)
    await over(id)
  })

  test('is refused when it could not be answered whole, or has nothing to sign a webhook with', async () => {
    const cases = [
      [chat('x', { stream: true }), key, {}, 'field_invalid', 'stream'],
      [chat('x'), small, { 'x-weir-webhook': 'http://example.com/' }, 'header_invalid', 'x-weir-webhook'],
      [chat('x'), key, { 'x-weir-webhook': 'ftp://example.com/' }, 'header_invalid', 'x-weir-webhook'],
      [{ ...chat('x'), model: 'nope' }, key, {}, 'model_unknown', 'model'],
    ] as const
    for (const [body, secret, headers, code, param] of cases) {
      const answer = await house.post('/v1/chat/completions', body, secret, { ...ASYNC, ...headers })
      expect(((await answer.json()) as Job)['error']).toMatchObject({ code, param })
    }
    // A webhook without a job would never be told anything.
    const hooked = { 'x-weir-webhook': `http://localhost:${hook.port}/never` }
    const answer = await house.post('/v1/chat/completions', chat('x'), key, hooked)
    expect(answer.status).toBe(400)
    expect(((await answer.json()) as Job)['error']).toMatchObject({ code: 'header_invalid', param: 'x-weir-webhook' })
  })

  test('with an Idempotency-Key is one job however often it is sent', async () => {
    const calls = engine.seen.calls
    const first = await accept(chat('idem'), { 'idempotency-key': 'k-1' })
    const again = await house.post('/v1/chat/completions', chat('idem'), key, { ...ASYNC, 'idempotency-key': 'k-1' })
    expect([again.status, again.headers.get('location')]).toEqual([202, `/v1/jobs/${first['id']}`])
    await over(first['id'])
    expect(engine.seen.calls).toBe(calls + 1)
  })
})

describe('a burst', () => {
  test('is accepted whole, never exceeds the engine’s share, is charged once each, and leaves room for others', async () => {
    const calls_before = engine.seen.calls
    engine.seen.running_max = 0
    const jobs = await Promise.all(Array.from({ length: 100 }, (_, nth) => accept(chat(`burst ${nth} sleep 20`))))
    // A client that waits is served while the jobs are worked off.
    const waiting = await house.post('/v1/chat/completions', chat('now'), key)
    expect(waiting.status).toBe(200)
    const ended = await Promise.all(jobs.map(({ id }) => over(id)))
    expect(ended.map((job) => job['status'])).toEqual(jobs.map(() => 'done'))
    expect(ended.map((job) => job['answer'].choices[0].message.content)).toEqual(
      jobs.map((_, nth) => `burst ${nth} sleep 20`),
    )
    expect(engine.seen.running_max).toBeLessThanOrEqual(CAPACITY)
    expect(engine.seen.calls - calls_before).toBe(101)
    const ids = ended.map((job) => job['call_id'] as string)
    await eventually(() => {
      const rows = house.rows().map((row) => row['id'])
      expect(ids.map((id) => rows.filter((row) => row === id).length)).toEqual(ids.map(() => 1))
    }, 5_000)
  })

  test('beyond the queue of a tenant is refused, and the others are not', async () => {
    const answers = await Promise.all(
      Array.from({ length: 230 }, (_, nth) =>
        house.post('/v1/chat/completions', chat(`full ${nth} sleep 100`), small, ASYNC),
      ),
    )
    const taken = answers.filter(({ status }) => status === 202)
    expect(taken.length).toBeGreaterThanOrEqual(200)
    expect(taken.length).toBeLessThan(230)
    const refused = answers.find(({ status }) => status !== 202)!
    expect([refused.status, ((await refused.json()) as Job)['error'].code]).toEqual([429, 'queue_full'])
    expect(refused.headers.get('retry-after')).toBe('5')
    const { id } = await accept(chat('other tenant'))
    expect((await over(id))['status']).toBe('done')
    // They are in the way of the next test.
    for (const answer of taken) {
      const { id: mine } = (await answer.json()) as Job
      await fetch(`${house.url}/v1/jobs/${mine}`, { method: 'DELETE', headers: { authorization: `Bearer ${small}` } })
    }
  })
})

describe('DELETE', () => {
  const cancel = async (id: string) => {
    const answer = await fetch(`${house.url}/v1/jobs/${id}`, {
      method: 'DELETE',
      headers: { authorization: `Bearer ${key}` },
    })
    return [answer.status, (await answer.json()) as Job] as const
  }

  test('of a running job breaks its call off', async () => {
    const aborted = engine.seen.aborted
    const { id } = await accept(chat('long sleep 20000'))
    await eventually(async () => expect((await show(id))['status']).toBe('running'))
    const [status, job] = await cancel(id)
    expect([status, job]).toEqual([202, expect.objectContaining({ status: 'running', cancel_requested: true })])
    expect((await over(id))['status']).toBe('cancelled')
    await eventually(() => expect(engine.seen.aborted).toBe(aborted + 1))
  })

  test('of a waiting job means that it never begins', async () => {
    const long = await Promise.all(Array.from({ length: CAPACITY }, () => accept(chat('block sleep 600'))))
    const { id } = await accept(chat('never'))
    const calls = engine.seen.calls
    const [status, job] = await cancel(id)
    // Both are right: it waits, or the engines had just become free.
    if (status === 200) expect(job['status']).toBe('cancelled')
    for (const one of long) await over(one['id'])
    if (status === 200) expect(engine.seen.calls - calls).toBeLessThanOrEqual(CAPACITY)
    expect((await over(id))['status']).toBe('cancelled')
  })

  test('of a job that is over changes nothing', async () => {
    const { id } = await accept(chat('over'))
    await over(id)
    expect(await cancel(id)).toEqual([200, expect.objectContaining({ status: 'done' })])
  })
})

test('a webhook is signed, tried again, and tells the whole job', async () => {
  const { id } = await accept(chat('hook'), { 'x-weir-webhook': `http://localhost:${hook.port}/late` })
  const mine = await eventually(() => {
    const found = told.filter(({ path }) => path === '/late')
    if (found.length < 2) throw new Error(`${found.length} deliveries`)
    return found[1]!
  }, 10_000)
  const [, seconds, v1] = /^t=(\d+),v1=([0-9a-f]{64})$/.exec(mine.signature)!
  expect(new Bun.CryptoHasher('sha256', SECRET).update(`${seconds}.${mine.body}`).digest('hex')).toBe(v1!)
  expect(JSON.parse(mine.body)).toMatchObject({ id, status: 'done', answer: { id: 'c-1' } })
  await eventually(async () => expect((await show(id))['webhook']).toBe('delivered'))
})
