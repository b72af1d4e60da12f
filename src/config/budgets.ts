import { nanodollars } from '../base/money.ts'
import { instantMs } from './instant.ts'
import type { BudgetConfig, TenantConfig } from './schema.ts'

/**
 * A budget's limit at a time, nanodollars: what it says and every increase that has not run out. An increase raises each
 * window that it touches for as long as it lasts; what was spent meanwhile stays spent. Requires a checked budget.
 */
export const budgetLimit = ({ usd, increases = [] }: BudgetConfig, at_ms: number): bigint =>
  increases.reduce(
    (limit, { usd: more, until }) => (at_ms < (instantMs(until) ?? 0) ? limit + (nanodollars(more) ?? 0n) : limit),
    nanodollars(usd) ?? 0n,
  )

/** The next time after `at_ms` at which a budget's limit changes; undefined if it does not. */
export const nextLimitChange = ({ increases = [] }: BudgetConfig, at_ms: number): number | undefined => {
  const ends = increases.map(({ until }) => instantMs(until) ?? 0).filter((until_ms) => until_ms > at_ms)
  return ends.length === 0 ? undefined : Math.min(...ends)
}

/** An increase of the budgets of one tenant that have one window. */
export type TenantIncrease = {
  readonly tenant: string
  readonly per: BudgetConfig['per']
  readonly timezone: string
  readonly usd: string
  readonly until: string
  readonly reason: string
}

/** A tenant with its increases put into the budgets that they raise, behind those that are there. */
export const withIncreases = (tenant: TenantConfig, all: readonly TenantIncrease[]): TenantConfig => {
  const own = all.filter((increase) => increase.tenant === tenant.name)
  if (own.length === 0) return tenant
  const budgets = tenant.budgets.map((budget) => {
    const raised = own.filter(({ per, timezone }) => per === budget.per && timezone === budget.timezone)
    if (raised.length === 0) return budget
    const more = raised.map(({ usd, until, reason }) => ({ usd, until, reason }))
    return { ...budget, increases: [...(budget.increases ?? []), ...more] }
  })
  return { ...tenant, budgets }
}
