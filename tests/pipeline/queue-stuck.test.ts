import { expect, test } from 'bun:test'
import { showHead } from '../../src/balance/fair-time.ts'
import { WORKER } from '../../src/table/layout.ts'
import { workerF64 } from '../../src/table/table.ts'
import { configOf, waiting } from './queue-kit.ts'
import { unitHouse } from './unit-house.ts'

/** Another worker shows a call that is due before all of this one's, and does nothing. The clock stands until it is moved. */

const opened = async (calls: number, capacity = 1) => {
  const unit = await unitHouse({ config: configOf(capacity) })
  const { house, clock } = unit
  const { subject } = house.catalogue.models.get('m1')!
  const all = Array.from({ length: calls }, () => waiting(unit))
  return {
    placed: () => all.filter(({ got }) => got() !== undefined).length,
    /** The call that was placed last gives its place back. */
    leaves: (nth: number) => all[nth]!.leave(),
    shows: (worker: number, key: number) => showHead(house.table, subject, worker, key),
    beats: (worker: number, at_ms: number) => void (house.table.f64[workerF64(worker, WORKER.heartbeat_ms)] = at_ms),
    passes: async (ms: number) => {
      clock.tick_ms += ms
      await Bun.sleep(5)
    },
    [Symbol.asyncDispose]: () => unit[Symbol.asyncDispose](),
  }
}

test('a free place is left to a worker that is stuck once, and not once for each place', async () => {
  await using queue = await opened(30)
  await queue.passes(0)
  expect(queue.placed()).toBe(1)
  queue.shows(1, 1)
  queue.leaves(0)
  await queue.passes(19)
  expect(queue.placed()).toBe(1)
  await queue.passes(1)
  expect(queue.placed()).toBe(2)
  for (let nth = 1; nth < 20; nth++) {
    queue.leaves(nth)
    await queue.passes(0)
    expect(queue.placed()).toBe(nth + 2)
  }
})

test.each([
  ['beats', (queue: Awaited<ReturnType<typeof opened>>) => queue.beats(1, 5)],
  ['has had its turn', (queue: Awaited<ReturnType<typeof opened>>) => queue.shows(1, 2)],
])('one that %s is waited for again', async (_why, moves) => {
  await using queue = await opened(5)
  queue.shows(1, 1)
  queue.leaves(0)
  await queue.passes(20)
  expect(queue.placed()).toBe(2)
  moves(queue)
  queue.leaves(1)
  await queue.passes(19)
  expect(queue.placed()).toBe(2)
  await queue.passes(1)
  expect(queue.placed()).toBe(3)
})

test('of several that are stuck each has its time, and one that is not has its turn', async () => {
  await using queue = await opened(5)
  queue.shows(1, 1)
  queue.shows(2, 1)
  queue.leaves(0)
  await queue.passes(20)
  expect(queue.placed()).toBe(1)
  await queue.passes(20)
  expect(queue.placed()).toBe(2)
  queue.shows(3, 1)
  queue.leaves(1)
  await queue.passes(19)
  expect(queue.placed()).toBe(2)
  queue.shows(3, 0)
  await queue.passes(0)
  expect(queue.placed()).toBe(3)
})
