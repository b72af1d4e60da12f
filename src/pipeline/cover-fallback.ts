import { type Model, priceAt } from '../balance/catalogue.ts'
import { type BudgetClaim, BUDGETS_HELD, holdBudgets, settleBudgets } from '../table/budget-slot.ts'
import type { Call } from './call.ts'
import { worstNanodollars } from './charge.ts'
import type { Held } from './held.ts'
import { claimOf } from './hold.ts'
import type { House } from './house.ts'
import { completionTokensMax, promptTokensMax } from './prompt-bound.ts'

/**
 * Makes the hold large enough for a fallback to answer: what its price may come to above what is held, of every budget,
 * and all of it of the fallback's own, or nothing. False if a budget does not have that: then it must not be asked.
 */
export const coverFallback = (call: Call, house: House, fallback: Model): boolean => {
  const { key, tenant, body, model } = call
  if (key === undefined || tenant === undefined || body === undefined || model === undefined) return false
  const known = { ...call, key, tenant, body, model }
  const held = call.held ?? NOTHING_HELD
  if (held.of_models.some((one) => one.model === fallback.name)) return true
  const price = priceAt(fallback, call.received_at_ms)
  const ceiling = held.ceiling_tokens ?? model.config.ceiling_tokens
  const completion = completionTokensMax(known, ceiling)
  const nanodollars =
    price === undefined ? 0n : worstNanodollars(price, promptTokensMax(known), completion, call.images)
  const more = nanodollars > held.nanodollars ? nanodollars - held.nanodollars : 0n
  const budgets = fallback.budgets.map((live) => claimOf(call, house, live))
  if (budgets.some((claim) => claim === undefined)) return false
  const own = budgets as BudgetClaim[]
  const { table, worker } = house
  if (holdBudgets(table, worker, held.budgets, more) !== BUDGETS_HELD) return false
  if (holdBudgets(table, worker, own, nanodollars) !== BUDGETS_HELD) {
    settleBudgets(table, worker, held.budgets, more, 0n)
    return false
  }
  const bounded = held.budgets.length > 0 || own.length > 0
  call.held = {
    ...held,
    nanodollars: held.nanodollars + more,
    of_models: [...held.of_models, { model: fallback.name, budgets: own, nanodollars }],
    ceiling_tokens: bounded && completion > 0 && body.tokens_max === undefined ? ceiling : held.ceiling_tokens,
  }
  return true
}

/** Of a call that no limit bounds, as long as the model that it asked for answers. */
const NOTHING_HELD: Held = {
  budgets: [],
  nanodollars: 0n,
  of_models: [],
  rates: [],
  tokens: 0,
  ceiling_tokens: undefined,
}
