import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { startHostileEngine } from '../kit/hostile-engine.ts'
import { startHouse, type TestHouse } from '../kit/house.ts'
import { exchangeRaw, requestBytes, type RawResponse } from '../kit/raw-client.ts'
import { json, WHOLE } from '../kit/script.ts'
import { eventually } from '../kit/wait.ts'

/** Who may call: spellings of a key (CASES C33), revocation and expiry seen by every worker within a second. */

// The preloaded default holds for the first file of a run only.
setDefaultTimeout(60_000)

const ENGINE_KEY = 'provider-key-of-the-engine'
const WORKERS = 3
const engine = startHostileEngine({ answers: [json(200, WHOLE('ok', 1, 1))] })
let house: TestHouse
let key: string
let other: string
beforeAll(async () => {
  house = await startHouse({
    workers: WORKERS,
    config: {
      engines: [{ name: 'e', url: engine.url, key: ENGINE_KEY }],
      models: [{ name: 'm1', targets: [{ engine: 'e' }], free: true }],
      tenants: [{ name: 't' }],
    },
  })
  key = await house.key('t')
  other = await house.key('t')
})
afterAll(async () => {
  await house[Symbol.asyncDispose]()
  await engine.stop()
})

const BODY = { model: 'm1', messages: [{ role: 'user', content: 'hi' }] }
/** On a connection of its own, so that any of the workers may take it. */
const ask = (headers: Record<string, string>): Promise<RawResponse> =>
  exchangeRaw(house.port, requestBytes('POST', '/v1/chat/completions', headers, BODY))

const fill = (headers: Record<string, string>): Record<string, string> =>
  Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [
      name,
      value.replace('KEY', key).replace('LOWER', key.toLowerCase()).replace('OTHER', other),
    ]),
  )

test.each([
  [{ Authorization: 'Bearer KEY' }],
  [{ authorization: 'bearer KEY' }],
  [{ AUTHORIZATION: 'BEARER KEY' }],
  [{ authorization: 'Bearer   KEY' }],
  [{ 'x-api-key': 'KEY' }],
  [{ 'X-Api-Key': 'KEY' }],
  [{ 'api-key': 'KEY' }],
  [{ authorization: 'Bearer KEY', 'x-api-key': 'KEY', 'api-key': 'KEY' }],
  [{ authorization: 'Bearer KEY', 'x-api-key': '' }],
])('%j is let in, and the engine sees the provider’s key alone', async (headers) => {
  const before = engine.requests.length
  expect((await ask(fill(headers as Record<string, string>))).status).toBe(200)
  const [seen] = engine.requests.slice(before)
  expect(seen!.header('authorization')).toBe(`Bearer ${ENGINE_KEY}`)
  expect(JSON.stringify(seen!.headers)).not.toContain(key)
  expect(seen!.headers.map(([name]) => name.toLowerCase())).not.toContain('x-api-key')
  expect(seen!.headers.map(([name]) => name.toLowerCase())).not.toContain('api-key')
})

test.each([
  [{}, 401, 'key_missing'],
  [{ authorization: '' }, 401, 'key_invalid'],
  [{ authorization: 'Bearer' }, 401, 'key_invalid'],
  [{ authorization: 'Bearer ' }, 401, 'key_invalid'],
  [{ authorization: 'Basic KEY' }, 401, 'key_invalid'],
  [{ authorization: 'KEY' }, 401, 'key_invalid'],
  [{ authorization: 'Bearer LOWER' }, 401, 'key_invalid'],
  [{ authorization: 'Bearer KEYx' }, 401, 'key_invalid'],
  [{ authorization: 'Bearer nope' }, 401, 'key_invalid'],
  [{ 'x-api-key': 'nope' }, 401, 'key_invalid'],
  [{ 'x-api-key': '' }, 401, 'key_missing'],
  // DESIGN §9: two keys are a mistake of the request, not a wrong key.
  [{ authorization: 'Bearer KEY', 'x-api-key': 'OTHER' }, 400, 'keys_differ'],
  [{ authorization: 'Bearer KEY', 'api-key': 'OTHER' }, 400, 'keys_differ'],
  [{ 'x-api-key': 'KEY', 'api-key': 'OTHER' }, 400, 'keys_differ'],
  [{ 'x-api-key': 'KEY, OTHER' }, 400, 'header_invalid'],
] as const)('%j → %i %s, and no engine hears of it', async (headers, status, code) => {
  const before = engine.requests.length
  const answer = await ask(fill(headers as Record<string, string>))
  const { error } = answer.json()
  expect([answer.status, error.code]).toEqual([status, code])
  expect(Object.keys(error).toSorted()).toEqual(['code', 'message', 'param', 'type'])
  expect(answer.header('www-authenticate')).toBe(status === 401 ? 'Bearer' : undefined)
  expect(answer.text()).not.toContain(key)
  expect(engine.requests.length).toBe(before)
})

test('the secret is nowhere in the house’s files or log', async () => {
  const found = Bun.spawnSync(['grep', '-rl', key, house.data])
  expect(found.stdout.toString()).toBe('')
  expect(house.log()).not.toContain(key)
})

/** What each of many fresh connections gets: with three workers behind one port, all of them answer. */
const everywhere = async (secret: string): Promise<Set<string>> => {
  const answers = await Promise.all(
    Array.from({ length: 24 }, () =>
      exchangeRaw(house.port, requestBytes('GET', '/v1/models', { authorization: `Bearer ${secret}` })),
    ),
  )
  return new Set(answers.map((answer) => (answer.status === 200 ? 'ok' : answer.json().error.code)))
}

const SECOND_MS = 1_000

test('a new key works, and a revoked one stops working, in every worker within a second', async () => {
  const made = (await (await house.admin('POST', 'keys', { tenant: 't' })).json()) as { key: string; id: string }
  await eventually(async () => expect(await everywhere(made.key)).toEqual(new Set(['ok'])), SECOND_MS)
  expect((await house.admin('DELETE', `keys/${made.id}`)).status).toBe(200)
  await eventually(async () => expect(await everywhere(made.key)).toEqual(new Set(['key_revoked'])), SECOND_MS)
  // And it stays so: no worker falls back to what it knew.
  for (let again = 0; again < 3; again++) expect(await everywhere(made.key)).toEqual(new Set(['key_revoked']))
})

test('a key expires in every worker when its time has come', async () => {
  const expires_at_ms = Date.now() + 1_200
  const secret = await house.key('t', { expires_at: new Date(expires_at_ms).toISOString() })
  expect(await everywhere(secret)).toEqual(new Set(['ok']))
  await Bun.sleep(Math.max(0, expires_at_ms - Date.now()))
  await eventually(async () => expect(await everywhere(secret)).toEqual(new Set(['key_expired'])), SECOND_MS)
})

test('a worker that is replaced knows what the others know', async () => {
  const made = (await (await house.admin('POST', 'keys', { tenant: 't' })).json()) as { key: string; id: string }
  await house.admin('DELETE', `keys/${made.id}`)
  const before = new Set(house.pids('worker'))
  const [dead] = [...before]
  process.kill(dead!, 'SIGKILL')
  await eventually(() => {
    const now = house.pids('worker')
    expect(now.length).toBe(WORKERS)
    expect(now.some((pid) => !before.has(pid))).toBe(true)
  }, 10_000)
  await eventually(async () => expect(await everywhere(made.key)).toEqual(new Set(['key_revoked'])), 3_000)
  expect(await everywhere(key)).toEqual(new Set(['ok']))
})
