import { BUDGET, WORKER } from './layout.ts'
import { findSubject, type Subject, subjectOf, type Table, workerI32 } from './table.ts'

/**
 * The spend of one budget in one window, exact across processes and through the death of any of them: what a worker does.
 * The accountant's side is `budget-books.ts`.
 *
 * A budget has two slots, for windows of even and of odd index, so calls that began before a window's edge settle in
 * their own window. In a slot, `used − base` is the window's spend: everything charged plus everything held. It is the
 * only thing that admission compares with a limit, so it never is over, at no instant. Who used it is told by columns,
 * one a worker, of what that worker holds and was charged in this window. Whenever nobody is inside a bracket:
 *
 *     used − base = what the ledger has of workers without a column + Σ columns of this window
 *
 * `used` is only ever added to and taken from, never set: opening a window and giving back a dead worker's share both
 * move `base` instead. So an operation that was overtaken by them cannot tear anything. Opening takes two steps, and
 * whoever meets one half done completes it; no process waits for another.
 *
 * A call that outlives its window *and* the next one finds its slot reopened. Its settling then changes nothing: what it
 * held lies below `base`. Its charge is in the ledger's sum of its own window all the same.
 */

/** The slot of a budget for a window of that index; undefined when the table is full. `name` tells budgets apart. */
export const budgetSlot = (table: Table, name: string, window: number): Subject | undefined =>
  subjectOf(table, 'budget', slotName(name, window))

/** The same if some call has claimed it. */
export const findBudgetSlot = (table: Table, name: string, window: number): Subject | undefined =>
  findSubject(table, 'budget', slotName(name, window))

const slotName = (name: string, window: number): string => `${name}\n${window & 1}`

/** A budget's slot in a window. `limit` is in nanodollars and the caller's: a temporary increase is a larger one. */
export type BudgetClaim = { readonly slot: Subject; readonly window: number; readonly limit: bigint }

/** Every claim fits, and is held. */
export const BUDGETS_HELD = -1
/** A later window is open already: look the windows up anew, with a fresh clock. Nothing is held. */
export const BUDGETS_STALE = -2

/**
 * Holds an amount of nanodollars, at least 0, on every budget or on none. Answers {@link BUDGETS_HELD},
 * {@link BUDGETS_STALE}, or the index of the first claim that does not fit. A limit of 0 fits nothing, not even 0.
 * Requires that no slot occurs twice.
 */
export const holdBudgets = (table: Table, worker: number, claims: readonly BudgetClaim[], hold: bigint): number => {
  const seq = workerI32(worker, WORKER.op_seq)
  Atomics.add(table.i32, seq, 1)
  let answer = BUDGETS_HELD
  for (let index = 0; index < claims.length; index++) {
    const refused = take(table, worker, claims[index]!, hold)
    if (refused === 0) continue
    for (let taken = 0; taken < index; taken++) change(table, worker, claims[taken]!, -hold)
    answer = refused === STALE ? BUDGETS_STALE : index
    break
  }
  Atomics.add(table.i32, seq, 1)
  return answer
}

/**
 * Turns what {@link holdBudgets} took into a charge, at the real end of the call and exactly once; a charge of 0
 * releases it. The ending must be in the journal before: what the journal lacks is given back when a worker dies. A
 * charge above the hold is taken whole, beyond a limit if need be.
 */
export const settleBudgets = (
  table: Table,
  worker: number,
  claims: readonly BudgetClaim[],
  hold: bigint,
  charge: bigint,
): void => {
  if (charge === hold) return
  const seq = workerI32(worker, WORKER.op_seq)
  Atomics.add(table.i32, seq, 1)
  const by = charge - hold
  for (let index = 0; index < claims.length; index++) change(table, worker, claims[index]!, by)
  Atomics.add(table.i32, seq, 1)
}

/**
 * What is used of a budget in a window, nanodollars, from any process: it is what admission compares with the limit. A
 * window that no call has opened has used nothing. Undefined if a later window is open: the ledger knows the rest.
 */
export const budgetUsed = ({ i32, i64 }: Table, slot: Subject, window: number): bigint | undefined => {
  for (;;) {
    const open = Atomics.load(i32, slot * 2 + BUDGET.window)
    if (open > window * 2 + 1) return undefined
    if (open !== window * 2) return 0n
    const base = Atomics.load(i64, slot + BUDGET.base)
    const used = Atomics.load(i64, slot + BUDGET.used) - base
    if (Atomics.load(i64, slot + BUDGET.base) !== base) continue
    if (Atomics.load(i32, slot * 2 + BUDGET.window) === open) return used
  }
}

const OVER = 1
const STALE = 2

const take = (table: Table, worker: number, { slot, window, limit }: BudgetClaim, hold: bigint): 0 | 1 | 2 => {
  const { i32, i64 } = table
  if (limit <= 0n) return OVER
  if (Atomics.load(i32, slot * 2 + BUDGET.window) !== window * 2 && !openWindow(table, slot, window)) return STALE
  const column = ownColumn(table, worker, slot, window)
  const used_max = limit + Atomics.load(i64, slot + BUDGET.base) - hold
  for (let seen = Atomics.load(i64, slot + BUDGET.used); ;) {
    if (seen > used_max) return OVER
    const was = Atomics.compareExchange(i64, slot + BUDGET.used, seen, seen + hold)
    if (was === seen) break
    seen = was
  }
  // Overtaken by a whole window: what was added may be above or below its base, and above is the safe side.
  if (Atomics.load(i32, slot * 2 + BUDGET.window) !== window * 2) return STALE
  i64[column] = i64[column]! + hold
  return 0
}

const change = (table: Table, worker: number, { slot, window }: BudgetClaim, by: bigint): void => {
  const { i32, i64 } = table
  if (Atomics.load(i32, slot * 2 + BUDGET.window) !== window * 2) return
  Atomics.add(i64, slot + BUDGET.used, by)
  if (Atomics.load(i32, slot * 2 + BUDGET.window) !== window * 2) {
    // Overtaken: the same safe side. (It takes a process that slept through a whole window at this very line.)
    if (by < 0n) Atomics.sub(i64, slot + BUDGET.used, by)
    return
  }
  const column = slot + BUDGET.columns + worker
  i64[column] = i64[column]! + by
}

// A column has one writer, its worker, and is read by others only while no bracket is open: it needs no atomics.
const ownColumn = ({ i32, i64 }: Table, worker: number, slot: Subject, window: number): number => {
  const column = slot + BUDGET.columns + worker
  if (i32[slot * 2 + BUDGET.column_windows + worker] !== window) {
    i64[column] = 0n
    i32[slot * 2 + BUDGET.column_windows + worker] = window
  }
  return column
}

/** Opens a window of a slot unless it is open; false if a later one is. Any process may, at any time. */
export const openWindow = (table: Table, slot: Subject, window: number): boolean => {
  const cell = slot * 2 + BUDGET.window
  for (;;) {
    const seen = Atomics.load(table.i32, cell)
    if (seen === window * 2) return true
    if (seen > window * 2 + 1) return false
    if (seen & 1) finishOpening(table, slot, seen)
    else if (Atomics.compareExchange(table.i32, cell, seen, window * 2 + 1) === seen)
      finishOpening(table, slot, window * 2 + 1)
  }
}

/**
 * The second step of opening, `opening` being the odd value of `window` that was met; any number of processes may do it
 * at once and the first may have died. Nobody can take a hold meanwhile, so `used` is what lies before the window.
 */
export const finishOpening = (table: Table, slot: Subject, opening: number): void => {
  const { i32, i64 } = table
  for (;;) {
    const base = Atomics.load(i64, slot + BUDGET.base)
    const used = Atomics.load(i64, slot + BUDGET.used)
    if (Atomics.load(i32, slot * 2 + BUDGET.window) !== opening) return
    if (Atomics.compareExchange(i64, slot + BUDGET.base, base, used) === base) break
  }
  Atomics.compareExchange(i32, slot * 2 + BUDGET.window, opening, opening - 1)
}
