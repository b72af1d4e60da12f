import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import OpenAI from 'openai'
import { startHostileEngine, type HostileEngine } from '../kit/hostile-engine.ts'
import { startHouse, type HouseSettings, type TestHouse } from '../kit/house.ts'
import { connectRaw, requestBytes } from '../kit/raw-client.ts'
import { CH, D, DONE, end, json, never, script, type Script, sse200, US, wait, WHOLE } from '../kit/script.ts'
import { eventually, gate } from '../kit/wait.ts'

// The preloaded default holds for the first file of a run only.
setDefaultTimeout(60_000)

/** Idempotency-Key over real houses: one answer, one charge, whatever happens between. */

let nth = 0
const engines: Record<string, HostileEngine> = {}
const gates = { slow: gate() }
const texts = (count: number): Script => Array.from({ length: count }, (_, at) => D(CH({ content: `piece ${at} ` })))
const until = (opened: Promise<void>) => ({ do: 'until', opened }) as const

/** Each answer says how often its engine was asked. */
const SCRIPTS: Readonly<Record<string, () => Script>> = {
  whole: () => json(200, WHOLE(`answer ${nth++}`, 20, 5)),
  stream: () => script(sse200, texts(40), D(CH({ content: `${nth++}` }, 'stop')), D(US(20, 41)), DONE, end),
  slow: () => script(until(gates.slow.opened), json(200, WHOLE(`answer ${nth++}`, 20, 5))),
  large: () => json(200, WHOLE('x'.repeat(10_000), 20, 5)),
  large_stream: () => script(sse200, D(CH({ content: 'y'.repeat(10_000) }, 'stop')), D(US(20, 1)), DONE, end),
  bad: () => json(400, { error: { message: `no ${nth++}`, type: 'invalid_request_error', param: null, code: null } }),
  busy: () => (nth++ % 2 === 0 ? json(429, { error: { message: 'busy' } }) : json(200, WHOLE('later', 20, 5))),
  broken: () => (nth++ % 2 === 0 ? json(500, { error: { message: 'no' } }) : json(200, WHOLE('later', 20, 5))),
  cut: () => (nth++ % 2 === 0 ? script(sse200, texts(2), { do: 'cut' }) : json(200, WHOLE('later', 20, 5))),
  hangs: () => script(sse200, texts(3), never),
  leaves: () => script(wait(300), json(200, WHOLE(`late ${nth++}`, 20, 5))),
}

const settings = (): HouseSettings => ({
  workers: 2,
  config: {
    idempotency: { answer_bytes_max: 8_192 },
    engines: Object.entries(engines).map(([name, { url }]) => ({
      name,
      url,
      probe_ms: 0,
      scrape_ms: 0,
      on_disconnect: name === 'leaves' ? 'drain' : 'cancel',
    })),
    models: Object.keys(engines).map((name) => ({
      name,
      targets: [{ engine: name }],
      price: { input: '2.00', output: '8.00' },
    })),
    tenants: [{ name: 't' }, { name: 'u' }],
  },
})

let house: TestHouse
/** Houses whose folders later ones live in. */
const owners: TestHouse[] = []
let key: string
beforeAll(async () => {
  for (const [name, answer] of Object.entries(SCRIPTS)) engines[name] = startHostileEngine({ answers: () => answer() })
  house = await startHouse(settings())
  key = await house.key('t')
})
afterAll(async () => {
  for (const each of [house, ...owners]) await each[Symbol.asyncDispose]()
  for (const engine of Object.values(engines)) await engine[Symbol.asyncDispose]()
})

let tokens = 0
const token = () => `token-${tokens++}`
const bodyOf = (model: string, extra: object = {}) => ({ model, messages: [{ role: 'user', content: 'hi' }], ...extra })
/** Each call on a connection of its own, so that either worker may get it. */
const ask = async (model: string, idempotency_key: string, extra: object = {}, secret = key, at = house) => {
  const response = await at.post('/v1/chat/completions', bodyOf(model, extra), secret, {
    'idempotency-key': idempotency_key,
    connection: 'close',
  })
  const text = await response.text()
  return {
    status: response.status,
    text,
    id: response.headers.get('x-weir-call-id'),
    replayed: response.headers.get('x-weir-replayed'),
    headers: response.headers,
    code: response.status >= 400 ? (JSON.parse(text).error.code as string) : '',
  }
}
const rowsOf = (model: string, at = house) => at.rows().filter((row) => row['model'] === model)

describe.each([
  ['whole', {}],
  ['stream', { stream: true }],
])('%s', (model, extra) => {
  test('a repeat gets the first answer byte for byte, at either worker, and is charged once', async () => {
    const name = token()
    const first = await ask(model, name, extra)
    expect([first.status, first.replayed]).toEqual([200, null])
    for (let repeat = 0; repeat < 12; repeat++) {
      const again = await ask(model, name, extra)
      expect([again.status, again.replayed, again.id, again.text]).toEqual([200, 'true', first.id, first.text])
      for (const header of ['content-type', 'x-weir-engine', 'x-weir-model', 'x-weir-cost-usd', 'cache-control'])
        expect([header, again.headers.get(header)]).toEqual([header, first.headers.get(header)])
    }
    expect(engines[model]!.requests.length).toBe(1)
    // Another call's row shows that a second of this one would be there by now.
    await ask(model, token(), extra)
    await eventually(() => expect(rowsOf(model)).toHaveLength(2), 5_000)
    expect(rowsOf(model).filter((row) => row['id'] === first.id)).toHaveLength(1)
  })

  test('another body, address or API key is another request', async () => {
    const name = token()
    const first = await ask(model, name, extra)
    const other = await ask(model, name, { ...extra, temperature: 0 })
    expect([other.status, other.code]).toEqual([422, 'idempotency_mismatch'])
    const address = await house.post('/data', bodyOf(model, extra), key, { 'idempotency-key': name })
    expect([address.status, await address.json()]).toMatchObject([422, { error: { code: 'idempotency_mismatch' } }])
    const stranger = await ask(model, name, extra, await house.key('u'))
    expect([stranger.status, stranger.replayed]).toEqual([200, null])
    expect(stranger.text).not.toBe(first.text)
  })
})

test('/data, which Weir answers itself, is replayed too', async () => {
  const post = (text: string) => house.post('/data', text, key, { 'idempotency-key': 'data' })
  const first = await post('{"n": 1}')
  const again = await post('{"n": 1}')
  expect([again.headers.get('x-weir-call-id'), await again.text()]).toEqual([
    first.headers.get('x-weir-call-id')!,
    await first.text(),
  ])
})

test('of many at once one runs; the others are told to wait, and get its answer afterwards', async () => {
  const name = token()
  const first = ask('slow', name)
  await eventually(() => engines['slow']!.requests.length === 1)
  const others = await Promise.all(Array.from({ length: 20 }, () => ask('slow', name)))
  for (const other of others)
    expect([other.status, other.code, other.headers.get('retry-after')]).toEqual([409, 'conflict', '1'])
  expect((await ask('slow', name, { temperature: 1 })).code).toBe('idempotency_mismatch')
  gates.slow.open()
  const { text, status } = await first
  expect(status).toBe(200)
  expect(await ask('slow', name)).toMatchObject({ text, replayed: 'true' })
  expect(engines['slow']!.requests.length).toBe(1)
})

test.each([
  ['large', {}],
  ['large_stream', { stream: true }],
])('%s: an answer over the bound is given whole, and its repeat refused', async (model, extra) => {
  const name = token()
  const first = await ask(model, name, extra)
  expect([first.status, first.text.length > 10_000]).toEqual([200, true])
  const again = await ask(model, name, extra)
  expect([again.status, again.code]).toEqual([410, 'answer_not_kept'])
  expect(engines[model]!.requests.length).toBe(1)
})

test('an engine’s verdict on the request is kept, as the engine wrote it', async () => {
  const name = token()
  const first = await ask('bad', name)
  expect(first.status).toBe(400)
  expect(await ask('bad', name)).toMatchObject({ status: 400, text: first.text, replayed: 'true', id: first.id })
})

test.each([
  ['busy', {}, 429],
  ['broken', {}, 500],
  ['cut', { stream: true }, 200],
])('%s: a failure is not kept, so the repeat runs', async (model, extra, status) => {
  nth = 0
  const name = token()
  const first = await house.post('/v1/chat/completions', bodyOf(model, extra), key, { 'idempotency-key': name })
  expect(first.status).toBe(status)
  expect(await first.text()).toContain(model === 'cut' ? 'engine_cut' : 'error')
  // The engine is benched for a moment, which is no answer to keep either.
  const second = await eventually(async () => {
    const found = await ask(model, name, extra)
    expect([found.status, found.replayed]).toEqual([200, null])
    return found
  }, 10_000)
  expect(second.text).toContain('later')
  expect(await ask(model, name, extra)).toMatchObject({ text: second.text, replayed: 'true' })
})

test('a client that left before a drained answer came finds it when it repeats', async () => {
  const name = token()
  const client = await connectRaw(house.port)
  const headers = { authorization: `Bearer ${key}`, 'idempotency-key': name }
  await client.send(requestBytes('POST', '/v1/chat/completions', headers, bodyOf('leaves')))
  await eventually(() => engines['leaves']!.requests.length === 1)
  client.close()
  const again = await eventually(async () => {
    const found = await ask('leaves', name)
    expect(found.status).toBe(200)
    return found
  }, 5_000)
  expect([again.replayed, engines['leaves']!.requests.length]).toEqual(['true', 1])
})

test.each([
  ['', 400],
  ['k'.repeat(256), 400],
  ['k'.repeat(255), 200],
  ['../../etc', 200],
])('the key %p answers %i', async (name, status) => {
  const answer = await ask('whole', name)
  expect([answer.status, answer.code]).toEqual([status, status === 400 ? 'header_invalid' : ''])
})

test('the official client: its option names the call, its retries of 409 end in the answer', async () => {
  const client = new OpenAI({ baseURL: `${house.url}/v1`, apiKey: key, maxRetries: 3 })
  const name = token()
  const asked = { model: 'whole', messages: [{ role: 'user' as const, content: 'hi' }] }
  const first = await client.chat.completions.create(asked, { headers: { 'Idempotency-Key': name } })
  const again = await client.chat.completions.create(asked, { headers: { 'Idempotency-Key': name } })
  expect(again).toEqual(first)
  const streamed = async () => {
    const pieces: unknown[] = []
    const stream = await client.chat.completions.create(
      { ...asked, model: 'stream', stream: true },
      { headers: { 'Idempotency-Key': `${name}-s` } },
    )
    for await (const piece of stream) pieces.push(piece)
    return pieces
  }
  const pieces = await streamed()
  expect(pieces.length).toBe(41)
  expect(await streamed()).toEqual(pieces)
})

test('a worker that is killed in the middle of a call gives its claim back, and the repeat runs', async () => {
  const name = token()
  const broken = house
    .post('/v1/chat/completions', bodyOf('hangs', { stream: true }), key, { 'idempotency-key': name })
    .then((response) => response.text())
    .catch(() => 'reset')
  await eventually(() => engines['hangs']!.requests.length === 1)
  expect((await ask('hangs', name, { stream: true })).code).toBe('conflict')
  for (const pid of house.pids('worker')) process.kill(pid, 'SIGKILL')
  await broken
  // Its successors look as soon as they serve.
  const asked = eventually(async () => {
    const controller = new AbortController()
    const response = await house.post(
      '/v1/chat/completions',
      bodyOf('hangs', { stream: true }),
      key,
      { 'idempotency-key': name },
      controller.signal,
    )
    const { status } = response
    controller.abort()
    expect(status).toBe(200)
    return status
  }, 10_000)
  expect(await asked).toBe(200)
  await eventually(() => expect(rowsOf('hangs').length).toBe(2), 10_000)
})

test('answers outlive the house: after an orderly stop and after kill -9 of everything', async () => {
  const name = token()
  const first = await ask('whole', name)
  const asked = engines['whole']!.requests.length
  const { data } = house
  owners.push(house)
  expect(await house.stop()).toBe(0)
  house = await startHouse({ ...settings(), data })
  expect(await ask('whole', name)).toMatchObject({ text: first.text, id: first.id, replayed: 'true' })
  await house.killTree()
  house = await startHouse({ ...settings(), data })
  expect(await ask('whole', name)).toMatchObject({ text: first.text, id: first.id, replayed: 'true' })
  expect(engines['whole']!.requests.length).toBe(asked)
})
