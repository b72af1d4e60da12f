import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { json, script, wait, WHOLE } from '../kit/script.ts'
import { newCast, type Part } from './cast.ts'

setDefaultTimeout(60_000)

/**
 * A fallback model's own limits hold also for calls that come to it from another model, exactly over all workers; one
 * that has no room is passed over, as an engine without a place is.
 */

const WORKERS = 4
const cast = newCast({ house: { workers: WORKERS } })
const broken = json(500, { error: { message: 'broken', type: 'x', code: 500 } })
const slow = { answers: [script(wait(80), json(200, WHOLE('slow', 5, 5)))] }
const good = json(200, WHOLE('good', 5, 5))
const long = json(200, WHOLE('long', 5, 3_000))

const fallback = (limits: object, answers: Parameters<typeof cast.part>[0][number] = good) =>
  cast.part([answers], { of_model: { limits } })
const last = cast.part([good])
const from = (...to: Part[]) => cast.part([broken], { fallbacks: to.map(({ model }) => model) })

const few_requests = fallback({ requests_per_minute: 5 })
const few_places = fallback({ concurrent: 3 }, slow)
/** Two calls of `max_tokens: 1000` at once, as each may have 256 tokens and its bytes besides. */
const few_tokens = fallback({ tokens_per_minute: 3_000 }, slow)
const only = fallback({ requests_per_minute: 1 })
const to_requests = from(few_requests, last)
const to_places = from(few_places, last)
const to_tokens = from(few_tokens, last)
const to_only = from(only)
const writes_long = cast.part([long])
const own_tokens = cast.part([broken], {
  fallbacks: [writes_long.model],
  of_model: { limits: { tokens_per_minute: 20_000 } },
})

beforeAll(cast.open)
afterAll(cast.close)

const call = async (part: Part, extra: object = {}) => {
  const response = await cast.post(part, { max_tokens: 100, ...extra })
  await response.text()
  return response
}
const many = (part: Part, count: number, extra: object = {}) =>
  Promise.all(Array.from({ length: count }, () => call(part, extra)))
const engineOf = (part: Part) => part.engines[0]!

test('requests a minute: so many go there, and the others to the next fallback', async () => {
  const began = performance.now()
  const answers = await many(to_requests, 40)
  const more = Math.floor((performance.now() - began) / 12_000)
  expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200))
  const asked = engineOf(few_requests).requests.length
  expect(asked).toBeGreaterThanOrEqual(5)
  expect(asked).toBeLessThanOrEqual(5 + more)
  // Those that ask for it by its name share the same limit.
  expect((await call(few_requests)).status).toBe(429)
  const told = answers.find((answer) => answer.headers.get('x-weir-engine') === last.names[0])!
  const id = told.headers.get('x-weir-call-id')!
  await cast.row(id)
  const explained = (await (await cast.house().admin('GET', `calls/${id}/explain`)).json()) as { words: string[] }
  expect(explained.words.join(' ')).toContain(`${few_requests.model} was not asked: it has no room under its own`)
})

test('calls at once: never more at the engine, whoever sent them there', async () => {
  const [answers, own] = await Promise.all([many(to_places, 30), many(few_places, 10)])
  expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200))
  expect(new Set(own.map(({ status }) => status)).isSubsetOf(new Set([200, 429]))).toBe(true)
  expect(engineOf(few_places).calls.max).toBe(3)
  // What was taken is there again.
  await cast.quiet()
  expect((await many(few_places, 3)).map(({ status }) => status)).toEqual([200, 200, 200])
})

test('tokens a minute: what may be used is held before it is asked', async () => {
  const answers = await many(to_tokens, 30, { max_tokens: 1_000 })
  expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200))
  expect(engineOf(few_tokens).requests.length).toBeGreaterThan(0)
  expect(engineOf(few_tokens).calls.max).toBeLessThanOrEqual(2)
})

test('where no fallback has room nobody is left, and the client is told when to come again', async () => {
  const [one, two] = [await call(to_only), await call(to_only)]
  expect([one.status, one.headers.get('x-weir-engine')]).toEqual([200, only.names[0]!])
  // By now its own engine is benched, so nobody is left.
  expect(two.status).toBe(503)
  expect(Number(two.headers.get('retry-after'))).toBeGreaterThanOrEqual(1)
  expect(engineOf(only).requests).toHaveLength(1)
})

test('tokens that a fallback made do not count for the model that was asked', async () => {
  // Each of the ten takes three thousand; all at once they would be more than the twenty thousand of a minute.
  for (let nth = 0; nth < 10; nth++) expect((await call(own_tokens)).status).toBe(200)
  const after = await call(own_tokens)
  expect(Number(after.headers.get('x-ratelimit-remaining-tokens'))).toBeGreaterThan(19_000)
})
