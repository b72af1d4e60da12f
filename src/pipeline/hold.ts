import { type Model, priceAt, type Tenant } from '../balance/catalogue.ts'
import { Failure } from '../base/failure.ts'
import { usd } from '../base/money.ts'
import { claimOn } from '../quota/budgets.ts'
import { limitAt, type LiveBudget, liveBudgets } from '../quota/live-budget.ts'
import { holdTokens, type RateClaim, settleTokens, takeRates } from '../quota/rates.ts'
import {
  type BudgetClaim,
  BUDGETS_HELD,
  BUDGETS_STALE,
  budgetUsed,
  holdBudgets,
  settleBudgets,
} from '../table/budget-slot.ts'
import { takeCounts } from '../table/counts.ts'
import type { KeyRecord } from '../table/key-file.ts'
import { type Subject, subjectOf } from '../table/table.ts'
import type { Body } from './body.ts'
import type { Call } from './call.ts'
import { worstNanodollars } from './charge.ts'
import type { House } from './house.ts'
import { imagesIn } from './images.ts'
import { type Most, overBudget, overMinute, windowInWords } from './never-fits.ts'
import { answersMax, completionTokensMax, promptTokensMax } from './prompt-bound.ts'
import { rateExceeded, rateHeaders } from './rate-headers.ts'

type Known = Call & { readonly key: KeyRecord; readonly tenant: Tenant; readonly body: Body; readonly model: Model }

/**
 * Takes what the call can cost at most from every budget that applies (tenant, key, end user, model), all or none, and
 * likewise its tokens from every token limit; and the limits of end user and model that only the body tells of.
 */
export const takeHold = (call: Known, house: House): Failure | undefined => {
  const open: Call = call
  open.images = imagesIn(call)
  const refused = takeBodyLimits(call, house)
  if (refused) return refused
  const budgets = budgetsOf(call)
  const rates = tokenClaims(call, house)
  if (rates instanceof Failure) return rates
  if (budgets.length === 0 && rates.length === 0) return undefined
  const { body, model } = call
  const prompt = promptTokensMax(call)
  const ceiling = ceilingOf(call, model.config.ceiling_tokens, rates, prompt)
  const completion = completionTokensMax(call, ceiling)
  const price = priceAt(model, call.received_at_ms)
  const nanodollars = price === undefined ? 0n : worstNanodollars(price, prompt, completion, call.images)
  const tokens = prompt + completion
  const most = { prompt, tokens, nanodollars }
  const over = takeTokens(call, house, rates, most)
  if (over) return over
  const claims = claimBudgets(call, house, budgets, most)
  if (claims instanceof Failure) {
    settleTokens(house.table, house.worker, rates, tokens, 0, house.now())
    return claims
  }
  // Of the budgets the model's own stand first, of the rates last.
  const own = model.budgets.length
  const shared = rates.at(-1)?.whose === 'model' ? rates.length - 1 : rates.length
  open.held = {
    budgets: claims.slice(own),
    nanodollars,
    of_models: [{ model: model.name, budgets: claims.slice(0, own), nanodollars, rates: rates.slice(shared), tokens }],
    rates: rates.slice(0, shared),
    tokens,
    ceiling_tokens: completion === 0 || body.tokens_max !== undefined ? undefined : ceiling,
  }
  return undefined
}

/** The ceiling of answers whose client set none: the given one, or what the tightest token limit allows in a whole minute. */
export const ceilingOf = (call: Known, ceiling_tokens: number, rates: readonly RateClaim[], prompt: number): number => {
  const answers = answersMax(call)
  if (rates.length === 0 || answers === 0 || call.body.tokens_max !== undefined) return ceiling_tokens
  const least = Math.min(...rates.map(({ per_minute }) => per_minute))
  const fits = Math.floor((least - prompt) / answers)
  return fits < 1 ? ceiling_tokens : Math.min(ceiling_tokens, fits)
}

/**
 * Turns the hold into what the call really used, exactly once, after its ending is in the journal. `charged` is the model
 * that answered, whose price that is: the others' budgets and limits get all of theirs back.
 */
export const settleHold = (call: Call, house: House, charge: bigint, tokens: number, charged?: string): void => {
  const { held } = call
  if (held === undefined) return
  const now_ms = house.now()
  call.held = undefined
  const { table, worker } = house
  if (held.budgets.length > 0) settleBudgets(table, worker, held.budgets, held.nanodollars, charge)
  if (held.rates.length > 0) settleTokens(table, worker, held.rates, held.tokens, tokens, now_ms)
  for (const own of held.of_models) {
    const answered = own.model === (charged ?? call.model?.name)
    if (own.budgets.length > 0) settleBudgets(table, worker, own.budgets, own.nanodollars, answered ? charge : 0n)
    if (own.rates.length > 0) settleTokens(table, worker, own.rates, own.tokens, answered ? tokens : 0, now_ms)
  }
}

/** Limits of the end user and of the model: requests a minute and calls at once. */
const takeBodyLimits = (call: Known, house: House): Failure | undefined => {
  const of_user = call.body.end_user === '' ? undefined : call.tenant.config.end_user?.limits
  const wanted = [
    ['end user', of_user, () => subjectOf(house.table, 'end_user', `${call.tenant.name}/${call.body.end_user}`)],
    ['model', call.model.config.limits, () => call.model.limits_subject],
  ] as const
  for (const [whose, limits, find] of wanted) {
    if (limits === undefined || (limits.requests_per_minute === undefined && limits.concurrent === undefined)) continue
    const subject = find()
    if (subject === undefined) return new Failure('table_full', { retry_after_s: 60 })
    if (limits.concurrent !== undefined) {
      const claim = { subject, limit: limits.concurrent }
      if (takeCounts(house.table, house.worker, [claim]) >= 0)
        return new Failure('concurrency_exceeded', {
          says: `This ${whose} may have ${limits.concurrent} calls at once.`,
          retry_after_s: 1,
        })
      call.claims.push(claim)
    }
    if (limits.requests_per_minute === undefined || call.arrival.counted) continue
    const { refused, states } = takeRates(
      house.table,
      [{ subject, per_minute: limits.requests_per_minute }],
      call.received_at_ms,
    )
    if (refused >= 0) return rateExceeded(whose, states[0]!)
  }
  return undefined
}

/** A limit of tokens, and who has it. */
type TokenClaim = RateClaim & { readonly whose: string }

const tokenClaims = (call: Known, house: House): TokenClaim[] | Failure => {
  const claims: TokenClaim[] = []
  const add = (whose: string, per_minute: number | undefined, find: () => Subject | undefined): boolean => {
    if (per_minute === undefined) return true
    const subject = find()
    if (subject !== undefined) claims.push({ subject, per_minute, whose })
    return subject !== undefined
  }
  const { key, tenant, model, body } = call
  const of_user = body.end_user === '' ? undefined : tenant.config.end_user?.limits.tokens_per_minute
  const fits =
    add('key', key.tokens_per_minute, () => subjectOf(house.table, 'key', key.id)) &&
    add('tenant', tenant.config.limits.tokens_per_minute, () => tenant.subject) &&
    add('end user', of_user, () => subjectOf(house.table, 'end_user', `${tenant.name}/${body.end_user}`)) &&
    add('model', model.config.limits.tokens_per_minute, () => model.limits_subject)
  return fits ? claims : new Failure('table_full', { retry_after_s: 60 })
}

const takeTokens = (call: Known, house: House, rates: readonly TokenClaim[], most: Most): Failure | undefined => {
  if (rates.length === 0) return undefined
  const { table, worker } = house
  const { refused, states } = holdTokens(table, worker, rates, most.tokens, house.now())
  call.token_rate = states.reduce((tight, state) => (state.remaining < tight.remaining ? state : tight))
  if (refused < 0) return undefined
  const least = rates.reduce((one, other) => (other.per_minute < one.per_minute ? other : one))
  // A limit of 0 is closed, and may be opened.
  if (least.per_minute > 0 && least.per_minute < most.tokens) {
    const [full] = holdTokens(table, worker, [least], most.tokens, house.now()).states
    return overMinute(call, least.whose, most, full!)
  }
  const state = states[refused]!
  return new Failure('rate_exceeded', {
    says: `The limit of ${state.limit} tokens a minute for this ${rates[refused]!.whose} is used up.`,
    retry_after_s: state.retry_after_ms / 1000,
    headers: rateHeaders(call.rate, state),
  })
}

const claimBudgets = (
  call: Known,
  house: House,
  budgets: readonly LiveBudget[],
  most: Most,
): BudgetClaim[] | Failure => {
  // A clock that was read just before a window's edge is read again, once.
  for (let turn = 0; ; turn++) {
    const claims: BudgetClaim[] = []
    for (const live of budgets) {
      const claim = claimOf(call, house, live)
      if (claim === undefined) return new Failure('table_full', { retry_after_s: 60 })
      claims.push(claim)
    }
    const hold = most.nanodollars
    const answer = holdBudgets(house.table, house.worker, claims, hold)
    if (answer === BUDGETS_HELD) return claims
    if (answer >= 0) {
      const least = claims.reduce((one, { limit }, at) => (limit < claims[one]!.limit ? at : one), 0)
      const { limit } = claims[least]!
      // A budget of 0 is closed, and may be raised.
      if (limit > 0n && limit < hold) return overBudget(call, budgets[least]!, limit, most)
      return exceeded(budgets[answer]!, claims[answer]!, hold, call, house)
    }
    if (answer === BUDGETS_STALE && turn > 0) return new Failure('overloaded', { retry_after_s: 1 })
    call.received_at_ms = house.now()
  }
}

/** A claim on a budget in the window that the call began in; undefined if the shared table is full. */
export const claimOf = ({ received_at_ms }: Call, house: House, live: LiveBudget): BudgetClaim | undefined =>
  claimOn(house.table, live.budget, limitAt(live, received_at_ms), received_at_ms)

const exceeded = (live: LiveBudget, claim: BudgetClaim, hold: bigint, call: Call, house: House): Failure => {
  const used = budgetUsed(house.table, claim.slot, claim.window) ?? 0n
  const left = claim.limit > used ? claim.limit - used : 0n
  const { end_ms } = live.budget.windowAt(call.received_at_ms)
  const resets = Number.isFinite(end_ms) ? ` It begins anew at ${new Date(end_ms).toISOString()}.` : ''
  return new Failure('budget_exceeded', {
    says: `The budget of ${live.whose} (${usd(claim.limit)} USD, ${windowInWords(live)}) has ${usd(left)} USD left, and this call may cost ${usd(hold)} USD.${resets}`,
    retry_after_s: Number.isFinite(end_ms) ? Math.min((end_ms - call.received_at_ms) / 1000, 86_400) : 3_600,
  })
}

const budgetsOf = ({ key, tenant, model, body }: Known): LiveBudget[] => {
  const of_user = body.end_user === '' ? [] : endUserBudgets(tenant, body.end_user)
  return [...model.budgets, ...tenant.budgets, ...keyBudgets(key), ...of_user]
}

const of_keys = new WeakMap<KeyRecord, readonly LiveBudget[]>()
const NONE: readonly LiveBudget[] = []

const keyBudgets = (key: KeyRecord): readonly LiveBudget[] => {
  if (key.budgets === undefined) return NONE
  let known = of_keys.get(key)
  if (known === undefined) of_keys.set(key, (known = liveBudgets(`key:${key.id}`, key.budgets)))
  return known
}

const of_users = new WeakMap<Tenant, Map<string, readonly LiveBudget[]>>()
/** End users remembered of one tenant; the rest is looked up anew. */
const END_USERS_MAX = 10_000

const endUserBudgets = (tenant: Tenant, user: string): readonly LiveBudget[] => {
  const configs = tenant.config.end_user?.budgets ?? []
  if (configs.length === 0) return NONE
  let users = of_users.get(tenant)
  if (users === undefined || users.size >= END_USERS_MAX) of_users.set(tenant, (users = new Map()))
  let known = users.get(user)
  if (known === undefined) users.set(user, (known = liveBudgets(`end_user:${tenant.name}/${user}`, configs)))
  return known
}
