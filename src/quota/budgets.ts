import { type Per, type Window, windowClock } from '../base/windows.ts'
import { type BudgetClaim, budgetSlot } from '../table/budget-slot.ts'
import type { Subject, Table } from '../table/table.ts'

/**
 * A budget of one owner, as a worker keeps it: bounded spend in a window. The owner is `tenant:NAME`, `key:ID`,
 * `end_user:TENANT/USER` or `model:NAME`.
 */
export type Budget = {
  readonly name: string
  readonly windowAt: (at_ms: number) => Window
  /** By parity of the window; claimed in the table when first used. */
  readonly slots: (Subject | undefined)[]
  last: BudgetClaim
}

/** The name that a budget's slots are found by, in every process; another zone or kind of window is another budget. */
export const budgetName = (owner: string, per: Per, timezone: string): string => `${owner}\n${per}\n${timezone}`

/** A budget to claim on. Keep it: it remembers its window and its slots. */
export const openBudget = (owner: string, per: Per, timezone: string): Budget => ({
  name: budgetName(owner, per, timezone),
  windowAt: windowClock(per, timezone),
  slots: [undefined, undefined],
  last: { slot: -1, window: 0, limit: 0n },
})

/**
 * The claim on a budget for a call that was received at an instant; the ledger puts its charge into the same window.
 * `limit` is in nanodollars, with whatever raises it at present. Undefined when the shared table is full.
 */
export const claimOn = (table: Table, budget: Budget, limit: bigint, at_ms: number): BudgetClaim | undefined => {
  const { index } = budget.windowAt(at_ms)
  const { last } = budget
  if (last.window === index && last.limit === limit) return last
  const slot = (budget.slots[index & 1] ??= budgetSlot(table, budget.name, index))
  if (slot === undefined) return undefined
  return (budget.last = { slot, window: index, limit })
}
