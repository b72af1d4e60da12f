import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { startHostileEngine } from '../kit/hostile-engine.ts'
import { startHouse, type TestHouse } from '../kit/house.ts'
import { CH, D, json, never, script, sse200, WHOLE } from '../kit/script.ts'
import { eventually, tempFolder } from '../kit/wait.ts'

setDefaultTimeout(60_000)

/** Limits of a minute outlive the house, killed or stopped; places and holds of calls that are over do not. */

const folder = tempFolder('weir-limits')
const engine = startHostileEngine({
  answers: (request) =>
    request.json().stream ? script(sse200, D(CH({ content: 'a' })), never) : json(200, WHOLE('hi', 5, 95)),
})
const config = (requests: number) => ({
  engines: [{ name: 'e1', url: engine.url, probe_ms: 0 }],
  models: [{ name: 'm1', targets: [{ engine: 'e1' }], free: true }],
  tenants: [
    { name: 'requests', limits: { requests_per_minute: requests } },
    { name: 'tokens', limits: { tokens_per_minute: 1_500 } },
    { name: 'places', limits: { concurrent: 2 } },
  ],
})
const keys = new Map<string, string>()
let house: TestHouse

beforeAll(async () => {
  house = await startHouse({ config: config(10), workers: 2, data: `${folder.path}/data` })
  for (const tenant of ['requests', 'tokens', 'places']) keys.set(tenant, await house.key(tenant))
})
afterAll(async () => {
  await house[Symbol.asyncDispose]()
  await engine.stop()
  folder[Symbol.dispose]()
})

const call = (tenant: string, stream = false) =>
  house.post(
    '/v1/chat/completions',
    { model: 'm1', stream, max_tokens: 95, messages: [{ role: 'user', content: 'hi' }] },
    keys.get(tenant),
  )
const statusOf = async (tenant: string): Promise<number> => {
  const answer = await call(tenant)
  await answer.text()
  return answer.status
}
const untilRefused = async (tenant: string): Promise<number> => {
  for (let count = 0; ; count++) if ((await statusOf(tenant)) === 429) return count
}

test('after kill -9 of all and after a stop in order nobody has a second minute', async () => {
  await untilRefused('requests')
  const first = await untilRefused('tokens')
  expect(first).toBeGreaterThanOrEqual(1)
  const streams = await Promise.all([call('places', true), call('places', true)])
  expect([streams[0]!.status, streams[1]!.status, await statusOf('places')]).toEqual([200, 200, 429])

  await house.killTree()
  const again = { config: config(10), workers: 2, data: `${folder.path}/data` }
  house = await startHouse(again)
  // Ten a minute give one back every six seconds.
  expect(await untilRefused('requests')).toBeLessThanOrEqual(2)
  expect(await untilRefused('tokens')).toBeLessThan(first)
  await eventually(async () => expect(await statusOf('places')).toBe(200))

  await untilRefused('requests')
  expect(await house.stop()).toBe(0)
  // With a limit that was raised meanwhile the same share of the minute is used: the first thousand is not free at once.
  house = await startHouse({ ...again, config: config(1_000) })
  const answer = await call('requests')
  expect(answer.headers.get('x-ratelimit-limit-requests')).toBe('1000')
  expect(Number(answer.headers.get('x-ratelimit-remaining-requests'))).toBeLessThan(500)
})
