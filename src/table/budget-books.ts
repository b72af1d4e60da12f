import { tickMs } from '../base/clock.ts'
import { limits } from '../base/limits.ts'
import { finishOpening, openWindow } from './budget-slot.ts'
import { amountIn, quietMoment } from './counts.ts'
import { BUDGET, SUBJECT, WORKER } from './layout.ts'
import { type Subject, subjectAt, type Table, workerI32 } from './table.ts'

/**
 * The accountant's side of the budgets in the shared table (`budget-slot.ts`). Nothing here is called for each call, and
 * everything states what is true instead of adding to what was there: an accountant that dies between a commit and the
 * table starts again with {@link correctBudget} on every slot and is right.
 *
 * Only one process, the accountant, may call these.
 */

/**
 * What the ledger has for a slot in the window of that index, in nanodollars: charges less refunds of all workers that
 * have no column any more. Those are the workers of earlier houses, the dead ones whose share was given back, and the one
 * whose share is being given back. Undefined if the ledger does not know the budget.
 */
export type Posted = (slot: Subject, window: number) => bigint | undefined

/** Opens a window with what was spent in it before this house: at the start, before any worker. False: try again. */
export const loadSpent = (table: Table, slot: Subject, window: number, spent: bigint): boolean => {
  if (!openWindow(table, slot, window)) return true
  return correctBudget(table, slot, (_slot, open) => (open === window ? spent : 0n))
}

/**
 * Sets a slot right: its open window's spend becomes what the ledger has and what the columns have. Nothing changes if
 * the ledger does not know the budget. False if no quiet moment was found (a worker that just died inside a bracket and
 * was not yet reaped, or a stopped one): try again.
 */
export const correctBudget = (table: Table, slot: Subject, posted: Posted): boolean => correct(table, slot, posted, -1)

/**
 * Gives back a dead worker's share of every budget, once its journal is posted to the end and `reap` has run: its column
 * goes, and what the ledger has of it stands. Of a budget that the ledger does not know nothing is given back before the
 * window ends. Its number may be used again afterwards. Answers of how many budgets it had a share; undefined if no quiet
 * moment was found: try again.
 */
export const reapBudgets = (table: Table, dead: number, posted: Posted): number | undefined => {
  let count = 0
  for (let number = 0; number < table.subjects_max; number++) {
    const slot = subjectAt(number)
    if (Atomics.load(table.i64, slot + SUBJECT.hash) === 0n) continue
    if (Atomics.load(table.i32, slot * 2 + BUDGET.window) === 0) continue
    const column_window = slot * 2 + BUDGET.column_windows + dead
    if (Atomics.load(table.i32, column_window) === 0) continue
    if (!correct(table, slot, posted, dead)) return undefined
    Atomics.store(table.i32, column_window, 0)
    count++
  }
  Atomics.store(table.i32, workerI32(dead, WORKER.budgets_owed), 0)
  return count
}

/** Dead workers whose share of budgets is not given back yet: their journals are to be posted, then `reapBudgets`. */
export const budgetsOwed = (table: Table): number[] =>
  WORKERS.filter((worker) => Atomics.load(table.i32, workerI32(worker, WORKER.budgets_owed)) === 1)

const WORKERS: readonly number[] = Array.from({ length: limits.workers_max }, (_, worker) => worker)
/** The accountant's loop goes on after so long, and comes back. */
const QUIET_MS = 20
/** On a machine that gives the process no time meanwhile the clock alone would allow not even one try. */
const TRIES_MIN = 3

const correct = (table: Table, slot: Subject, posted: Posted, dead: number): boolean => {
  const { i32, i64 } = table
  let window = 0
  let settled: bigint | undefined
  const until_ms = tickMs() + QUIET_MS
  for (let tries = 0; tries < TRIES_MIN || tickMs() < until_ms; tries++) {
    const seen = Atomics.load(i32, slot * 2 + BUDGET.window)
    if (seen & 1) finishOpening(table, slot, seen)
    if (seen & 1) continue
    if (seen !== window) settled = posted(slot, (window = seen) / 2)
    if (settled === undefined) return true
    const before = quietMoment(table, WORKERS)
    if (before === undefined) continue
    const base = Atomics.load(i64, slot + BUDGET.base)
    const used = Atomics.load(i64, slot + BUDGET.used)
    const columns = columnsOf(table, slot, window / 2, dead)
    if (quietMoment(table, WORKERS) !== before) continue
    if (Atomics.load(i32, slot * 2 + BUDGET.window) !== window) continue
    // Whole operations since then keep used − columns, and an opening moves the base, so the exchange fails.
    if (Atomics.compareExchange(i64, slot + BUDGET.base, base, used - settled - columns) === base) return true
  }
  return false
}

/** The sum of the columns of a window, without one worker's. */
const columnsOf = (table: Table, slot: Subject, window: number, without: number): bigint => {
  let sum = 0n
  for (let worker = 0; worker < limits.workers_max; worker++)
    if (worker !== without && Atomics.load(table.i32, slot * 2 + BUDGET.column_windows + worker) === window)
      sum += amountIn(table, slot + BUDGET.columns + worker)
  return sum
}
