import { existsSync } from 'node:fs'
import { limits } from '../base/limits.ts'
import type { Window } from '../base/windows.ts'
import type { BudgetConfig, Config } from '../config/schema.ts'
import { segmentName, seriesName } from '../journal/format.ts'
import type { Store } from '../ledger/database.ts'
import { finishedSeries, lastRefund, type Spender, spendersOf, spentIn } from '../ledger/spend.ts'
import type { Log } from '../observe/log.ts'
import { type LiveBudget, liveBudgets } from '../quota/live-budget.ts'
import { budgetsOwed, correctBudget, loadSpent, reapBudgets } from '../table/budget-books.ts'
import { budgetSlot } from '../table/budget-slot.ts'
import { emptyKeyView, type KeyView, refreshKeys } from '../table/key-file.ts'
import { BUDGET, WORKER } from '../table/layout.ts'
import { type Subject, type Table, workerI32 } from '../table/table.ts'

/** What the accountant does for the budgets in the shared table: what was spent before, and what a dead worker leaves. */
export type BudgetKeeper = {
  /** Loads what the ledger has of every open window, before workers start; in a living house, sets every slot right. */
  load(): void
  /** Gives back the share of workers that died and whose journals are posted. Called now and then. */
  turn(): void
  adopt(config: Config): void
}

type Ports = {
  readonly table: Table
  readonly store: Store
  readonly journal_folder: string
  readonly key_file: string
  readonly now: () => number
  readonly log: Log
  /** True if workers may be running: the accountant alone was started again. */
  readonly living: boolean
  /** Whether there is a file; for journals that are not on the real disk. */
  readonly exists?: (path: string) => boolean
}

/** A budget, whose spend it bounds, and where it stands in the table. */
type Kept = { readonly live: LiveBudget; readonly spender: Spender; readonly since_ms: number }

export const openBudgetKeeper = (first: Config, ports: Ports): BudgetKeeper => {
  const { table, store, now, log, exists = existsSync } = ports
  const keys: KeyView = emptyKeyView()
  let config = first
  const by_slot = new Map<Subject, Kept>()

  let refunded = 0n
  /** Since when workers know of the budgets of this configuration. */
  let known_since_ms = 0

  /** Learns of budgets that are new, and answers them: of the configuration, of keys, of end users that the ledger knows. */
  const gather = (since_ms: number): Kept[] => {
    refreshKeys(keys, ports.key_file, table)
    const fresh: Kept[] = []
    const add = (owner: string, configs: readonly BudgetConfig[] | undefined, spender: Spender) => {
      for (const live of liveBudgets(owner, configs ?? [])) {
        const slots = [0, 1].map((parity) => budgetSlot(table, live.budget.name, parity))
        if (slots.some((slot) => slot === undefined || by_slot.has(slot))) continue
        const kept = { live, spender, since_ms }
        for (const slot of slots) by_slot.set(slot!, kept)
        fresh.push(kept)
      }
    }
    for (const tenant of config.tenants) {
      add(`tenant:${tenant.name}`, tenant.budgets, { tenant: tenant.name })
      const each = tenant.end_user?.budgets ?? []
      if (each.length === 0) continue
      for (const end_user of spendersOf(store, tenant.name))
        add(`end_user:${tenant.name}/${end_user}`, each, { tenant: tenant.name, end_user })
    }
    for (const model of config.models) add(`model:${model.name}`, model.budgets, { model: model.name })
    for (const key of keys.by_sha256.values()) add(`key:${key.id}`, key.budgets, { key_id: key.id })
    return fresh
  }

  /** What the ledger has of a slot's window, without the calls that stand in the columns of `owners`. */
  const posted = (dead: number) => (slot: Subject, window: number) => {
    const kept = by_slot.get(slot)
    // All that the ledger has rows of was gathered before. An end user without one may have left holds all the same.
    if (kept === undefined) return 0n
    const span = spanOf(kept.live, window, now())
    if (span === undefined) return undefined
    const owners = ownersOf(table, slot, window, dead)
    const all = spentIn(store, kept.spender, span.start_ms, span.end_ms)
    if (owners.length === 0) return all
    // A worker has in its column what it charged since it knows the budget.
    return all - spentIn(store, kept.spender, Math.max(span.start_ms, kept.since_ms), span.end_ms, owners)
  }

  const correctAll = (dead = -1): void => {
    for (const { live } of by_slot.values()) {
      const slot = budgetSlot(table, live.budget.name, live.budget.windowAt(now()).index)
      if (slot !== undefined && !correctBudget(table, slot, posted(dead)))
        log('warn', 'budget_not_corrected', { budget: live.whose })
    }
  }

  const open = (since_ms: number): void => {
    for (const { live, spender } of gather(since_ms)) {
      // The clock of a machine that has just started may yet be set, over the edge of a window.
      const near = [now() - CLOCK_STEP_MS, now() + CLOCK_STEP_MS, now()].map((at_ms) => live.budget.windowAt(at_ms))
      for (const { index, start_ms, end_ms } of new Map(near.map((span) => [span.index, span])).values()) {
        const slot = budgetSlot(table, live.budget.name, index)
        if (slot !== undefined) loadSpent(table, slot, index, spentIn(store, spender, start_ms, end_ms))
      }
    }
  }

  return {
    load() {
      const started_ms = now()
      if (ports.living) {
        gather(0)
        correctAll()
      } else open(0)
      refunded = lastRefund(store)
      log('info', 'budgets_loaded', { count: by_slot.size / 2, took_ms: now() - started_ms })
    },
    turn() {
      for (const dead of budgetsOwed(table)) {
        const series = seriesName(dead, Atomics.load(table.i32, workerI32(dead, WORKER.incarnation)))
        if (!finishedSeries(store, series) && exists(`${ports.journal_folder}/${segmentName(series, 0)}`)) continue
        gather(known_since_ms)
        if (reapBudgets(table, dead, posted(dead))) log('info', 'budgets_given_back', { worker: dead, series })
      }
      const last = lastRefund(store)
      if (last === refunded) return
      refunded = last
      correctAll()
    },
    adopt(next) {
      // End users and keys that came since the last look are known to workers for longer than the new configuration.
      gather(known_since_ms)
      config = next
      open((known_since_ms = now()))
    },
  }
}

/** Steps of the clock right after a start that budgets are ready for. */
const CLOCK_STEP_MS = 3_600_000
/** Windows looked at to find one by its index; an older one is of no use to anyone. */
const WINDOWS_NEAR = 64

/** The window with an index, if it is near the instant. Clocks step, and calls outlive their window. */
const spanOf = ({ budget }: LiveBudget, index: number, at_ms: number): Window | undefined => {
  let span = budget.windowAt(at_ms)
  for (let step = 0; span.index !== index && step < WINDOWS_NEAR; step++)
    span = budget.windowAt(span.index > index ? span.start_ms - 1 : span.end_ms)
  return span.index === index ? span : undefined
}

/** Series of the workers, but for one, that have a column in a slot's window. */
const ownersOf = ({ i32 }: Table, slot: Subject, window: number, dead: number): string[] => {
  const found: string[] = []
  for (let worker = 0; worker < limits.workers_max; worker++)
    if (worker !== dead && Atomics.load(i32, slot * 2 + BUDGET.column_windows + worker) === window)
      found.push(seriesName(worker, Atomics.load(i32, workerI32(worker, WORKER.incarnation))))
  return found
}
