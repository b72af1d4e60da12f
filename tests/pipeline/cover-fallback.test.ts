import { expect, test } from 'bun:test'
import { Failure } from '../../src/base/failure.ts'
import type { Call } from '../../src/pipeline/call.ts'
import { coverFallback } from '../../src/pipeline/cover-fallback.ts'
import { admit } from '../../src/pipeline/admit.ts'
import { frame } from '../../src/pipeline/frame.ts'
import { identify } from '../../src/pipeline/identify.ts'
import { limit } from '../../src/pipeline/limit.ts'
import { nextTarget } from '../../src/pipeline/route.ts'
import { endCall } from '../../src/pipeline/settle.ts'
import { retryAllowed } from '../../src/balance/retry-budget.ts'
import { takeRate } from '../../src/quota/gcra.ts'
import { budgetUsed } from '../../src/table/budget-slot.ts'
import { SUBJECT } from '../../src/table/layout.ts'
import { arrival, NOW_MS, unitHouse } from './unit-house.ts'

const LIMITS = { requests_per_minute: 2, concurrent: 2, tokens_per_minute: 2_000 }
const PRICE = { input: '1', output: '2' }
const config = (limits: object) => ({
  engines: [
    { name: 'e', url: 'http://127.0.0.1:9/v1' },
    { name: 'f', url: 'http://127.0.0.1:9/v1' },
  ],
  models: [
    { name: 'm1', targets: [{ engine: 'e' }], price: PRICE, fallbacks: ['m2'], limits: { tokens_per_minute: 9_000 } },
    { name: 'm2', targets: [{ engine: 'f' }], price: PRICE, limits, budgets: [{ usd: '1' }] },
  ],
  tenants: [{ name: 'acme', budgets: [{ usd: '1' }], limits: { tokens_per_minute: 9_000 } }],
})

type Unit = Awaited<ReturnType<typeof unitHouse>>

/** A call as it is when an engine is chosen. */
const limited = async ({ house }: Unit, extra = '"max_tokens":100'): Promise<Call> => {
  const admitted = admit(arrival({ body: `{"model":"m1","messages":[],${extra}}` }), house)
  if (admitted instanceof Failure) throw new Error(admitted.code)
  const framed = frame(admitted, house)
  if (framed instanceof Failure) throw new Error(framed.code)
  const identified = identify(framed, house)
  if (identified instanceof Failure) throw new Error(identified.code)
  const call = await limit(identified, house)
  if (call instanceof Failure || call instanceof Response) throw new Error('refused')
  return call
}
const modelOf = ({ house }: Unit, name: string) => house.catalogue.models.get(name)!
/** What of a model's own limits and of its budget is taken. */
const taken = ({ house }: Unit, model: ReturnType<typeof modelOf>) => {
  const { i32, i64 } = house.table
  const subject = model.limits_subject!
  const ahead = (cell: number) => Math.max(0, Number(Atomics.load(i64, subject + cell)) / 1e6 - NOW_MS)
  const money = model.budgets.map(({ budget: { last } }) =>
    last.slot < 0 ? 0 : Number(budgetUsed(house.table, last.slot, last.window)!),
  )
  return {
    places: Atomics.load(i32, subject * 2 + SUBJECT.count),
    held: Number(Atomics.load(i64, subject + SUBJECT.amount)),
    requests_ms: ahead(SUBJECT.rate_tat_ns),
    tokens_ms: ahead(SUBJECT.token_tat_ns),
    money,
  }
}
const FREE = { places: 0, held: 0, requests_ms: 0, tokens_ms: 0, money: [0] }

test('a fallback takes of its own limits and budget, once; what answered has the tokens, the other gets its own back', async () => {
  await using unit = await unitHouse({ config: config(LIMITS) })
  const { house } = unit
  const [asked, fallback] = [modelOf(unit, 'm1'), modelOf(unit, 'm2')]
  const call = await limited(unit)
  const { tokens } = call.held!
  expect(taken(unit, asked)).toMatchObject({ held: tokens })
  expect(coverFallback(call, house, fallback)).not.toHaveProperty('why')
  const once = taken(unit, fallback)
  expect(once).toMatchObject({ places: 1, held: tokens, requests_ms: 30_000, tokens_ms: 0 })
  expect(coverFallback(call, house, fallback)).not.toHaveProperty('why')
  expect(taken(unit, fallback)).toEqual(once)
  call.target = fallback.targets[0]
  call.intended = true
  const usage = { prompt_tokens: 40, completion_tokens: 60, cached_tokens: 0, reasoning_tokens: 0 }
  endCall(call, house, {
    ending: 'whole',
    status: 200,
    usage: { ...usage, audio_input_tokens: 0, audio_output_tokens: 0 },
  })
  // A hundred tokens of two thousand a minute.
  const charge = 40 * 1_000 + 60 * 2_000
  expect(taken(unit, fallback)).toEqual({
    places: 0,
    held: 0,
    requests_ms: 30_000,
    tokens_ms: 3_000,
    money: [charge],
  })
  expect(taken(unit, asked)).toMatchObject({ held: 0, tokens_ms: 0 })
})

test.each([
  ['requests_per_minute', 30_000],
  ['concurrent', 1_000],
  ['tokens_per_minute', undefined],
] as const)('a fallback that is full by %s is not to be asked, and nothing stays taken', async (name, wait_ms) => {
  await using unit = await unitHouse({ config: config({ ...LIMITS, [name]: name === 'tokens_per_minute' ? 800 : 1 }) })
  const { house } = unit
  const fallback = modelOf(unit, 'm2')
  const first = await limited(unit)
  expect(coverFallback(first, house, fallback)).not.toHaveProperty('why')
  const before = taken(unit, fallback)
  if (name === 'requests_per_minute') unit.clock.now_ms += 30_000
  const second = await limited(unit)
  const held = second.held
  expect(coverFallback(second, house, fallback)).toMatchObject({ why: 'limited', ...(wait_ms && { wait_ms }) })
  expect(taken(unit, fallback)).toEqual(before)
  expect(second.held).toBe(held)
  for (const call of [first, second]) endCall(call, house, { ending: 'refused', status: 500 })
  expect(taken(unit, fallback)).toEqual({ ...FREE, requests_ms: before.requests_ms })
})

test('a fallback whose budget does not have it takes nothing of its limits', async () => {
  await using unit = await unitHouse({ config: config(LIMITS) })
  const fallback = modelOf(unit, 'm2')
  const poor = { ...fallback, prices: [{ ...fallback.prices[0]!, output: 1_000_000_000_000 }] }
  const call = await limited(unit)
  expect(coverFallback(call, unit.house, poor)).toMatchObject({ why: 'unpaid' })
  expect(taken(unit, fallback)).toEqual(FREE)
})

test('a fallback that the retry budget does not pay for is as free as before', async () => {
  await using unit = await unitHouse({ config: config(LIMITS) })
  const { house } = unit
  const [asked, fallback] = [modelOf(unit, 'm1'), modelOf(unit, 'm2')]
  const call = await limited(unit)
  while (retryAllowed(house.table, asked, house.now()));
  const before = [taken(unit, asked), call.held, call.claims.length]
  expect(nextTarget(call, house, [asked.targets[0]!])).toMatchObject({ code: 'no_engine' })
  expect(taken(unit, fallback)).toEqual(FREE)
  expect([taken(unit, asked), call.held, call.claims.length]).toEqual(before)
  const subject = fallback.limits_subject!
  const ask = () => takeRate(house.table, subject, 'rate_tat_ns', LIMITS.requests_per_minute, 1, NOW_MS).admitted
  expect([ask(), ask(), ask()]).toEqual([true, true, false])
})

test('an answer without a bound gets what a whole minute of the fallback allows', async () => {
  await using unit = await unitHouse({ config: config({ tokens_per_minute: 1_000 }) })
  const call = await limited(unit, '"user":"u"')
  expect(call.held!.ceiling_tokens).toBeGreaterThan(1_000)
  expect(coverFallback(call, unit.house, modelOf(unit, 'm2'))).not.toHaveProperty('why')
  expect(taken(unit, modelOf(unit, 'm2')).held).toBe(1_000)
  expect(call.held!.ceiling_tokens).toBe(1_000 - call.body!.bytes.length - 256)
})
