import { expect, test } from 'bun:test'
import { PRIORITIES } from '../../src/balance/fair-queue.ts'
import { Failure } from '../../src/base/failure.ts'
import { giveCounts, takeCounts } from '../../src/table/counts.ts'
import { SUBJECT } from '../../src/table/layout.ts'
import { forAllAsync, pick } from '../kit/wait.ts'
import { configOf, waiting } from './queue-kit.ts'
import { unitHouse } from './unit-house.ts'

/** A full queue: calls give way, in two workers, and no place of it is lost, or kept by nobody. */

const opened = async (size: number) => {
  const unit = await unitHouse({ config: configOf(1, size) })
  const { house } = unit
  const { subject } = house.catalogue.models.get('m1')!
  const engine = house.catalogue.engines.get('e')!.subject
  const { i32 } = house.table
  return {
    unit,
    workers: [house, { ...house, worker: 1 }],
    claim: { subject, limit: 1_000 },
    waits: () => Atomics.load(i32, subject * 2 + SUBJECT.count),
    of: (worker: number) => Atomics.load(i32, subject * 2 + SUBJECT.count_columns + worker),
    placed: () => Atomics.load(i32, engine * 2 + SUBJECT.count),
    [Symbol.asyncDispose]: () => unit[Symbol.asyncDispose](),
  }
}
const settled = () => Bun.sleep(0)
const codeOf = (got: unknown) => (got instanceof Failure ? got.code : got)

test('a call that gives way while others fill the queue beyond its most: both are told, and neither keeps a place', async () => {
  await using queue = await opened(1)
  const { unit, claim } = queue
  const running = waiting(unit)
  const low = waiting(unit, { priority: 'low' })
  await settled()
  expect([running.got() instanceof Failure, low.got(), queue.waits()]).toEqual([false, undefined, 1])
  // Another worker's, before this one could look: 64 more than its size, and one.
  for (let nth = 0; nth < 65; nth++) expect(takeCounts(unit.house.table, 1, [claim])).toBe(-1)
  const high = waiting(unit, { priority: 'high' })
  await settled()
  expect([low, high].map(({ got }) => codeOf(got()))).toEqual(['queue_full', 'queue_full'])
  expect([queue.waits(), queue.of(0), queue.of(1)]).toEqual([65, 0, 65])
  for (let nth = 0; nth < 65; nth++) giveCounts(unit.house.table, 1, [claim])
  // There is room again, and the engine's place goes to who comes.
  const next = waiting(unit)
  await settled()
  expect([next.got(), queue.waits()]).toEqual([undefined, 1])
  running.leave()
  await settled()
  expect([next.got() === undefined, queue.waits(), queue.placed()]).toEqual([false, 0, 1])
})

test('whatever comes, leaves and gives way: every place of the queue is that of a call that waits', async () => {
  await forAllAsync(12, async (roll) => {
    await using queue = await opened(3)
    const calls = new Map<ReturnType<typeof waiting>, AbortController>()
    const open = () => [...calls.keys()].filter(({ got }) => got() === undefined)
    for (let nth = 0; nth < 150; nth++) {
      const what = roll(10)
      if (what < 7) {
        const leaves = new AbortController()
        const settings = {
          tenant: pick(roll, ['a', 'b', 'c']),
          priority: pick(roll, PRIORITIES),
          tokens: 1 + roll(1_000),
          signal: leaves.signal,
        }
        calls.set(waiting({ house: pick(roll, queue.workers) }, settings), leaves)
      } else if (what < 8 && open().length > 0) calls.get(pick(roll, open()))!.abort()
      else
        for (const call of calls.keys()) if (call.got() !== undefined && !(call.got() instanceof Failure)) call.leave()
      // Bursts of several at once, in which a worker has no turn.
      if (roll(4) > 0) continue
      await settled()
      expect(queue.waits()).toBe(open().length)
      expect(queue.placed()).toBeLessThanOrEqual(1)
    }
    // What waits is placed one after the other, by either worker.
    for (let turns = 0; open().length > 0 || queue.placed() > 0; turns++) {
      expect(turns).toBeLessThan(2_000)
      for (const call of calls.keys()) call.leave()
      queue.unit.clock.tick_ms += 20
      await Bun.sleep(2)
    }
    expect([queue.waits(), queue.of(0), queue.of(1), queue.placed()]).toEqual([0, 0, 0, 0])
    const codes = new Set([...calls.keys()].map(({ got }) => (got() instanceof Failure ? codeOf(got()) : 'placed')))
    expect(codes.isSubsetOf(new Set(['placed', 'queue_full', 'client_gone']))).toBe(true)
  })
})
