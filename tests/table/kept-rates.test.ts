import { expect, test } from 'bun:test'
import { writeFileSync } from 'node:fs'
import { takeRate } from '../../src/quota/gcra.ts'
import { holdTokens, settleTokens } from '../../src/quota/rates.ts'
import { budgetSlot, holdBudgets } from '../../src/table/budget-slot.ts'
import { claimOn, openBudget } from '../../src/quota/budgets.ts'
import { takeCounts } from '../../src/table/counts.ts'
import { keptRates, restoreRates } from '../../src/table/kept-rates.ts'
import { HEADER, SUBJECT } from '../../src/table/layout.ts'
import { createTable, subjectOf, type Table } from '../../src/table/table.ts'
import { tempFolder } from '../kit/wait.ts'

const NOW_MS = 1_790_000_000_000
const PER_MINUTE = 10

/** A new table in the place of the old one, as a house that starts makes it. */
const again = (path: string, now_ms: number, subjects_max = 64): Table => {
  const rates = keptRates(path, now_ms)
  const table = createTable(path, subjects_max, now_ms)
  restoreRates(table, rates)
  return table
}

const admitted = (table: Table, name: string, now_ms: number, per_minute = PER_MINUTE): number => {
  let count = 0
  while (takeRate(table, subjectOf(table, 'key', name)!, 'rate_tat_ns', per_minute, 1, now_ms).admitted) count++
  return count
}

test('what is used of a limit outlives the house; time gives it back meanwhile', () => {
  using folder = tempFolder()
  const path = `${folder.path}/table`
  const table = createTable(path, 64, NOW_MS)
  expect(admitted(table, 'k', NOW_MS)).toBe(10)
  expect(admitted(again(path, NOW_MS), 'k', NOW_MS)).toBe(0)
  expect(admitted(again(path, NOW_MS + 18_000), 'k', NOW_MS + 18_000)).toBe(3)
  // A table of another size has other places. A key that nobody used begins with a whole minute.
  const smaller = again(path, NOW_MS + 18_000, 8)
  expect([admitted(smaller, 'k', NOW_MS + 18_000), admitted(smaller, 'other', NOW_MS + 18_000)]).toEqual([0, 10])
  expect(admitted(again(path, NOW_MS + 78_000), 'k', NOW_MS + 78_000)).toBe(10)
})

test('a limit that was changed meanwhile has the same share used', () => {
  using folder = tempFolder()
  const path = `${folder.path}/table`
  const table = createTable(path, 64, NOW_MS)
  for (let taken = 0; taken < 5; taken++)
    takeRate(table, subjectOf(table, 'key', 'k')!, 'rate_tat_ns', PER_MINUTE, 1, NOW_MS)
  expect(admitted(again(path, NOW_MS), 'k', NOW_MS, 100)).toBe(50)
})

test('tokens that were settled stay used, also beyond the limit; held tokens and places are free', () => {
  using folder = tempFolder()
  const path = `${folder.path}/table`
  const table = createTable(path, 64, NOW_MS)
  const claims = (of: Table) => [{ subject: subjectOf(of, 'key', 'k')!, per_minute: 1_000 }]
  holdTokens(table, 0, claims(table), 100, NOW_MS)
  settleTokens(table, 0, claims(table), 100, 1_500, NOW_MS)
  holdTokens(table, 0, [{ subject: subjectOf(table, 'key', 'held')!, per_minute: 1_000 }], 1_000, NOW_MS)
  expect(takeCounts(table, 0, [{ subject: subjectOf(table, 'tenant', 't')!, limit: 1 }])).toBe(-1)
  const next = again(path, NOW_MS)
  // 500 tokens too many take half a minute longer.
  expect(holdTokens(next, 0, claims(next), 1, NOW_MS + 30_000).refused).toBe(0)
  expect(holdTokens(next, 0, claims(next), 900, NOW_MS + 30_000 + 54_000).refused).toBe(-1)
  expect(holdTokens(next, 0, [{ subject: subjectOf(next, 'key', 'held')!, per_minute: 1_000 }], 1_000, NOW_MS)).toEqual(
    expect.objectContaining({ refused: -1 }),
  )
  expect(takeCounts(next, 0, [{ subject: subjectOf(next, 'tenant', 't')!, limit: 1 }])).toBe(-1)
})

test('engines and budgets leave nothing, nor does a file that is no table of this version', () => {
  using folder = tempFolder()
  const path = `${folder.path}/table`
  const table = createTable(path, 64, NOW_MS)
  const engine = subjectOf(table, 'engine', 'e1')!
  for (const cell of [SUBJECT.rate_tat_ns, SUBJECT.token_tat_ns]) table.f64[engine + cell] = NOW_MS
  const budget = openBudget('tenant:t', 'month', 'UTC')
  holdBudgets(table, 0, [claimOn(table, budget, 1n << 62n, NOW_MS)!], BigInt(NOW_MS) * 1_000_000n + 5_000_000_000n)
  expect(budgetSlot(table, budget.name, budget.windowAt(NOW_MS).index)).toBeDefined()
  expect(keptRates(path, NOW_MS)).toEqual([])
  expect(admitted(table, 'k', NOW_MS)).toBe(10)
  expect(keptRates(path, NOW_MS)).toHaveLength(1)
  table.i32[HEADER.version] = 1
  expect(keptRates(path, NOW_MS)).toEqual([])
  writeFileSync(`${folder.path}/short`, 'no table')
  expect([keptRates(`${folder.path}/short`, 0), keptRates(`${folder.path}/none`, 0)]).toEqual([[], []])
})
