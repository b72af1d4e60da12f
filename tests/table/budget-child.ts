import {
  BUDGETS_HELD,
  BUDGETS_STALE,
  type BudgetClaim,
  budgetSlot,
  holdBudgets,
  settleBudgets,
} from '../../src/table/budget-slot.ts'
import { BUDGET } from '../../src/table/layout.ts'
import { openTable } from '../../src/table/table.ts'
import { rollFrom } from '../kit/wait.ts'
import { chargedIn, LOG, openLog } from './budget-log.ts'

/** A worker process for the budget tests. Arguments: table, log, worker, mode, seed. */
const [table_path, log_path, worker_text, mode, seed_text] = process.argv.slice(2) as [
  string,
  string,
  string,
  string,
  string,
]
const table = openTable(table_path)
const log = openLog(log_path)
const worker = Number(worker_text)
const roll = rollFrom(Number(seed_text))
const count = (cell: number, by = 1) => Atomics.add(log, cell, BigInt(by))
const at = (cell: number) => Number(Atomics.load(log, cell))
const used = (slot: number) => Atomics.load(table.i64, slot + BUDGET.used) - Atomics.load(table.i64, slot + BUDGET.base)
const checkNotOver = (claims: readonly BudgetClaim[]) => {
  for (const { slot, limit } of claims) if (used(slot) > limit) count(LOG.over)
}

/** All processes meet: `number` is a meeting of its own. */
const meet = (number: number, processes: number) => {
  count(LOG.meetings + number)
  while (at(LOG.meetings + number) < processes) {
    checkParent()
    Bun.sleepSync(0.1)
  }
}

const modes: Record<string, () => void> = {
  /** Each round is a budget of its own that pays for exactly so many calls; some are released and make room again. */
  exact: () => {
    for (let round = 0; round < at(LOG.rounds); round++) {
      const price = Atomics.load(log, LOG.price + round)
      const claims = [
        { slot: budgetSlot(table, `b${round}`, 1)!, window: 1, limit: Atomics.load(log, LOG.limit + round) },
      ]
      meet(round, 4)
      let admitted = 0
      while (holdBudgets(table, worker, claims, price) === BUDGETS_HELD) {
        checkNotOver(claims)
        if (roll(3) === 0) settleBudgets(table, worker, claims, price, 0n)
        else {
          settleBudgets(table, worker, claims, price, price)
          admitted++
        }
      }
      count(LOG.admitted + round, admitted)
    }
  },

  /** Calls over four budgets for ever, a few in flight at once, charged in the log before they are settled. */
  calls: () => {
    const claims = [0, 1, 2, 3].map((at) => ({ slot: budgetSlot(table, `b${at}`, 1)!, window: 1, limit: 30_000n }))
    const flying: bigint[] = []
    const end = () => {
      const charge = roll(256) === 0 ? 1n : 0n
      const hold = flying.splice(roll(flying.length), 1)[0]!
      Atomics.add(log, LOG.charged + worker, charge)
      settleBudgets(table, worker, claims, hold, charge)
    }
    for (let turn = 1; ; turn++) {
      if (turn % 1_000 === 0) checkParent()
      if (flying.length > roll(12)) end()
      else {
        const hold = BigInt(1 + roll(4_000))
        const answer = holdBudgets(table, worker, claims, hold)
        if (answer === BUDGETS_HELD) {
          flying.push(hold)
          count(LOG.held)
          checkNotOver(claims)
        } else if (flying.length > 0) end()
      }
      // Between calls a worker does other things.
      for (let rest = roll(2_000); rest > 0; rest--) Atomics.load(log, LOG.held)
      const pause = at(LOG.pause)
      if (pause <= at(LOG.resume)) continue
      while (flying.length > 0) end()
      count(LOG.paused)
      while (at(LOG.resume) < pause) {
        checkParent()
        Bun.sleepSync(0.2)
      }
      if (at(LOG.rounds) === pause) return
    }
  },

  /** Spends in whatever window the shared clock shows, until it shows the end. */
  roll: () => {
    for (let window = at(LOG.clock); window < at(LOG.rounds); window = at(LOG.clock)) {
      const claims = ['b0', 'b1'].map((name) => ({ slot: budgetSlot(table, name, window)!, window, limit: 1_000n }))
      checkParent()
      const hold = BigInt(1 + roll(9))
      const answer = holdBudgets(table, worker, claims, hold)
      if (answer === BUDGETS_STALE) count(LOG.stale)
      if (answer !== BUDGETS_HELD) continue
      const charge = BigInt(roll(Number(hold) + 1))
      Atomics.add(log, chargedIn(window, worker), charge)
      settleBudgets(table, worker, claims, hold, charge)
    }
  },
}

// A test that is killed must not leave its processes behind.
const parent = process.ppid
const checkParent = () => {
  if (process.ppid !== parent) process.exit(1)
}
process.stdout.write('ready\n')
modes[mode]!()
