import { existsSync } from 'node:fs'
import { limits } from '../base/limits.ts'
import type { Window } from '../base/windows.ts'
import type { BudgetConfig, Config } from '../config/schema.ts'
import { segmentName, seriesName } from '../journal/format.ts'
import type { Store } from '../ledger/database.ts'
import { finishedSeries, newestCallMs, type Spender, spendersOf, spentIn } from '../ledger/spend.ts'
import type { Log } from '../observe/log.ts'
import { type LiveBudget, liveBudgets } from '../quota/live-budget.ts'
import { budgetsOwed, correctBudget, loadSpent, type Posted, reapBudgets } from '../table/budget-books.ts'
import { budgetSlot } from '../table/budget-slot.ts'
import { emptyKeyView, type KeyView, refreshKeys } from '../table/key-file.ts'
import { BUDGET, HEADER, WORKER } from '../table/layout.ts'
import { type Subject, type Table, workerI32 } from '../table/table.ts'
import type { HouseFiles } from './messages.ts'

type Ports = {
  readonly table: Table
  readonly store: Store
  readonly files: Pick<HouseFiles, 'journal' | 'keys'>
  readonly now: () => number
  readonly log: Log
  /** Whether there is a file; for journals that are not on the real disk. */
  readonly exists?: (path: string) => boolean
}

/** A budget, whose spend it bounds, and since when workers know it. */
type Kept = { readonly live: LiveBudget; readonly spender: Spender; readonly since_ms: number }

/** What the accountant does for the budgets in the shared table: what was spent before, and what a dead worker leaves. */
export class BudgetKeeper {
  readonly #ports: Ports
  readonly #keys: KeyView = emptyKeyView()
  readonly #by_slot = new Map<Subject, Kept>()
  #config: Config
  /** The books have a refund that the table does not show. */
  #refunded = false
  /** Since when workers know of the budgets of this configuration. */
  #known_since_ms = 0

  constructor(config: Config, ports: Ports) {
    this.#config = config
    this.#ports = ports
  }

  /** Loads what the ledger has of every open window, before workers start; in a living house, sets every slot right. */
  load(): void {
    const { table, now, log } = this.#ports
    const started_ms = now()
    // It was ready before: the accountant alone was started again, and workers may be running.
    if (Atomics.load(table.i32, HEADER.accountant_ready) === 1) {
      this.#gather(0)
      this.#correctAll()
    } else this.#open(0)
    const count = this.#by_slot.size / 2
    if (count > 0) log('info', 'budgets_loaded', { count, took_ms: now() - started_ms })
  }

  /** Gives back the share of workers that died and whose journals are posted, and what was refunded. Called now and then. */
  turn(): void {
    const { table, store, files, log, exists = existsSync } = this.#ports
    for (const dead of budgetsOwed(table)) {
      const series = seriesName(dead, Atomics.load(table.i32, workerI32(dead, WORKER.incarnation)))
      // A worker that died before it had a journal has nothing to be posted.
      if (!finishedSeries(store, series) && exists(`${files.journal}/${segmentName(series, 0)}`)) continue
      this.#gather(this.#known_since_ms)
      const count = reapBudgets(table, dead, this.#posted(dead))
      if (count) log('info', 'budgets_given_back', { worker: dead, series, count })
    }
    if (!this.#refunded) return
    this.#refunded = false
    this.#correctAll()
  }

  /** A refund is in the books: at the next turn budgets have it back. */
  refunded(): void {
    this.#refunded = true
  }

  /** Takes a new configuration; before workers do. */
  adopt(config: Config): void {
    // End users and keys that came since the last look are known to workers for longer than the new configuration.
    this.#gather(this.#known_since_ms)
    this.#config = config
    this.#known_since_ms = this.#ports.now()
    this.#open(this.#known_since_ms)
  }

  #open(since_ms: number): void {
    const { table, store, now } = this.#ports
    const newest_ms = newestCallMs(store)
    for (const { live, spender } of this.#gather(since_ms)) {
      const { windowAt } = live.budget
      // A clock may be set back after the start, over the edge of a window, and may have been before the last end.
      const open = windowAt(now())
      const before = windowAt(Math.max(open.start_ms - 1, 0))
      const later = Math.max(now() + CLOCK_STEP_MS, newest_ms) < open.end_ms ? open : windowAt(open.end_ms)
      const near = [before, open, later]
      for (const { index, start_ms, end_ms } of new Map(near.map((span) => [span.index, span])).values()) {
        const slot = budgetSlot(table, live.budget.name, index)
        if (slot !== undefined) loadSpent(table, slot, index, spentIn(store, spender, start_ms, end_ms))
      }
    }
  }

  /** Learns of budgets that are new, and answers them: of the configuration, of keys, of end users that the ledger knows. */
  #gather(since_ms: number): Kept[] {
    const { table, store, files } = this.#ports
    refreshKeys(this.#keys, files.keys, table)
    const fresh: Kept[] = []
    const add = (owner: string, configs: readonly BudgetConfig[] | undefined, spender: Spender) => {
      for (const live of liveBudgets(owner, configs ?? [])) {
        const slots = [0, 1].map((parity) => budgetSlot(table, live.budget.name, parity))
        if (slots.some((slot) => slot === undefined || this.#by_slot.has(slot))) continue
        const kept = { live, spender, since_ms }
        for (const slot of slots) this.#by_slot.set(slot!, kept)
        fresh.push(kept)
      }
    }
    for (const { name, budgets, end_user } of this.#config.tenants) {
      add(`tenant:${name}`, budgets, { tenant: name })
      if (end_user === undefined || end_user.budgets.length === 0) continue
      for (const user of spendersOf(store, name))
        add(`end_user:${name}/${user}`, end_user.budgets, { tenant: name, end_user: user })
    }
    for (const { name, budgets } of this.#config.models) add(`model:${name}`, budgets, { model: name })
    for (const { id, budgets } of this.#keys.by_sha256.values()) add(`key:${id}`, budgets, { key_id: id })
    return fresh
  }

  #correctAll(): void {
    const { table, now, log } = this.#ports
    for (const { live } of new Set(this.#by_slot.values())) {
      const slot = budgetSlot(table, live.budget.name, live.budget.windowAt(now()).index)
      if (slot !== undefined && !correctBudget(table, slot, this.#posted(-1)))
        log('warn', 'budget_not_corrected', { budget: live.whose })
    }
  }

  /** What the ledger has of a slot's window, without the calls that stand in the columns of workers other than `dead`. */
  #posted(dead: number): Posted {
    const { table, store, now } = this.#ports
    return (slot, window) => {
      const kept = this.#by_slot.get(slot)
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
  }
}

/** Steps forward of the clock right after a start that budgets are ready for. */
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
