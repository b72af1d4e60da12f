import { expect, test } from 'bun:test'
import { FairQueue, PRIORITIES, type Priority, type Waiting } from '../../src/balance/fair-queue.ts'
import { forAll, pick } from '../kit/wait.ts'

type Item = Waiting & { readonly nth: number }
const item = (tenant: string, nth = 0, cost = 100, priority: Priority = 'normal'): Item => ({
  tenant,
  nth,
  cost,
  priority,
})

const drain = (queue: FairQueue<Item>): Item[] => {
  const out: Item[] = []
  for (let head = queue.head(); head; head = queue.head()) {
    queue.take(head)
    out.push(head)
  }
  return out
}

test('one tenant is served in order', () => {
  const queue = new FairQueue<Item>()
  for (let nth = 0; nth < 10; nth++) queue.push(item('a', nth))
  expect(drain(queue).map(({ nth }) => nth)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
  expect(queue.size).toBe(0)
})

test('a flood of one tenant does not delay another by more than a round', () => {
  const queue = new FairQueue<Item>()
  for (let nth = 0; nth < 500; nth++) queue.push(item('flood', nth, 1_000))
  for (let nth = 0; nth < 10; nth++) queue.push(item('small', nth, 1_000))
  expect(queue.before('late', 'normal')).toBe(2)
  const order = drain(queue)
  const at = order.flatMap(({ tenant }, place) => (tenant === 'small' ? [place] : []))
  expect(at).toEqual([1, 3, 5, 7, 9, 11, 13, 15, 17, 19])
})

test('tenants share by tokens, not by calls', () => {
  const queue = new FairQueue<Item>()
  for (let nth = 0; nth < 400; nth++) queue.push(item('large', nth, 10_000))
  for (let nth = 0; nth < 400; nth++) queue.push(item('small', nth, 500))
  const served = { large: 0, small: 0 }
  for (let turn = 0; turn < 200; turn++) {
    const head = queue.head()!
    queue.take(head)
    served[head.tenant as 'large' | 'small'] += head.cost
  }
  expect(served.large / served.small).toBeGreaterThan(0.8)
  expect(served.large / served.small).toBeLessThan(1.25)
})

test('classes go before one another, and the lowest does not starve', () => {
  const queue = new FairQueue<Item>()
  for (let nth = 0; nth < 30; nth++)
    for (const priority of PRIORITIES) queue.push(item(`t${nth % 3}`, nth, 100, priority))
  const order = drain(queue).map(({ priority }) => priority)
  expect(order.slice(0, 24).filter((one) => one === 'high')).toHaveLength(21)
  expect(order.slice(0, 24).filter((one) => one === 'low')).toHaveLength(3)
  expect(order.indexOf('normal')).toBeGreaterThan(order.slice(0, 30).lastIndexOf('high') - 1)
})

test('who waits less takes the place of the newest of who waits most', () => {
  const queue = new FairQueue<Item>()
  for (let nth = 0; nth < 5; nth++) queue.push(item('flood', nth))
  expect(queue.pushOut('flood', 'normal')).toBeUndefined()
  expect(queue.pushOut('small', 'normal')).toMatchObject({ tenant: 'flood', nth: 4 })
  expect(queue.size).toBe(4)
  queue.push(item('vip', 0, 1, 'high'))
  // A lower class never pushes a higher one out.
  for (let nth = 0; nth < 9; nth++) queue.push(item('vip', nth, 1, 'high'))
  expect(queue.pushOut('small', 'low')).toBeUndefined()
})

test('whatever comes and goes: nothing is lost, nothing is served twice, each tenant in its order', () => {
  forAll(200, (roll) => {
    const queue = new FairQueue<Item>()
    const inside = new Set<Item>()
    const last = new Map<string, number>()
    for (let step = 0; step < 200; step++) {
      const what = roll(5)
      if (what < 3) {
        const one = item(`t${roll(5)}`, step, 1 + roll(20_000), pick(roll, PRIORITIES))
        queue.push(one)
        inside.add(one)
      } else if (what === 3) {
        const head = queue.head()
        expect(head === undefined).toBe(inside.size === 0)
        if (head === undefined) continue
        queue.take(head)
        expect(inside.delete(head)).toBe(true)
        const line = `${head.tenant} ${head.priority}`
        expect(head.nth).toBeGreaterThan(last.get(line) ?? -1)
        last.set(line, head.nth)
      } else if (inside.size > 0) {
        const gone = pick(roll, [...inside])
        expect(queue.remove(gone)).toBe(true)
        expect(queue.remove(gone)).toBe(false)
        inside.delete(gone)
      }
      expect(queue.size).toBe(inside.size)
    }
    expect(new Set(queue)).toEqual(inside)
  })
})
