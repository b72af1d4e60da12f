import { limitAt, liveBudgets } from '../quota/live-budget.ts'
import type { Config } from '../config/schema.ts'
import { budgetUsed, findBudgetSlot } from '../table/budget-slot.ts'
import { SUBJECT } from '../table/layout.ts'
import { findSubject, type Subject, type Table } from '../table/table.ts'

/** What is asked of the house at this moment, as it fills up: read from the shared table, nothing is claimed in it. */

/** Tenants and budgets that are told of; a page of metrics must end somewhere. */
const TOLD_MAX = 1_000

export type ModelDemand = { readonly model: string; readonly waiting: number; readonly queue_size: number }

/** Calls that wait for a place, by model, over all workers. */
export const modelDemand = (table: Table, { models }: Config): ModelDemand[] =>
  models.map(({ name, queue }) => ({
    model: name,
    waiting: countOf(table, findSubject(table, 'model', name)),
    queue_size: queue.size,
  }))

export type TenantDemand = { readonly tenant: string; readonly in_flight: number; readonly jobs: number }

/** Calls in flight and jobs that are not over, of the first 1,000 configured tenants. */
export const tenantDemand = (table: Table, { tenants }: Config): TenantDemand[] =>
  tenants.slice(0, TOLD_MAX).map(({ name }) => ({
    tenant: name,
    in_flight: countOf(table, findSubject(table, 'tenant', name)),
    jobs: countOf(table, findSubject(table, 'jobs', name)),
  }))

export type BudgetDemand = {
  readonly owner: string
  readonly per: string
  readonly timezone: string
  readonly limit_nanodollars: bigint
  /** Charged and held in the open window. */
  readonly used_nanodollars: bigint
}

/** The first 1,000 budgets of configured tenants and models, in the window of that time. */
export const budgetDemand = (table: Table, { tenants, models }: Config, now_ms: number): BudgetDemand[] => {
  const told: BudgetDemand[] = []
  const owners = [
    ...tenants.map(({ name, budgets }) => [`tenant:${name}`, budgets] as const),
    ...models.map(({ name, budgets }) => [`model:${name}`, budgets] as const),
  ]
  for (const [owner, configs] of owners)
    for (const live of liveBudgets(owner, configs)) {
      if (told.length === TOLD_MAX) return told
      const { index } = live.budget.windowAt(now_ms)
      const slot = findBudgetSlot(table, live.budget.name, index)
      const used_nanodollars = slot === undefined ? 0n : (budgetUsed(table, slot, index) ?? 0n)
      const { per, timezone } = live.config
      told.push({ owner, per, timezone, limit_nanodollars: limitAt(live, now_ms), used_nanodollars })
    }
  return told
}

const countOf = ({ i32 }: Table, subject: Subject | undefined): number =>
  subject === undefined ? 0 : Atomics.load(i32, subject * 2 + SUBJECT.count)
