import { budgetLimit, nextLimitChange } from '../config/budgets.ts'
import type { BudgetConfig } from '../config/schema.ts'
import { type Budget, openBudget } from './budgets.ts'

/** A budget of the configuration, ready to be claimed on. Keep it: it remembers its window, its slots and its limit. */
export type LiveBudget = {
  readonly budget: Budget
  readonly config: BudgetConfig
  /** As a person knows it: `tenant acme`. */
  readonly whose: string
  /** The limit in nanodollars and until when it holds. */
  known: { readonly limit: bigint; readonly until_ms: number } | undefined
}

/** The budgets of one owner: `tenant:NAME`, `key:ID`, `end_user:TENANT/USER` or `model:NAME`. */
export const liveBudgets = (owner: string, configs: readonly BudgetConfig[]): LiveBudget[] =>
  configs.map((config) => ({
    budget: openBudget(owner, config.per, config.timezone),
    config,
    whose: owner.replace(':', ' ').replace('end_user', 'end user'),
    known: undefined,
  }))

/** What may be spent in the window of an instant, in nanodollars: the budget and the increases in force. */
export const limitAt = (live: LiveBudget, at_ms: number): bigint => {
  if (live.known !== undefined && at_ms < live.known.until_ms) return live.known.limit
  const limit = budgetLimit(live.config, at_ms)
  live.known = { limit, until_ms: nextLimitChange(live.config, at_ms) ?? Number.POSITIVE_INFINITY }
  return limit
}
