import { type Model, priceAt } from '../balance/catalogue.ts'
import { giveRate } from '../quota/gcra.ts'
import { holdTokens, type RateClaim, settleTokens, takeRates } from '../quota/rates.ts'
import { type BudgetClaim, BUDGETS_HELD, holdBudgets, settleBudgets } from '../table/budget-slot.ts'
import { type Claim, giveCounts, takeCounts } from '../table/counts.ts'
import type { Call } from './call.ts'
import { worstNanodollars } from './charge.ts'
import type { Held } from './held.ts'
import { ceilingOf, claimOf } from './hold.ts'
import type { House } from './house.ts'
import { completionTokensMax, promptTokensMax } from './prompt-bound.ts'

/** Why a fallback must not be asked. `wait_ms`: until that may be otherwise. */
export type Uncovered = { readonly why: 'unpaid' | 'limited'; readonly wait_ms: number }

/** A fallback may be asked. `undo` gives at once all of it back, if it is not asked after all. */
export type Covered = { undo(): void }

const UNPAID: Uncovered = { why: 'unpaid', wait_ms: 1_000 }
const COVERED: Covered = { undo: () => undefined }

/**
 * Takes what a fallback needs to answer, or nothing: a request, a place and its tokens of the fallback's own limits; and
 * of the budgets what its price may come to above what is held of each, and all of it of the fallback's own.
 */
export const coverFallback = (call: Call, house: House, fallback: Model): Covered | Uncovered => {
  const { key, tenant, body, model, held: before } = call
  if (key === undefined || tenant === undefined || body === undefined || model === undefined) return UNPAID
  const known = { ...call, key, tenant, body, model }
  const held = before ?? NOTHING_HELD
  if (held.of_models.some((one) => one.model === fallback.name)) return COVERED
  const { tokens_per_minute } = fallback.config.limits
  const rates: RateClaim[] =
    tokens_per_minute === undefined ? [] : [{ subject: fallback.limits_subject!, per_minute: tokens_per_minute }]
  const prompt = promptTokensMax(known)
  const ceiling = ceilingOf(known, held.ceiling_tokens ?? model.config.ceiling_tokens, rates, prompt)
  const completion = completionTokensMax(known, ceiling)
  const tokens = prompt + completion
  const limits = takeLimits(call, house, fallback, rates, tokens)
  if ('why' in limits) return limits
  const price = priceAt(fallback, call.received_at_ms)
  const nanodollars = price === undefined ? 0n : worstNanodollars(price, prompt, completion, call.images)
  const more = nanodollars > held.nanodollars ? nanodollars - held.nanodollars : 0n
  const own = holdMore(call, house, fallback, { held, more, all: nanodollars })
  if (own === undefined) {
    limits.undo()
    return UNPAID
  }
  const bounded = held.budgets.length > 0 || own.length > 0 || rates.length > 0
  call.held = {
    ...held,
    nanodollars: held.nanodollars + more,
    of_models: [...held.of_models, { model: fallback.name, budgets: own, nanodollars, rates, tokens }],
    ceiling_tokens: bounded && completion > 0 && body.tokens_max === undefined ? ceiling : held.ceiling_tokens,
  }
  return {
    undo: () => {
      call.held = before
      settleBudgets(house.table, house.worker, held.budgets, more, 0n)
      settleBudgets(house.table, house.worker, own, nanodollars, 0n)
      limits.undo()
    },
  }
}

/** The claims on the fallback's own budgets; undefined if one of them or of the others does not have it. */
const holdMore = (
  call: Call,
  house: House,
  fallback: Model,
  { held, more, all }: { readonly held: Held; readonly more: bigint; readonly all: bigint },
): BudgetClaim[] | undefined => {
  const { table, worker } = house
  const budgets = fallback.budgets.map((live) => claimOf(call, house, live))
  if (budgets.some((claim) => claim === undefined)) return undefined
  const own = budgets as BudgetClaim[]
  if (holdBudgets(table, worker, held.budgets, more) !== BUDGETS_HELD) return undefined
  if (holdBudgets(table, worker, own, all) === BUDGETS_HELD) return own
  settleBudgets(table, worker, held.budgets, more, 0n)
  return undefined
}

/** A place, a request and tokens of the fallback's limits. The place is held until the call ends, as that of its own model. */
const takeLimits = (
  call: Call,
  house: House,
  { config: { limits }, limits_subject: subject }: Model,
  rates: readonly RateClaim[],
  tokens: number,
): Covered | Uncovered => {
  if (subject === undefined) return COVERED
  const { table, worker } = house
  const { concurrent, requests_per_minute } = limits
  const place: Claim | undefined = concurrent === undefined ? undefined : { subject, limit: concurrent }
  const requests = requests_per_minute === undefined ? [] : [{ subject, per_minute: requests_per_minute }]
  if (place && takeCounts(table, worker, [place]) >= 0) return { why: 'limited', wait_ms: 1_000 }
  const request = takeRates(table, requests, house.now())
  const used = request.refused < 0 ? holdTokens(table, worker, rates, tokens, house.now()) : undefined
  const giveBack = (): void => {
    if (place) giveCounts(table, worker, [place])
    if (request.refused < 0) for (const one of requests) giveRate(table, one.subject, 'rate_tat_ns', one.per_minute, 1)
  }
  const full = request.states.concat(used?.states ?? []).find(({ admitted }) => !admitted)
  if (full) {
    giveBack()
    return { why: 'limited', wait_ms: full.retry_after_ms }
  }
  if (place) call.claims.push(place)
  return {
    undo: () => {
      if (place) call.claims.splice(call.claims.indexOf(place), 1)
      settleTokens(table, worker, rates, tokens, 0, house.now())
      giveBack()
    },
  }
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
