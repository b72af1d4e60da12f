import { tickMs } from '../base/clock.ts'
import { limits } from '../base/limits.ts'
import { BUDGET, SUBJECT, WORKER } from './layout.ts'
import { type Subject, subjectAt, type Table, workerI32 } from './table.ts'

/**
 * Counts and amounts that are exact across workers and survive the death of any of them.
 *
 * A worker changes its own column and the shared total inside a bracket that makes its `op_seq` odd. Admission compares
 * the total (compare-and-exchange, so admitted ≤ limit at every instant). When a worker dies, `reap` drops its column and
 * sets the total to the sum of the living columns, at a moment when no living worker is inside a bracket: whatever the
 * dead one was in the middle of is undone.
 */

/** A claim on one subject: how much, and the most that may be taken by all together. */
export type Claim = { readonly subject: Subject; readonly limit: number }

/** Takes one of each subject's count, or none: answers the index of the first claim that does not fit, or -1. */
export const takeCounts = (table: Table, worker: number, claims: readonly Claim[]): number => {
  const seq = workerI32(worker, WORKER.op_seq)
  Atomics.add(table.i32, seq, 1)
  let refused = -1
  for (let index = 0; index < claims.length && refused < 0; index++) {
    const { subject, limit } = claims[index]!
    if (!takeCount(table, worker, subject, limit)) {
      for (let taken = 0; taken < index; taken++) giveCount(table, worker, claims[taken]!.subject)
      refused = index
    }
  }
  Atomics.add(table.i32, seq, 1)
  return refused
}

/** Gives back one of each subject's count. Requires that this worker took them. */
export const giveCounts = (table: Table, worker: number, claims: readonly Claim[]): void => {
  const seq = workerI32(worker, WORKER.op_seq)
  Atomics.add(table.i32, seq, 1)
  for (const claim of claims) giveCount(table, worker, claim.subject)
  Atomics.add(table.i32, seq, 1)
}

const takeCount = (table: Table, worker: number, subject: Subject, limit: number): boolean => {
  const total = subject * 2 + SUBJECT.count
  for (let seen = Atomics.load(table.i32, total); ;) {
    if (seen >= limit) return false
    const was = Atomics.compareExchange(table.i32, total, seen, seen + 1)
    if (was === seen) break
    seen = was
  }
  Atomics.add(table.i32, subject * 2 + SUBJECT.count_columns + worker, 1)
  return true
}

const giveCount = (table: Table, worker: number, subject: Subject): void => {
  Atomics.sub(table.i32, subject * 2 + SUBJECT.count_columns + worker, 1)
  Atomics.sub(table.i32, subject * 2 + SUBJECT.count, 1)
}

/** Adds to an amount that has no limit (tokens in flight of an engine); a negative one takes away. */
export const addAmount = (table: Table, worker: number, subject: Subject, amount: bigint): void => {
  const seq = workerI32(worker, WORKER.op_seq)
  Atomics.add(table.i32, seq, 1)
  Atomics.add(table.i64, subject + SUBJECT.amount, amount)
  Atomics.add(table.i64, subject + SUBJECT.amount_columns + worker, amount)
  Atomics.add(table.i32, seq, 1)
}

/**
 * Gives back the counts and amounts that a dead worker held, all but its share of budgets: what of that was spent only
 * the ledger knows, once the worker's journal is posted (`reapBudgets`). Until then `budgets_owed` of its page is 1 and
 * its number must not be used again. Only the supervisor calls it, after the process is gone. `alive` are the other
 * workers whose processes exist. Answers how many counts were given back; throws if no quiet moment is found (a living
 * worker stuck inside a bracket), and can then be called again.
 */
export const reap = (table: Table, dead: number, alive: readonly number[]): number => {
  Atomics.store(table.i32, workerI32(dead, WORKER.budgets_owed), 1)
  let given_back = 0
  for (let number = 0; number < table.subjects_max; number++) {
    const subject = subjectAt(number)
    if (Atomics.load(table.i64, subject + SUBJECT.hash) === 0n) continue
    if (Atomics.load(table.i32, subject * 2 + BUDGET.window) !== 0) continue
    given_back += Atomics.exchange(table.i32, subject * 2 + SUBJECT.count_columns + dead, 0)
    Atomics.store(table.i64, subject + SUBJECT.amount_columns + dead, 0n)
    settle(table, subject, dead, alive)
  }
  // A bracket that the dead worker left open is closed; the number never goes back, so no moment looks like an earlier one.
  const seq = workerI32(dead, WORKER.op_seq)
  Atomics.add(table.i32, seq, Atomics.load(table.i32, seq) & 1)
  return given_back
}

/** How long a reaper looks for a moment at which no worker is inside a bracket; one takes microseconds. */
const QUIET_MS = 2_000

const settle = (table: Table, subject: Subject, dead: number, alive: readonly number[]): void => {
  for (const until_ms = tickMs() + QUIET_MS; tickMs() < until_ms;) {
    const before = quietMoment(table, alive)
    if (before === undefined) continue
    const count = Atomics.load(table.i32, subject * 2 + SUBJECT.count)
    const amount = Atomics.load(table.i64, subject + SUBJECT.amount)
    let count_wanted = 0
    let amount_wanted = 0n
    for (let worker = 0; worker < limits.workers_max; worker++) {
      if (worker === dead) continue
      count_wanted += Atomics.load(table.i32, subject * 2 + SUBJECT.count_columns + worker)
      amount_wanted += amountIn(table, subject + SUBJECT.amount_columns + worker)
    }
    if (quietMoment(table, alive) !== before) continue
    // A bracket opened since then changes the total, and the exchange fails.
    if (Atomics.compareExchange(table.i32, subject * 2 + SUBJECT.count, count, count_wanted) !== count) continue
    if (Atomics.compareExchange(table.i64, subject + SUBJECT.amount, amount, amount_wanted) === amount) return
  }
  throw new Error(`no quiet moment to give back the share of worker ${dead}`)
}

/** The amount in an Int64 cell. Most columns are 0, and to make a BigInt takes longer than to see that. */
export const amountIn = ({ i32, i64 }: Table, cell: number): bigint =>
  i32[cell * 2] === 0 && i32[cell * 2 + 1] === 0 ? 0n : Atomics.load(i64, cell)

/**
 * A number that stands for this moment if none of these workers is inside a bracket, else undefined. The same number
 * later means that none was in between.
 */
export const quietMoment = (table: Table, workers: readonly number[]): number | undefined => {
  let sum = 0
  for (const worker of workers) {
    const seq = Atomics.load(table.i32, workerI32(worker, WORKER.op_seq))
    if (seq & 1) return undefined
    // Each only grows (and wraps), so equal sums are equal terms.
    sum += seq >>> 0
  }
  return sum
}
