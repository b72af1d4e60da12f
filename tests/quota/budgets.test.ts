import { expect, test } from 'bun:test'
import { claimOn, openBudget } from '../../src/quota/budgets.ts'
import { BUDGETS_HELD, BUDGETS_STALE, budgetUsed, holdBudgets, settleBudgets } from '../../src/table/budget-slot.ts'
import { createTable, openTable } from '../../src/table/table.ts'
import { tempFolder } from '../kit/wait.ts'

const EDGE_MS = Date.parse('2026-07-31T15:00:00Z')

test('a month in Seoul: refused a second before its edge, served at it, and a late ending counts in its own month', () => {
  using folder = tempFolder()
  const table = createTable(`${folder.path}/table`, 64, 0)
  const budget = openBudget('tenant:acme', 'month', 'Asia/Seoul')
  const july = claimOn(table, budget, 100n, EDGE_MS - 1_000)!
  expect(holdBudgets(table, 0, [july], 80n)).toBe(BUDGETS_HELD)
  expect(holdBudgets(table, 0, [claimOn(table, budget, 100n, EDGE_MS - 1)!], 21n)).toBe(0)
  const august = claimOn(table, budget, 100n, EDGE_MS)!
  expect(holdBudgets(table, 0, [august], 100n)).toBe(BUDGETS_HELD)
  settleBudgets(table, 0, [july], 80n, 5n)
  expect(budgetUsed(table, july.slot, july.window)).toBe(5n)
  expect(budgetUsed(table, august.slot, august.window)).toBe(100n)
  const october = claimOn(table, budget, 100n, EDGE_MS + 65 * 86_400_000)!
  expect(holdBudgets(table, 0, [october], 1n)).toBe(BUDGETS_HELD)
  expect(holdBudgets(table, 0, [august], 0n)).toBe(BUDGETS_STALE)
  expect(budgetUsed(table, august.slot, august.window)).toBeUndefined()
})

test('owners, windows and zones do not share; processes that name the same budget do', () => {
  using folder = tempFolder()
  const table = createTable(`${folder.path}/table`, 64, 0)
  const other = openTable(`${folder.path}/table`)
  const slots = [
    openBudget('tenant:acme', 'month', 'UTC'),
    openBudget('tenant:acme', 'day', 'UTC'),
    openBudget('tenant:acme', 'day', 'Asia/Seoul'),
    openBudget('key:acme', 'day', 'UTC'),
  ].map((budget) => claimOn(table, budget, 1n, EDGE_MS)!.slot)
  expect(new Set(slots).size).toBe(4)
  expect(claimOn(other, openBudget('key:acme', 'day', 'UTC'), 1n, EDGE_MS)!.slot).toBe(slots[3]!)
})

test('a claim is kept while its window and limit stand; a larger limit is another claim on the same slot', () => {
  using folder = tempFolder()
  const table = createTable(`${folder.path}/table`, 64, 0)
  const budget = openBudget('key:k', 'total', 'UTC')
  const claim = claimOn(table, budget, 10n, 0)!
  expect(claimOn(table, budget, 10n, EDGE_MS)).toBe(claim)
  expect(holdBudgets(table, 0, [claim], 11n)).toBe(0)
  const raised = claimOn(table, budget, 20n, EDGE_MS)!
  expect(raised.slot).toBe(claim.slot)
  expect(holdBudgets(table, 0, [raised], 11n)).toBe(BUDGETS_HELD)
  expect(budgetUsed(table, raised.slot, raised.window)).toBe(11n)
})

test('a full table says so', () => {
  using folder = tempFolder()
  const table = createTable(`${folder.path}/table`, 64, 0)
  const claims = Array.from({ length: 65 }, (_, at) => claimOn(table, openBudget(`key:${at}`, 'total', 'UTC'), 1n, 0))
  expect(claims.filter((claim) => claim === undefined).length).toBe(1)
})
