import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { newCallId } from '../../src/base/ids.ts'
import { REFUSED_SLOTS } from '../../src/table/layout.ts'
import { CH, cut, D, DONE, end, json, never, script, sse200, US, wait, WHOLE } from '../kit/script.ts'
import { eventually } from '../kit/wait.ts'
import { newCast } from './cast.ts'

setDefaultTimeout(60_000)

/** What `explain` tells: of each attempt its times, outcome and tokens; of a call that was refused, why. */

const cast = newCast({
  house: { workers: 2 },
  tenants: [
    { name: 't' },
    { name: 'few', limits: { requests_per_minute: 1 } },
    { name: 'poor', budgets: [{ usd: '0' }] },
  ],
})
const token = (content: string) => D(CH({ content }))
const tokens = ['a ', 'b ', 'c ', 'd ', 'e ', 'f '].map(token)
const closing = [D(CH({}, 'stop')), D(US(5, 6)), DONE, end]
const broken = json(500, { error: { message: 'broken', type: 'x', code: 500 } })
const rescued = cast.part([broken, script(sse200, tokens.slice(0, 4), wait(30), cut), script(sse200, tokens, closing)])
const whole = cast.part([broken, json(200, WHOLE('good', 7, 3))])
const full = cast.part([script(never)], {
  engine: { capacity: 1 },
  timeouts: { first_byte_ms: 3_000 },
  queue: { size: 0 },
})

beforeAll(cast.open)
afterAll(cast.close)

const explain = async (id: string): Promise<any> => {
  const answer = await cast.house().admin('GET', `calls/${id}/explain`)
  return { status: answer.status, ...((await answer.json()) as object) }
}

test('a stream over three engines: each attempt with its times, outcome and tokens', async () => {
  const got = await cast.stream(rescued)
  expect(got.done).toBe(true)
  await cast.row(got.id)
  const { decision, words, refused } = await explain(got.id)
  const [one, two, three] = rescued.names
  expect(decision.attempts).toEqual([
    { engine: one, model: 'm1', started_ms: expect.any(Number), ended_ms: expect.any(Number), outcome: '500' },
    {
      ...{ engine: two, model: 'm1', started_ms: expect.any(Number), ended_ms: expect.any(Number) },
      ...{ outcome: 'engine_cut', completion_tokens: 4 },
    },
    {
      ...{ engine: three, model: 'm1', started_ms: expect.any(Number), ended_ms: expect.any(Number) },
      ...{ outcome: 'answered', prompt_tokens: 5, completion_tokens: 2 },
    },
  ])
  let last = 0
  for (const { started_ms, ended_ms } of decision.attempts) {
    expect(started_ms).toBeGreaterThanOrEqual(last)
    expect(ended_ms).toBeGreaterThanOrEqual(started_ms)
    last = ended_ms
  }
  expect(refused).toBeNull()
  const said = words.join('\n')
  expect(said).toMatch(new RegExp(`${one} was asked at \\d+ ms and gave no answer at \\d+ ms: 500\\.`))
  expect(said).toMatch(new RegExp(`${two} was asked at \\d+ ms and broke off at \\d+ ms, 4 tokens: engine_cut\\.`))
  expect(said).toMatch(new RegExp(`${three} was asked at \\d+ ms and answered at \\d+ ms, 2 tokens\\.`))
})

test('a whole answer of the second engine', async () => {
  const response = await cast.post(whole)
  const id = response.headers.get('x-weir-call-id')!
  await response.text()
  await cast.row(id)
  expect((await explain(id)).decision.attempts).toMatchObject([
    { engine: whole.names[0], outcome: '500' },
    { engine: whole.names[1], outcome: 'answered', prompt_tokens: 7, completion_tokens: 3 },
  ])
})

const ask = (model: string, key: string) =>
  cast.house().post('/v1/chat/completions', { model, messages: [{ role: 'user', content: 'hi' }] }, key)
const refusedId = async (answer: Response, status: number): Promise<string> => {
  await answer.text()
  expect(answer.status).toBe(status)
  return answer.headers.get('x-weir-call-id')!
}

test('a call that was refused before any engine heard of it has no row, and is told of all the same', async () => {
  const [few, poor] = [await cast.house().key('few'), await cast.house().key('poor')]
  const running = cast.post(full)
  await eventually(() => full.engines[0]!.calls.now === 1)
  const no_place = await explain(await refusedId(await cast.post(full), 503))
  expect(no_place).toMatchObject({
    status: 200,
    refused: { tenant: 't', model: full.model, code: 'no_engine', passed: 'enrich', status: 503 },
    decision: { model: full.model, attempts: [] },
  })
  expect(no_place.words.at(-1)).toContain('all are full')

  await (await ask(whole.model, few)).text()
  const limited = await explain(await refusedId(await ask(whole.model, few), 429))
  expect(limited.refused).toMatchObject({ tenant: 'few', code: 'rate_exceeded' })
  expect(limited.words.join(' ')).toContain('before any engine heard of it: rate_exceeded.')

  const unpaid = await explain(await refusedId(await ask(whole.model, poor), 429))
  expect(unpaid.refused).toMatchObject({ tenant: 'poor', code: 'budget_exceeded', model: whole.model })
  expect(unpaid.words.join(' ')).toContain('The budget of tenant poor')
  expect(JSON.stringify(unpaid)).not.toContain(poor)

  // The newest of all workers together are remembered, and no more.
  const first = await refusedId(await ask(whole.model, few), 429)
  for (let round = 0; round < 4; round++)
    await Promise.all(Array.from({ length: REFUSED_SLOTS / 4 }, async () => (await ask(whole.model, few)).text()))
  const last = await refusedId(await ask(whole.model, few), 429)
  expect((await explain(first)).status).toBe(404)
  expect((await explain(last)).refused).toMatchObject({ code: 'rate_exceeded' })
  // A stranger's refusals take nobody's place.
  await Promise.all(Array.from({ length: REFUSED_SLOTS }, async () => (await ask(whole.model, 'weir_nobody')).text()))
  expect((await explain(last)).status).toBe(200)
  expect((await explain(newCallId())).status).toBe(404)
  await (await running).text()
})
