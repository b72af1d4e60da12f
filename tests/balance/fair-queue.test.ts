import { expect, test } from 'bun:test'
import { CLASS_TOKENS, KeyQueue, keyOf, PRIORITIES, type Priority } from '../../src/balance/fair-queue.ts'
import { flowOf, headOf, queueTime, refund, serve, showHead, startTag } from '../../src/balance/fair-time.ts'
import { openTable, subjectOf } from '../../src/table/table.ts'
import { forAll, pick, tempFolder } from '../kit/wait.ts'
import { tableIn } from './kit.ts'

type Item = {
  readonly tenant: string
  readonly key: number
  readonly start: number
  readonly cost: number
  readonly nth: number
}

/** A queue of one model, as the workers of a house would run it together. */
const opened = (folder: { readonly path: string }) => {
  const table = tableIn(folder)
  const model = subjectOf(table, 'model', 'm')!
  const queue = new KeyQueue<Item>()
  let nth = 0
  const push = (tenant: string, cost = 100, priority: Priority = 'normal'): Item => {
    const start = startTag(table, model, flowOf('m', tenant), cost)
    const item = { tenant, cost, start, key: keyOf(start, priority), nth: nth++ }
    queue.push(item)
    return item
  }
  const next = (): Item | undefined => {
    const head = queue.head()
    if (head === undefined) return undefined
    queue.remove(head)
    serve(table, model, head.start)
    return head
  }
  const drain = (): Item[] => {
    const out: Item[] = []
    for (let item = next(); item; item = next()) out.push(item)
    return out
  }
  return { table, model, queue, push, next, drain }
}

test('one tenant is served in order', () => {
  using folder = tempFolder()
  const { push, drain } = opened(folder)
  const items = Array.from({ length: 10 }, () => push('a'))
  expect(drain()).toEqual(items)
})

test('a flood of one tenant does not delay another by more than a turn', () => {
  using folder = tempFolder()
  const { push, drain, next } = opened(folder)
  for (let nth = 0; nth < 500; nth++) push('flood', 1_000)
  for (let turn = 0; turn < 100; turn++) next()
  for (let nth = 0; nth < 10; nth++) push('small', 1_000)
  const at = drain().flatMap(({ tenant }, place) => (tenant === 'small' ? [place] : []))
  for (const [nth, place] of at.entries()) expect(place).toBeLessThanOrEqual(2 * nth + 2)
})

test('tenants share by tokens, not by calls', () => {
  using folder = tempFolder()
  const { push, next } = opened(folder)
  for (let nth = 0; nth < 400; nth++) push('large', 10_000)
  for (let nth = 0; nth < 400; nth++) push('small', 500)
  const served = { large: 0, small: 0 }
  for (let turn = 0; turn < 200; turn++) {
    const { tenant, cost } = next()!
    served[tenant as 'large' | 'small'] += cost
  }
  expect(served.large / served.small).toBeGreaterThan(0.8)
  expect(served.large / served.small).toBeLessThan(1.25)
})

test('a tenant that was quiet has saved nothing up and owes nothing', () => {
  using folder = tempFolder()
  const { push, next, table, model } = opened(folder)
  push('quiet', 50_000)
  next()
  for (let nth = 0; nth < 1_000; nth++) push('busy', 1_000)
  for (let turn = 0; turn < 900; turn++) next()
  const first = push('quiet')
  expect(first.start).toBe(queueTime(table, model))
  expect(push('quiet').start).toBe(first.start + 100)
})

test('a class goes before the next one until that has waited for so many tokens', () => {
  using folder = tempFolder()
  const { push, next } = opened(folder)
  push('a', 100, 'low')
  push('b', 100, 'normal')
  for (let nth = 0; nth < 2_000; nth++) push('c', 100, 'high')
  const order = Array.from({ length: 1_500 }, () => next()!.tenant)
  const tokens_before = (tenant: string) => order.indexOf(tenant) * 100
  expect(order[0]).toBe('c')
  expect(tokens_before('b')).toBeGreaterThan(CLASS_TOKENS * 0.9)
  expect(tokens_before('b')).toBeLessThan(CLASS_TOKENS * 1.1)
  expect(tokens_before('a')).toBeGreaterThan(CLASS_TOKENS * 1.9)
  expect(tokens_before('a')).toBeLessThan(CLASS_TOKENS * 2.1)
})

test('who gives up pays nothing', () => {
  using folder = tempFolder()
  const { push, queue, table, model } = opened(folder)
  for (let nth = 0; nth < 20; nth++) {
    const item = push('a', 1_000)
    expect(item.start).toBe(queueTime(table, model))
    queue.remove(item)
    refund(table, flowOf('m', 'a'), item.cost)
  }
})

test('workers see each other’s heads and one virtual time', () => {
  using folder = tempFolder()
  const { table, model } = opened(folder)
  const other = openTable(`${folder.path}/table`)
  expect(headOf(other, model, 3)).toBe(0)
  showHead(table, model, 3, 7)
  expect([headOf(other, model, 3), headOf(other, model, 2)]).toEqual([7, 0])
  const large = 2 ** 40
  showHead(table, model, 3, large)
  expect(headOf(other, model, 3)).toBe(large)
  serve(table, model, 50)
  serve(other, model, 40)
  expect(queueTime(table, model)).toBe(50)
  expect(startTag(other, model, flowOf('m', 'a'), 10)).toBe(50)
  expect(startTag(table, model, flowOf('m', 'a'), 10)).toBe(60)
})

test('whatever comes and goes: nothing is lost or served twice, always the smallest key, equal keys in their order', () => {
  forAll(200, (roll) => {
    const queue = new KeyQueue<{ key: number; nth: number }>()
    const inside = new Set<{ key: number; nth: number }>()
    for (let nth = 0; nth < 200; nth++) {
      const what = roll(5)
      if (what < 3) {
        const item = { key: keyOf(roll(30), pick(roll, PRIORITIES)), nth }
        expect(queue.push(item)).toBe([...inside].filter(({ key }) => key <= item.key).length)
        inside.add(item)
      } else if (what === 3) {
        const head = queue.head()
        const least = [...inside].toSorted((one, other) => one.key - other.key || one.nth - other.nth)
        expect(head).toBe(least[0])
        expect(queue.last()).toBe(least.at(-1))
        if (head === undefined) continue
        queue.remove(head)
        inside.delete(head)
      } else if (inside.size > 0) {
        const gone = pick(roll, [...inside])
        expect(queue.remove(gone)).toBe(true)
        expect(queue.remove(gone)).toBe(false)
        inside.delete(gone)
      }
      expect(queue.size).toBe(inside.size)
    }
  })
})
