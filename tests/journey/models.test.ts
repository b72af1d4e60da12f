import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { startHostileEngine } from '../kit/hostile-engine.ts'
import { startHouse, type TestHouse } from '../kit/house.ts'
import { exchangeRaw, requestBytes } from '../kit/raw-client.ts'
import { CH, D, DONE, end, json, script, sse200, WHOLE } from '../kit/script.ts'
import { readSse } from '../kit/sse-read.ts'

/** The model list, ids with slashes, and the name in the answer (CASES C39). */

// The preloaded default holds for the first file of a run only.
setDefaultTimeout(60_000)

const stream = script(sse200, D(CH({ content: 'ok' })), D(CH({}, 'stop')), DONE, end)
const engine = startHostileEngine({
  answers: (request) => (request.json().stream === true ? stream : json(200, WHOLE('ok', 1, 1))),
})
let house: TestHouse
let all: string
let few: string
beforeAll(async () => {
  const targets = [{ engine: 'e', model: 'm1' }]
  house = await startHouse({
    config: {
      engines: [{ name: 'e', url: engine.url }],
      models: [
        { name: 'plain', targets, free: true },
        { name: 'acme/chat-7b', targets, free: true },
        { name: 'a/b/c/d/e/f', targets, free: true },
        { name: 'shown', targets, free: true, rewrite_model: true },
      ],
      tenants: [{ name: 't' }, { name: 'narrow', models: ['plain', 'shown'] }],
    },
  })
  all = await house.key('t')
  few = await house.key('narrow', { models: ['plain', 'acme/chat-7b'] })
})
afterAll(async () => {
  await house[Symbol.asyncDispose]()
  await engine.stop()
})

const get = (path: string, key = all) =>
  exchangeRaw(house.port, requestBytes('GET', path, { authorization: `Bearer ${key}` }))

test('the list has OpenAI’s shape', async () => {
  const answer = await get('/v1/models')
  expect(answer.header('content-type')).toStartWith('application/json')
  const { object, data, ...rest } = answer.json()
  expect([object, rest]).toEqual(['list', {}])
  expect(data.map(({ id }: { id: string }) => id)).toEqual(['plain', 'acme/chat-7b', 'a/b/c/d/e/f', 'shown'])
  for (const model of data)
    expect(model).toEqual({ id: model.id, object: 'model', created: expect.any(Number), owned_by: expect.any(String) })
  expect(data.every(({ created }: { created: number }) => Number.isInteger(created))).toBe(true)
})

test.each([
  ['plain', 'plain'],
  ['acme/chat-7b', 'acme/chat-7b'],
  ['acme%2Fchat-7b', 'acme/chat-7b'],
  ['acme%2fchat-7b', 'acme/chat-7b'],
  ['acme/chat%2D7b', 'acme/chat-7b'],
  ['a/b/c/d/e/f', 'a/b/c/d/e/f'],
  ['a%2Fb/c%2Fd/e/f', 'a/b/c/d/e/f'],
  ['plain?x=1', 'plain'],
])('GET /v1/models/%s is %s', async (path, id) => {
  const answer = await get(`/v1/models/${path}`)
  expect([answer.status, answer.json().id, answer.json().object]).toEqual([200, id, 'model'])
})

test.each([
  'nope',
  'acme',
  'acme/',
  'acme//chat-7b',
  'acme/chat-7b/x',
  'PLAIN',
  'acme%252Fchat-7b',
  '%ff',
  '%',
  '__proto__',
])('GET /v1/models/%s is a JSON 404', async (path) => {
  const answer = await get(`/v1/models/${path}`)
  // An empty part is no address at all.
  const code = path.includes('//') ? 'address_unknown' : 'model_unknown'
  expect([answer.status, answer.json().error.code]).toEqual([404, code])
})

test('a key sees only what it and its tenant may use; the rest does not exist for it', async () => {
  expect((await get('/v1/models', few)).json().data.map(({ id }: { id: string }) => id)).toEqual(['plain'])
  expect((await get('/v1/models/plain', few)).status).toBe(200)
  const before = engine.requests.length
  for (const id of ['acme/chat-7b', 'shown', 'a/b/c/d/e/f', 'nope']) {
    const shown = await get(`/v1/models/${id}`, few)
    const called = await house.post('/v1/chat/completions', { model: id, messages: [] }, few)
    const told = ((await called.json()) as any).error
    expect([shown.status, called.status, told.code]).toEqual([404, 404, 'model_unknown'])
    // Word for word the same as for a name that does not exist.
    expect(shown.json().error.message).toBe(told.message)
    expect(told.message).toBe(`The model ${JSON.stringify(id)} does not exist or this key may not use it.`)
  }
  expect(engine.requests.length).toBe(before)
})

test.each([
  // asked for, name in the body
  ['acme/chat-7b', 'm1'],
  ['shown', 'shown'],
])('%s: the answer says %s, whole and on every chunk; headers and ledger know both names', async (model, named) => {
  const rows_before = house.rows().length
  const body = { model, messages: [{ role: 'user', content: 'hi' }] }
  const whole = await house.post('/v1/chat/completions', body, all)
  const streamed = await house.post('/v1/chat/completions', { ...body, stream: true }, all)
  expect(((await whole.json()) as { model: string }).model).toBe(named)
  const { chunks, done } = await readSse(streamed)
  expect(done).toBe(true)
  expect(new Set(chunks().map((chunk) => chunk.model))).toEqual(new Set([named]))
  for (const answer of [whole, streamed]) {
    expect(answer.headers.get('x-weir-model')).toBeString()
    expect(answer.headers.get('x-weir-engine')).toBe('e')
  }
  for (const request of engine.requests.slice(-2)) expect(request.json().model).toBe('m1')
  const rows = (await house.rowsReach(rows_before + 2)).slice(rows_before)
  for (const row of rows) expect([row['model'], row['engine_model']]).toEqual([model, 'm1'])
})
