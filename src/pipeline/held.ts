import type { RateClaim } from '../quota/rates.ts'
import type { BudgetClaim } from '../table/budget-slot.ts'

/** What a call holds of budgets and token limits until its real end. */
export type Held = {
  /** Of tenant, key and end user: they pay whichever model answers, so the dearest that may is held. */
  readonly budgets: readonly BudgetClaim[]
  nanodollars: bigint
  /** Of the models that may answer, each its own budgets, price and token limit; the one that does is charged. */
  readonly of_models: HeldOfModel[]
  /** Token limits of tenant, key and end user, whichever model answers. */
  readonly rates: readonly RateClaim[]
  readonly tokens: number
  /** Completion tokens to write into the request, as the client named no bound and something must bound it. */
  readonly ceiling_tokens: number | undefined
}

/** What a call holds of a model's own budgets and of its own token limit. */
export type HeldOfModel = {
  readonly model: string
  readonly budgets: readonly BudgetClaim[]
  readonly nanodollars: bigint
  readonly rates: readonly RateClaim[]
  readonly tokens: number
}
