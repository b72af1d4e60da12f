import { expect, test } from 'bun:test'
import { Lane } from '../../src/jobs/lanes.ts'
import { type OwnJob } from '../../src/jobs/store.ts'

const job = (tenant: string, nth: number) => ({ id: `${tenant}${nth}`, meta: { tenant } }) as unknown as OwnJob

test('tenants take turns however many jobs each has, and each tenant’s jobs keep their order', () => {
  const lane = new Lane()
  for (let nth = 0; nth < 3; nth++) lane.push(job('a', nth))
  for (let nth = 0; nth < 2; nth++) lane.push(job('b', nth))
  lane.push(job('c', 0))
  const order = Array.from({ length: 6 }, () => lane.shift()!.id)
  expect(order).toEqual(['a0', 'b0', 'c0', 'a1', 'b1', 'a2'])
  expect([lane.size, lane.shift()]).toEqual([0, undefined])
})

test('a long line keeps its order while its head is cut off', () => {
  const lane = new Lane()
  const seen: string[] = []
  for (let nth = 0; nth < 10_000; nth++) {
    lane.push(job('a', nth))
    if (nth % 3 !== 0) seen.push(lane.shift()!.id)
  }
  while (lane.size > 0) seen.push(lane.shift()!.id)
  expect(seen).toEqual(Array.from({ length: 10_000 }, (_, nth) => `a${nth}`))
})
