import type { RateClaim } from '../quota/rates.ts'
import type { BudgetClaim } from '../table/budget-slot.ts'

/** What a call holds of budgets and token limits until its real end. */
export type Held = {
  readonly budgets: readonly BudgetClaim[]
  readonly nanodollars: bigint
  readonly rates: readonly RateClaim[]
  readonly tokens: number
  /** Completion tokens to write into the request, as the client named no bound and something must bound it. */
  readonly ceiling_tokens: number | undefined
}
