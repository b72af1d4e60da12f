import { expect, test } from 'bun:test'
import { turnEnd } from '../../src/base/turn.ts'

const nextTurn = () => new Promise((resolve) => setImmediate(resolve))

/** Leaves a turn behind in which so many waited. */
const turnOf = async (waiters: number): Promise<void> => {
  for (let waiter = 0; waiter < waiters; waiter++) void turnEnd()
  await nextTurn()
}

test('who is alone, as in the turn before, goes on at once', async () => {
  await turnOf(1)
  const order: string[] = []
  setImmediate(() => order.push('end'))
  void turnEnd().then(() => order.push('alone'))
  await nextTurn()
  expect(order).toEqual(['alone', 'end'])
})

test('after a turn of several all go on together, after what was due in it', async () => {
  await turnOf(2)
  const order: string[] = []
  const first = turnEnd().then(() => order.push('first'))
  setImmediate(() => order.push('due later'))
  queueMicrotask(() => order.push('microtask'))
  await Promise.resolve().then(() => turnEnd())
  order.push('second')
  await first
  expect(order).toEqual(['microtask', 'first', 'second'])
})

test('the second in a turn waits for its end, and each turn has an end of its own', async () => {
  await turnOf(1)
  void turnEnd()
  const one = turnEnd()
  expect(turnEnd()).toBe(one)
  await one
  const next = turnEnd()
  expect(next).not.toBe(one)
  await next
})
