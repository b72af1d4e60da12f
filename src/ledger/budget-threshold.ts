import { type Window, windowAt } from '../base/windows.ts'
import { budgetLimit } from '../config/budgets.ts'
import type { BudgetConfig, TenantConfig } from '../config/schema.ts'
import type { CallRow } from './tables.ts'

/**
 * True if spending went over a share of a limit between two moments: `before` was below it, `after` is not. A limit of 0
 * is never crossed. Requires 0 < share ≤ 1, and 0 ≤ before ≤ after; shares are exact to a millionth.
 */
export const thresholdCrossed = (before: bigint, after: bigint, limit: bigint, share: number): boolean => {
  const parts = BigInt(Math.round(share * 1_000_000))
  return limit > 0n && before * 1_000_000n < limit * parts && after * 1_000_000n >= limit * parts
}

/** Told when spending reaches the share that a budget names. */
export type BudgetAlert = {
  readonly tenant: string
  readonly budget: BudgetConfig
  readonly window: Window
  readonly spent: bigint
  readonly limit: bigint
}

export type AlertPorts = {
  /** The tenants in force. */
  readonly tenants: () => readonly TenantConfig[]
  /** What the ledger has for a tenant in a span, nanodollars. */
  readonly spent: (tenant: string, from_ms: number, to_ms: number) => bigint
  readonly tell: (alert: BudgetAlert) => void
}

type Watched = { window: Window; spent: bigint }

/**
 * Watches the budgets that name a share. `posted` takes the rows of each posting once they are committed. A crossing is
 * told once in a window; an accountant that starts anew tells those again that are over, so that none is lost in between.
 */
export const watchBudgets = ({ tenants, spent, tell }: AlertPorts) => {
  let known: readonly TenantConfig[] | undefined
  let alerting = new Map<string, TenantConfig>()
  const watched = new Map<string, Watched>()

  const refresh = (): void => {
    const now = tenants()
    if (now === known) return
    known = now
    alerting = new Map(
      now
        .filter(({ budgets }) => budgets.some(({ alert_share }) => alert_share !== undefined))
        .map((each) => [each.name, each]),
    )
    for (const name of watched.keys()) if (!alerting.has(name.slice(0, name.indexOf('\n')))) watched.delete(name)
  }

  const look = (tenant: string, budget: BudgetConfig, charges: readonly CallRow[]): void => {
    const newest_ms = charges.reduce((latest, { at_ms }) => Math.max(latest, at_ms), 0)
    const name = `${tenant}\n${budget.per}\n${budget.timezone}`
    const window = windowAt(budget.per, budget.timezone, newest_ms)
    const before = watched.get(name)
    // A call of a window that is over changes nothing that anybody could still act on.
    if (before !== undefined && window.index < before.window.index) return
    const fresh = before === undefined || window.index > before.window.index
    const after = fresh
      ? spent(tenant, window.start_ms, window.end_ms)
      : charges.reduce(
          (sum, { at_ms, charge_nanodollars }) => (at_ms >= window.start_ms ? sum + (charge_nanodollars ?? 0n) : sum),
          before.spent,
        )
    watched.set(name, { window, spent: after })
    const limit = budgetLimit(budget, newest_ms)
    if (thresholdCrossed(fresh ? 0n : before.spent, after, limit, budget.alert_share!))
      tell({ tenant, budget, window, spent: after, limit })
  }

  return {
    posted: (rows: readonly CallRow[]): void => {
      refresh()
      if (alerting.size === 0) return
      const of_tenant = Map.groupBy(rows, (row) => row.tenant)
      for (const [name, charges] of of_tenant)
        for (const budget of alerting.get(name)?.budgets ?? [])
          if (budget.alert_share !== undefined) look(name, budget, charges)
    },
  }
}
