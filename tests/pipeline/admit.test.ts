import { expect, test } from 'bun:test'
import { Failure } from '../../src/base/failure.ts'
import { admit } from '../../src/pipeline/admit.ts'
import type { House } from '../../src/pipeline/house.ts'
import { hotPath } from '../../src/pipeline/pipeline.ts'
import { arrival, codeOf, unitHouse } from './unit-house.ts'

const config = { server: { body_bytes_max: 2_048, in_flight_max: 2 }, timeouts: { total_ms: 5_000 } }

test.each([
  ['2048', 'ok'],
  ['2049', 'body_too_large'],
  ['99999999999999999999', 'body_too_large'],
  // Not a length at all: the frame stage's to refuse.
  ['3, 3', 'ok'],
])('a body declared with %s bytes of 2048: %s', async (length, wanted) => {
  await using unit = await unitHouse({ config })
  const admitted = admit(arrival({ headers: { 'content-length': length } }), unit.house)
  expect(codeOf(admitted)).toBe(wanted)
  expect(unit.inFlight()).toBe(wanted === 'ok' ? 1 : 0)
  if (admitted instanceof Failure) expect(admitted.detail.says).toContain('2048 bytes')
})

test('the ceiling of calls in flight is exact, and a refusal takes no place', async () => {
  await using unit = await unitHouse({ config })
  const codes = Array.from({ length: 4 }, () => codeOf(admit(arrival(), unit.house)))
  expect(codes).toEqual(['ok', 'ok', 'overloaded', 'overloaded'])
  expect(unit.inFlight()).toBe(2)
})

test.each([
  ['draining', (house: House) => ({ ...house, draining: true })],
  ['journal_full', (house: House) => ({ ...house, journal: { ...house.journal, has_room: () => false } })],
] as const)('%s refuses before anything is taken', async (wanted, change) => {
  await using unit = await unitHouse({ config })
  const refused = admit(arrival(), change(unit.house))
  expect(codeOf(refused)).toBe(wanted)
  expect((refused as Failure).detail.retry_after_s).toBeGreaterThan(0)
  expect(unit.inFlight()).toBe(0)
})

test('a call starts with its deadline, an id of its own and nothing known', async () => {
  await using unit = await unitHouse({ config })
  const call = admit(arrival(), unit.house)
  const other = admit(arrival(), unit.house)
  if (call instanceof Failure || other instanceof Failure) throw new Error('refused')
  expect(call.deadline_tick_ms - call.started_tick_ms).toBe(5_000)
  expect(call).toMatchObject({ at: 'admit', key: undefined, tenant: undefined, body: undefined, open: true })
  expect(call.id).not.toBe(other.id)
})

test('a call that a later stage refuses gives its place back, whichever stage it is', async () => {
  await using unit = await unitHouse({ config })
  const refusals: string[] = []
  const serve = hotPath((failure) => {
    refusals.push(`${failure.code} after ${unit.inFlight()}`)
    return new Response()
  })
  const requests = [
    arrival({ headers: { host: 'a, b' } }),
    arrival({ headers: { authorization: 'Bearer nobody' } }),
    arrival({ body: '{' }),
    arrival({ body: '{"model":"m9","messages":[]}' }),
  ]
  for (const request of requests) await serve(request, unit.house)
  expect(refusals).toEqual([
    'header_invalid after 0',
    'key_invalid after 0',
    'json_invalid after 0',
    'model_unknown after 0',
  ])
})
