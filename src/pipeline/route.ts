import { type Model, type Target, withFallbacks } from '../balance/catalogue.ts'
import { chooseTarget, type NoTarget, type Wish } from '../balance/choose.ts'
import { newDecision, type Pick } from '../balance/decision.ts'
import { releaseProbe } from '../balance/health.ts'
import { noteCall, retryAllowed } from '../balance/retry-budget.ts'
import { Failure } from '../base/failure.ts'
import { affinityKey } from './affinity.ts'
import { type Call, type Enriched, pass, type Routed } from './call.ts'
import { type Covered, coverFallback, type Uncovered } from './cover-fallback.ts'
import type { House } from './house.ts'
import { promptTokens } from './intent.ts'
import { leavePlace, takePlace } from './place.ts'
import { mustWait, waitForPlace } from './waiting.ts'

/** Answer tokens of a call that sets no limit, for predictions only. */
const ANSWER_TOKENS = 256

/** Chooses the engine and takes a place at it; waits for one, in its turn, while all are full. */
export const route = (call: Enriched, house: House): Routed | Failure | Promise<Routed | Failure> => {
  const { model } = call
  if (model === undefined) return pass<Routed>(call, 'route')
  const open: Call = call
  open.decision = newDecision(model.name)
  open.ask = {
    key: affinityKey(call, model.config.strategy),
    prompt_tokens: promptTokens(call),
    answer_tokens: (call.body.tokens_max ?? ANSWER_TOKENS) * call.body.n,
    margin: model.config.affinity_margin,
  }
  noteCall(house.table, model)
  const waits = model.config.queue.size > 0
  if (!waits || !mustWait(house, model)) {
    const found = placeAt(call, house, model, wishOf(call, []))
    if (!('why' in found)) return routed(call, found)
    if (!waits || found.why !== 'full') return orFallback(call, house)
  }
  return waitForPlace(call, house, model, () => placeAt(call, house, model, wishOf(call, []))).then((found) => {
    if (!(found instanceof Failure)) return routed(call, found)
    const over = call.client_gone || found.code === 'draining'
    const other = over ? found : anyTarget(call, house, [])
    return other instanceof Failure ? found : routed(call, other.target)
  })
}

const orFallback = (call: Enriched, house: House): Routed | Failure => {
  const found = anyTarget(call, house, [])
  return found instanceof Failure ? found : routed(call, found.target)
}

const routed = (call: Enriched, target: Target): Routed => {
  const open: Call = call
  open.target = target
  return pass<Routed>(call, 'route')
}

/**
 * Another target for a call that an engine gave no answer: one that was not tried yet, of the call's model or else of its
 * fallbacks in their order, with a place at its engine taken; `leavePlace` gives it back. The model's retry budget must
 * pay for it. `context_above`: only targets that declare a larger context, for a call that was refused as too long; that
 * is no engine's failure and needs no budget.
 */
export const nextTarget = (
  call: Call,
  house: House,
  tried: readonly Target[],
  context_above?: number,
): Target | Failure => {
  const found = anyTarget(call, house, tried, context_above)
  if (found instanceof Failure) return found
  if (context_above !== undefined || retryAllowed(house.table, call.model!, house.now())) return found.target
  giveUp(call, house, found.target)
  found.cover?.undo()
  if (call.decision) call.decision.over_budget = true
  return new Failure('no_engine', { says: 'Too many calls of this model are retries already.', retry_after_s: 1 })
}

/** A target with a place, and what a fallback's own needs besides. */
type Found = { readonly target: Target; readonly cover?: Covered }

const anyTarget = (call: Call, house: House, tried: readonly Target[], context_above?: number): Found | Failure => {
  const models = withFallbacks(call.model!, call.catalogue)
  const none: Nothing[] = []
  for (const any_context of [false, true]) {
    for (const model of models) {
      const target = placeAt(call, house, model, wishOf(call, tried, context_above, any_context))
      if ('why' in target) {
        none.push(target)
        continue
      }
      if (model === call.model) return { target }
      const cover = coverFallback(call, house, model)
      if (!('why' in cover)) return { target, cover }
      giveUp(call, house, target)
      const told = call.decision?.[cover.why]
      if (told?.includes(model.name) === false) told.push(model.name)
      none.push(cover)
    }
    // An estimate alone refuses nobody: the engine may know better.
    if (context_above !== undefined || !none.some(({ why }) => why === 'context')) break
  }
  return noEngine(call.model!, none)
}

const wishOf = (call: Call, tried: readonly Target[], context_above?: number, any_context = false): Wish => ({
  ask: call.ask ?? NO_ASK,
  tried,
  any_context,
  ...(context_above !== undefined && { context_above }),
  ...(call.decision && { picks: call.decision.picks }),
})

const NO_ASK = { key: 0, prompt_tokens: 0, answer_tokens: ANSWER_TOKENS, margin: 1.25 }

const placeAt = (call: Call, house: House, model: Model, wish: Wish): Target | NoTarget => {
  // Another worker can take the last place between the choice and the claim: choose again, each time among fewer.
  const full: Target[] = []
  for (;;) {
    const tried = full.length === 0 ? wish.tried : [...wish.tried, ...full]
    const chosen = chooseTarget(model, { ...wish, tried }, house.table, house.now(), house.random)
    if ('why' in chosen) return full.length > 0 ? { wait_ms: 1_000, why: 'full' } : chosen
    if (takePlace(call, house, chosen, wish.ask.prompt_tokens)) return chosen
    notChosen(house, chosen, wish.picks)
    full.push(chosen)
  }
}

/** A choice that did not come about: if it was a trial, the next call may try. */
const notChosen = (house: House, target: Target, picks: Pick[] | undefined): void => {
  if (picks?.pop()?.why === 'trial') releaseProbe(house.table, target.engine.subject)
}

const giveUp = (call: Call, house: House, target: Target): void => {
  leavePlace(call, house, target)
  notChosen(house, target, call.decision?.picks)
}

/** Why a model has nobody for a call. */
type Nothing = { readonly wait_ms: number; readonly why: NoTarget['why'] | Uncovered['why'] }

const WORDS = {
  cooling: 'all have failed and are benched',
  full: 'all are full',
  tried: 'all were tried',
  context: 'none takes a prompt of this length',
  unpaid: 'a budget does not cover its price',
  limited: 'its own limits are used up',
} as const

const noEngine = (model: Model, none: readonly Nothing[]): Failure => {
  const soonest = none.reduce((one, other) => (other.wait_ms < one.wait_ms ? other : one))
  return new Failure('no_engine', {
    says: `No engine for the model ${JSON.stringify(model.name)} can take this call now: ${WORDS[none[0]!.why]}.`,
    retry_after_s: Math.max(1, Math.ceil(soonest.wait_ms / 1000)),
  })
}
