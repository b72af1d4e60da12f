import { BUDGET } from '../table/layout.ts'
import type { Subject, Table } from '../table/table.ts'

/**
 * A budget's spend in a window, nanodollars. `used` is what admission compares with the limit; `spent` of it is in the
 * ledger; `held` is the rest: holds of calls in flight, and charges that are not posted yet.
 */
export type BudgetState = { readonly used: bigint; readonly spent: bigint; readonly held: bigint }

const NOTHING: BudgetState = { used: 0n, spent: 0n, held: 0n }

/**
 * Reads a budget's slot, from any process. A window that no call has opened has used nothing. Undefined if a later window
 * is open: the ledger knows the rest.
 */
export const readBudget = ({ i32, i64 }: Table, slot: Subject, window: number): BudgetState | undefined => {
  for (;;) {
    const open = Atomics.load(i32, slot * 2 + BUDGET.window)
    if (open > window * 2 + 1) return undefined
    if (open !== window * 2) return NOTHING
    const base = Atomics.load(i64, slot + BUDGET.base)
    const used = Atomics.load(i64, slot + BUDGET.used) - base
    const is_posted = Atomics.load(i32, slot * 2 + BUDGET.spent_window) === window
    const spent = is_posted ? Atomics.load(i64, slot + BUDGET.spent) : 0n
    if (Atomics.load(i64, slot + BUDGET.base) !== base) continue
    if (Atomics.load(i32, slot * 2 + BUDGET.window) !== open) continue
    return { used, spent, held: used > spent ? used - spent : 0n }
  }
}

/** What is left of a limit, never below 0. */
export const budgetLeft = (limit: bigint, state: BudgetState): bigint => (limit > state.used ? limit - state.used : 0n)
