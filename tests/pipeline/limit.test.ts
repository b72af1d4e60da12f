import { expect, test } from 'bun:test'
import { Failure } from '../../src/base/failure.ts'
import { takeRate } from '../../src/quota/gcra.ts'
import type { Arrival } from '../../src/pipeline/call.ts'
import { admit } from '../../src/pipeline/admit.ts'
import { frame } from '../../src/pipeline/frame.ts'
import { identify } from '../../src/pipeline/identify.ts'
import { limit } from '../../src/pipeline/limit.ts'
import { endCall } from '../../src/pipeline/settle.ts'
import { SUBJECT } from '../../src/table/layout.ts'
import { subjectOf } from '../../src/table/table.ts'
import { arrival, codeOf, NOW_MS, unitHouse, type UnitSettings } from './unit-house.ts'

type Unit = Awaited<ReturnType<typeof unitHouse>>

const BODY = '{"model":"m1","messages":[]}'

/** Runs the stages up to the limits. A refused call ends, as it would in the pipeline. */
const take = (unit: Unit, body = BODY) => takeArrival(unit, arrival({ body }))
const takeArrival = async ({ house }: Unit, arrived: Arrival) => {
  const admitted = admit(arrived, house)
  if (admitted instanceof Failure) throw new Error(admitted.code)
  const framed = frame(admitted, house)
  if (framed instanceof Failure) throw new Error(framed.code)
  const identified = identify(framed, house)
  if (identified instanceof Failure) throw new Error(identified.code)
  const limited = await limit(identified, house)
  if (limited instanceof Response) throw new Error('answered')
  if (limited instanceof Failure) endCall(admitted, house, { ending: 'refused', status: limited.status })
  return limited
}

const acme = (limits: object): UnitSettings['config'] => ({ tenants: [{ name: 'acme', limits }] })

test.each([
  // key's limits, tenant's limits, what four calls at once get
  [{ concurrent: 2 }, {}, ['ok', 'ok', 'concurrency_exceeded', 'concurrency_exceeded']],
  [{}, { concurrent: 2 }, ['ok', 'ok', 'concurrency_exceeded', 'concurrency_exceeded']],
  [
    { concurrent: 3 },
    { concurrent: 1 },
    ['ok', 'concurrency_exceeded', 'concurrency_exceeded', 'concurrency_exceeded'],
  ],
  [
    { concurrent: 0 },
    {},
    ['concurrency_exceeded', 'concurrency_exceeded', 'concurrency_exceeded', 'concurrency_exceeded'],
  ],
  [{ requests_per_minute: 2 }, {}, ['ok', 'ok', 'rate_exceeded', 'rate_exceeded']],
  [{}, { requests_per_minute: 2 }, ['ok', 'ok', 'rate_exceeded', 'rate_exceeded']],
  [{ requests_per_minute: 3 }, { requests_per_minute: 1 }, ['ok', 'rate_exceeded', 'rate_exceeded', 'rate_exceeded']],
  [{}, {}, ['ok', 'ok', 'ok', 'ok']],
])('key %j, tenant %j', async (key, tenant, wanted) => {
  await using unit = await unitHouse({ config: acme(tenant)!, keys: [key] })
  const got: string[] = []
  for (const _ of wanted) got.push(codeOf(await take(unit)))
  expect(got).toEqual(wanted)
})

test.each([
  [{ concurrent: 0 }, {}, 'This key may have 0 calls at once.'],
  [{}, { concurrent: 0 }, 'This tenant may have 0 calls at once.'],
  [{ requests_per_minute: 0 }, {}, 'The limit of 0 requests a minute for this key is used up.'],
  [{}, { requests_per_minute: 0 }, 'The limit of 0 requests a minute for this tenant is used up.'],
])('key %j, tenant %j: %s', async (key, tenant, says) => {
  await using unit = await unitHouse({ config: acme(tenant)!, keys: [key] })
  expect(((await take(unit)) as Failure).detail.says).toBe(says)
})

test('a place is free again once its call has ended, and a refusal held none', async () => {
  await using unit = await unitHouse({ keys: [{ concurrent: 1 }] })
  const first = await take(unit)
  if (first instanceof Failure) throw new Error(first.code)
  for (let again = 0; again < 3; again++) expect(codeOf(await take(unit))).toBe('concurrency_exceeded')
  endCall(first, unit.house, { ending: 'whole', status: 200 })
  expect(codeOf(await take(unit))).toBe('ok')
})

test('a call that the tenant refuses costs the key nothing', async () => {
  await using unit = await unitHouse({
    config: acme({ requests_per_minute: 1 })!,
    keys: [{ requests_per_minute: 2 }],
  })
  expect(codeOf(await take(unit))).toBe('ok')
  for (let again = 0; again < 5; again++) expect(codeOf(await take(unit))).toBe('rate_exceeded')
  // Of the key's two a minute one is left, and only one.
  const { table } = unit.house
  const takeKey = () => takeRate(table, subjectOf(table, 'key', 'key_0')!, 'rate_tat_ns', 2, 1, NOW_MS).admitted
  expect([takeKey(), takeKey()]).toEqual([true, false])
})

test('a refusal says who is limited, to what, and when to come back; then it works', async () => {
  await using unit = await unitHouse({ keys: [{ requests_per_minute: 6 }] })
  for (let n = 0; n < 6; n++) expect(await take(unit)).toMatchObject({ rate: { remaining: 5 - n, limit: 6 } })
  const refused = (await take(unit)) as Failure
  expect(refused).toMatchObject({
    code: 'rate_exceeded',
    detail: {
      says: 'The limit of 6 requests a minute for this key is used up.',
      retry_after_s: 10,
      headers: {
        'x-ratelimit-limit-requests': '6',
        'x-ratelimit-remaining-requests': '0',
        'x-ratelimit-reset-requests': '60s',
      },
    },
  })
  unit.clock.now_ms += 9_999
  expect(codeOf(await take(unit))).toBe('rate_exceeded')
  unit.clock.now_ms += 1
  expect(codeOf(await take(unit))).toBe('ok')
})

test('limits that the head decides come before the body is judged', async () => {
  await using unit = await unitHouse({ keys: [{ requests_per_minute: 1 }] })
  expect(codeOf(await take(unit, '{'))).toBe('json_invalid')
  expect(codeOf(await take(unit, '{'))).toBe('rate_exceeded')
})

test('a model that the key may not use and one that does not exist give the same answer', async () => {
  await using unit = await unitHouse({ keys: [{ models: ['m2'] }] })
  const forbidden = (await take(unit)) as Failure
  const unknown = (await take(unit, '{"model":"m9"}')) as Failure
  expect(forbidden.detail.says!.replace('m1', 'm9')).toBe(unknown.detail.says!)
  expect([forbidden.code, unknown.code]).toEqual(['model_unknown', 'model_unknown'])
})

test('only keys with limits of their own take a place in the shared table', async () => {
  await using unit = await unitHouse({ keys: [{}] })
  const used = () => subjectOf(unit.house.table, 'filler', 'x') !== undefined
  for (let n = 0; subjectOf(unit.house.table, 'filler', String(n)) !== undefined; n++);
  expect(used()).toBe(false)
  expect(codeOf(await take(unit))).toBe('ok')
  unit.house.keys.by_sha256.forEach((key, sha256) =>
    unit.house.keys.by_sha256.set(sha256, { ...key, requests_per_minute: 5 }),
  )
  expect(await take(unit)).toMatchObject({ code: 'table_full', detail: { retry_after_s: 60 } })
})

test('bodies of all calls share a room: exact, given back by every ending, whatever the body was', async () => {
  // Room for two bodies, and a little.
  await using unit = await unitHouse({ bodies_bytes_max: 2 * BODY.length + 5 })
  const calls = [await take(unit), await take(unit)]
  expect(calls.map(codeOf)).toEqual(['ok', 'ok'])
  expect(unit.house.bodies.held_bytes).toBe(2 * BODY.length)
  expect(await take(unit)).toMatchObject({ code: 'overloaded', detail: { retry_after_s: 1 } })
  expect(codeOf(await take(unit, '{'))).toBe('json_invalid')
  expect(unit.house.bodies.held_bytes).toBe(2 * BODY.length)
  for (const call of calls) if (!(call instanceof Failure)) endCall(call, unit.house, { ending: 'whole', status: 200 })
  expect(unit.house.bodies.held_bytes).toBe(0)
  expect(codeOf(await take(unit))).toBe('ok')
})

test('what comes in for a call that is over takes no room: nothing would give it back', async () => {
  await using unit = await unitHouse({ config: { server: { body_ms: 100 } } })
  const more = Promise.withResolvers<void>()
  const pull = async (stream: ReadableStreamDefaultController) => {
    stream.enqueue(Buffer.from(BODY))
    await more.promise
    stream.enqueue(Buffer.from(BODY))
    stream.close()
  }
  let pulled = false
  const body = new ReadableStream({ pull: (stream) => (pulled ? undefined : ((pulled = true), pull(stream))) })
  expect(codeOf(await takeArrival(unit, arrival({ body })))).toBe('body_timeout')
  expect(unit.house.bodies.held_bytes).toBe(0)
  more.resolve()
  await Bun.sleep(20)
  expect(unit.house.bodies.held_bytes).toBe(0)
})

test('a body takes the room of what it unpacks to', async () => {
  await using unit = await unitHouse({ bodies_bytes_max: 1_000 })
  const ask = async (text: string) => {
    const packed = Bun.gzipSync(text)
    const headers = { 'content-encoding': 'gzip', 'content-length': String(packed.length) }
    return takeArrival(unit, arrival({ body: packed, headers }))
  }
  const spaced = (bytes: number) => BODY + ' '.repeat(bytes - BODY.length)
  expect(codeOf(await ask(spaced(2_000)))).toBe('overloaded')
  expect(unit.house.bodies.held_bytes).toBe(0)
  expect(codeOf(await ask(spaced(900)))).toBe('ok')
  expect(unit.house.bodies.held_bytes).toBe(900)
})

test('every count is zero once all calls have ended', async () => {
  await using unit = await unitHouse({ keys: [{ concurrent: 5 }] })
  const calls = [await take(unit), await take(unit), await take(unit, '{')]
  for (const call of calls) if (!(call instanceof Failure)) endCall(call, unit.house, { ending: 'whole', status: 200 })
  const { table } = unit.house
  for (const subject of [subjectOf(table, 'key', 'key_0')!, subjectOf(table, 'tenant', 'acme')!])
    expect(Atomics.load(table.i32, subject * 2 + SUBJECT.count)).toBe(0)
  expect(unit.inFlight()).toBe(0)
})
