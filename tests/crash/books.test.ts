import { expect, test } from 'bun:test'
import { runBooks } from './books-long.ts'

test('500 calls: the ledger’s tokens are the engines’ own, and its money an independent sum', async () => {
  const { made, endings, failed_over } = await runBooks(500, 20)
  expect(made).toBe(500)
  expect(failed_over).toBeGreaterThan(10)
  // Every way of ending was there, and every figure is an engine's.
  expect(Object.keys(endings).toSorted()).toEqual([
    'cut_by_client/engine',
    'cut_by_engine/engine',
    'refused/engine',
    'whole/engine',
  ])
})
