import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { openReader } from '../../src/ledger/database.ts'
import { findFaults } from '../../src/ledger/reconcile.ts'
import { CH, cut, D, DONE, end, json, script, type Script, sse200, US, wait, WHOLE } from '../kit/script.ts'
import { newCast, type Part } from './cast.ts'

setDefaultTimeout(60_000)

/**
 * A fallback is billed by what answered: the row names the model that did, its price makes the charge, and the budgets
 * had what it might cost before it was asked. Prices are 1 and 2 USD a million tokens against 30 and 60.
 */

const CHEAP = { input: '1.00', output: '2.00', request: '0.000001' }
const DEAR = { input: '30.00', output: '60.00', request: '0.000007' }
/** Of 7 prompt tokens and 3 of the answer, in nanodollars. */
const CHEAP_COSTS = 7 * 1_000 + 3 * 2_000 + 1_000
const DEAR_COSTS = 7 * 30_000 + 3 * 60_000 + 7_000

const tenant = (name: string, usd: string) => ({ name, budgets: [{ usd }] })
const cast = newCast({
  tenants: [{ name: 't', budgets: [{ usd: '100' }] }, tenant('poor', '0.002'), tenant('one', '0.05')],
})

const WORDS = ['one ', 'two ', 'three ']
const streamed = script(
  sse200,
  WORDS.map((content) => D(CH({ content }))),
  D(CH({}, 'stop')),
  D(US(7, 3)),
  DONE,
  end,
)
const good = {
  answers: (request: { json(): any }): Script => (request.json().stream ? streamed : json(200, WHOLE('good', 7, 3))),
}
const broken = json(500, { error: { message: 'broken', type: 'x', code: 500 } })
const too_long = json(400, {
  error: { message: 'maximum context length is 100 tokens', code: 'context_length_exceeded' },
})
const cut_after_two = script(
  sse200,
  WORDS.slice(0, 2).map((content) => D(CH({ content }))),
  wait(30),
  cut,
)

const dear = cast.part([good], { price: DEAR, engine_model: 'dear-7b', target: { context_tokens: 100_000 } })
const cheap = cast.part([good], { price: CHEAP, engine_model: 'cheap-7b' })
const to_dear = cast.part([broken], { price: CHEAP, fallbacks: [dear.model] })
const to_cheap = cast.part([broken], { price: DEAR, fallbacks: [cheap.model] })
const too_small = cast.part([too_long], { price: CHEAP, fallbacks: [dear.model] })
const cut_stream = cast.part([cut_after_two], { price: CHEAP, fallbacks: [dear.model] })
/** Its own budget pays for one call of at most 0.02 USD at a time. */
const capped = cast.part([good], { price: DEAR, budgets: [{ usd: '0.02' }] })
const to_capped = cast.part([broken], { price: CHEAP, fallbacks: [capped.model] })
/** Nobody is there, so that the fallback is chosen before there is an intent. */
const absent = cast.part([broken], { price: CHEAP, fallbacks: [dear.model] })
/** Asked by one call each, as a failure benches the only engine. */
const unpaid = cast.part([broken], { price: CHEAP, fallbacks: [dear.model] })
const over_cap = cast.part([broken], { price: CHEAP, fallbacks: [capped.model] })
const keys: Record<string, string> = {}

beforeAll(async () => {
  await cast.open()
  for (const name of ['poor', 'one']) keys[name] = await cast.house().key(name)
})
afterAll(cast.close)

const call = async (part: Part, extra: object = {}, key = cast.key()) => {
  const body = { model: part.model, messages: [{ role: 'user', content: 'hi' }], max_tokens: 100, ...extra }
  const response = await cast.house().post('/v1/chat/completions', body, key)
  const said = await response.text()
  return { response, said, id: response.headers.get('x-weir-call-id')! }
}

const CASES = [
  ['a dearer fallback answers', to_dear, dear, DEAR_COSTS, 'dear-7b'],
  ['a cheaper fallback answers', to_cheap, cheap, CHEAP_COSTS, 'cheap-7b'],
  ['a prompt too long goes to a larger model', too_small, dear, DEAR_COSTS, 'dear-7b'],
] as const
for (const stream of [false, true])
  for (const [name, asked, answers, costs, engine_model] of CASES)
    test(`${name} (${stream ? 'stream' : 'whole'}): named in the row, and charged to the nanodollar`, async () => {
      const { response, said, id } = await call(asked, { stream })
      expect(response.status).toBe(200)
      expect(said).toContain(stream ? 'three' : 'good')
      expect(response.headers.get('x-weir-model')).toBe(engine_model)
      expect(response.headers.get('x-weir-engine')).toBe(answers.names[0]!)
      if (!stream) expect(Number(response.headers.get('x-weir-cost-usd')) * 1e9).toBeCloseTo(costs, 3)
      expect(await cast.row(id)).toMatchObject({
        model: answers.model,
        asked_model: asked.model,
        engine: answers.names[0],
        price_version: 1,
        charge_nanodollars: costs,
      })
    })

test('a stream that is finished by a fallback is charged once, at the price of the model that finished it', async () => {
  const { said, id } = await call(cut_stream, { stream: true })
  expect(said).toContain('three')
  expect(said).toContain('[DONE]')
  expect(await cast.row(id)).toMatchObject({
    model: dear.model,
    asked_model: cut_stream.model,
    attempts: 2,
    ending: 'whole',
    charge_nanodollars: DEAR_COSTS,
  })
})

test('a fallback that is chosen from the start is held for in full, and charged', async () => {
  // The first call benches the only engine of the model.
  await call(absent)
  const { response, id } = await call(absent)
  expect(response.status).toBe(200)
  const row = await cast.row(id)
  expect(row).toMatchObject({
    attempts: 1,
    model: dear.model,
    asked_model: absent.model,
    charge_nanodollars: DEAR_COSTS,
  })
  expect(Number(row['hold_nanodollars'])).toBeGreaterThan(100 * 60_000)
})

describe('never over a budget', () => {
  test('a tenant that can pay for its own model only is not moved to a dearer one, and can see why', async () => {
    const asked = dear.engines[0]!.requests.length
    const { response, id } = await call(unpaid, {}, keys['poor'])
    expect(response.status).toBe(500)
    expect(dear.engines[0]!.requests).toHaveLength(asked)
    expect(await cast.row(id)).toMatchObject({ model: unpaid.model, attempts: 1, charge_nanodollars: 0 })
    const told = (await (await cast.house().admin('GET', `calls/${id}/explain`)).json()) as { words: string[] }
    expect(told.words.join(' ')).toContain(`${dear.model} was not asked: the budgets do not have`)
  })

  test('many at once: what they spend at the fallback’s price stays within the budget', async () => {
    const got = await Promise.all(Array.from({ length: 60 }, () => call(to_dear, { max_tokens: 50 }, keys['one'])))
    const paid = got.filter(({ response }) => response.status === 200)
    expect(paid.length).toBeGreaterThan(0)
    expect(paid.length * DEAR_COSTS).toBeLessThanOrEqual(50_000_000)
    expect(got.length - paid.length).toBeGreaterThan(0)
    // All that was held and not used is there again.
    expect((await call(to_dear, { max_tokens: 50 }, keys['one'])).response.status).toBe(200)
  })

  test('the budget of the fallback itself', async () => {
    const one = await call(to_capped, { max_tokens: 100 })
    expect(one.response.status).toBe(200)
    expect(await cast.row(one.id)).toMatchObject({ model: capped.model, charge_nanodollars: DEAR_COSTS })
    // One call of this size may cost more than there is.
    expect((await call(over_cap, { max_tokens: 10_000 })).response.status).toBe(500)
  })
})

test('usage by model counts with the model that answered', async () => {
  await cast.quiet()
  const page = (await (await cast.house().admin('GET', 'usage?group_by=model')).json()) as { data: any[] }
  const of = (part: Part) => page.data.find(({ model }) => model === part.model)
  const rows = cast.house().rows()
  for (const part of [dear, cheap, capped]) {
    const own = rows.filter((row) => row['model'] === part.model)
    const sum = own.reduce((all, row) => all + Number(row['charge_nanodollars']), 0)
    expect(of(part)).toMatchObject({ calls: own.length, charge_nanodollars: sum })
  }
  const store = openReader(cast.house().data, 'ledger')
  try {
    expect(findFaults(store)).toEqual([])
  } finally {
    store.sqlite.close()
  }
})

test('nothing stays in flight', async () => {
  expect(await cast.quiet()).toBe(true)
})
