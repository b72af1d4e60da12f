import { expect, test } from 'bun:test'
import { KINDS, runBooks } from './books-long.ts'

test('500 calls: the ledger’s tokens are the engines’ own, and its money an independent sum', async () => {
  const { counted, kinds, endings, failed_over, ...having } = await runBooks(500, 20)
  expect(counted).toBeGreaterThanOrEqual(500)
  expect(Object.keys(kinds).toSorted()).toEqual([...KINDS].toSorted())
  for (const count of [having.with_cached, having.with_reasoning, having.with_sound]) expect(count).toBeGreaterThan(10)
  expect(failed_over).toBeGreaterThan(10)
  // Every way of ending was there, and every figure is an engine's.
  expect(Object.keys(endings).toSorted()).toEqual([
    'cut_by_client/engine',
    'cut_by_engine/engine',
    'refused/engine',
    'whole/engine',
  ])
})
