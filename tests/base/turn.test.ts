import { expect, test } from 'bun:test'
import { turnEnd } from '../../src/base/turn.ts'

test('all who wait in a turn go on together, after what was due in it', async () => {
  const order: string[] = []
  const first = turnEnd().then(() => order.push('first'))
  setImmediate(() => order.push('due later'))
  queueMicrotask(() => order.push('microtask'))
  await Promise.resolve().then(() => turnEnd())
  order.push('second')
  await first
  expect(order).toEqual(['microtask', 'first', 'second'])
})

test('each turn has an end of its own', async () => {
  const one = turnEnd()
  expect(turnEnd()).toBe(one)
  await one
  const next = turnEnd()
  expect(next).not.toBe(one)
  await next
})
