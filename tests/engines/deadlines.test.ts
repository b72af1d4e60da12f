import { expect, test } from 'bun:test'
import { Deadlines, type Timed } from '../../src/engines/deadlines.ts'
import { forAllAsync } from '../kit/wait.ts'

const entry = (expire: () => void): Timed => ({ due_tick_ms: 0, slot: -1, expire })

test('each fires once, in time, never early; a cleared one never; a moved one at its new moment', async () => {
  const deadlines = new Deadlines()
  const from_ms = performance.now()
  const fired: { name: string; at_ms: number }[] = []
  const named = (name: string) => entry(() => fired.push({ name, at_ms: performance.now() - from_ms }))
  const [long, short, cleared, moved] = [named('long'), named('short'), named('cleared'), named('moved')]
  deadlines.set(long, 60)
  deadlines.set(cleared, 15)
  deadlines.set(short, 20)
  deadlines.set(moved, 10)
  deadlines.set(moved, 40)
  deadlines.clear(cleared)
  deadlines.clear(cleared)
  expect(deadlines.size).toBe(3)
  await Bun.sleep(120)
  expect(fired.map(({ name }) => name)).toEqual(['short', 'moved', 'long'])
  for (const [index, due] of [20, 40, 60].entries()) expect(fired[index]!.at_ms).toBeGreaterThanOrEqual(due)
  expect(deadlines.size).toBe(0)
})

test('an expiring one may clear, move and set others', async () => {
  const deadlines = new Deadlines()
  const fired: string[] = []
  const cleared = entry(() => fired.push('cleared'))
  const later = entry(() => fired.push('later'))
  const moved = entry(() => fired.push('moved'))
  const again = entry(() => fired.push('again'))
  const first = entry(() => {
    fired.push('first')
    deadlines.clear(cleared)
    deadlines.set(moved, 10)
    deadlines.set(later, 5)
    if (fired.length === 1) deadlines.set(first, 2)
  })
  for (const one of [first, cleared, moved, again]) deadlines.set(one, 10)
  await Bun.sleep(60)
  expect(fired.toSorted()).toEqual(['again', 'first', 'first', 'later', 'moved'].toSorted())
  expect(deadlines.size).toBe(0)
})

test('any mix of sets and clears: exactly those left fire', async () => {
  await forAllAsync(5, async (roll) => {
    const deadlines = new Deadlines()
    const fired = new Set<number>()
    const entries = Array.from({ length: 50 }, (_, n) => entry(() => fired.add(n)))
    const left = new Set<number>()
    for (let step = 0; step < 500; step++) {
      const n = roll(50)
      if (roll(3) === 0) {
        deadlines.clear(entries[n]!)
        left.delete(n)
      } else {
        deadlines.set(entries[n]!, 10 + roll(20))
        left.add(n)
      }
      expect(deadlines.size).toBe(left.size)
    }
    await Bun.sleep(80)
    expect([...fired].toSorted()).toEqual([...left].toSorted())
  })
})
