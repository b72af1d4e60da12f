import type { Target } from '../balance/catalogue.ts'
import { addAmount, type Claim, giveCounts, takeCounts } from '../table/counts.ts'
import type { Call } from './call.ts'
import type { House } from './house.ts'

/** A place at an engine: one call, and the tokens of its prompt that the engine has still to work through. */
type Place = Claim & { tokens: bigint }

/** Takes a place at the target's engine; false if it is full. The call holds it until {@link leavePlace} or its end. */
export const takePlace = (call: Call, house: House, target: Target, tokens: number): boolean => {
  const { subject, config } = target.engine
  const place: Place = { subject, limit: config.capacity, tokens: BigInt(Math.max(0, Math.ceil(tokens))) }
  if (takeCounts(house.table, house.worker, [place]) >= 0) return false
  addAmount(house.table, house.worker, subject, place.tokens)
  call.claims.push(place)
  return true
}

/** Gives the place at the target's engine back, if the call has one there. */
export const leavePlace = (call: Call, house: House, target: Target): void => {
  const at = call.claims.findIndex((claim) => claim.subject === target.engine.subject)
  if (at >= 0) give(house, call.claims.splice(at, 1))
}

/** The engine has worked through the prompt: its first token is there. */
export const promptDone = (call: Call, house: House, target: Target): void => {
  for (const claim of call.claims) {
    if (claim.subject !== target.engine.subject || !isPlace(claim) || claim.tokens === 0n) continue
    addAmount(house.table, house.worker, claim.subject, -claim.tokens)
    claim.tokens = 0n
  }
}

/** Gives back everything that a call holds. */
export const leaveAll = (call: Call, house: House): void => {
  if (call.claims.length > 0) give(house, call.claims.splice(0))
}

const give = (house: House, claims: readonly Claim[]): void => {
  for (const claim of claims) if (isPlace(claim)) addAmount(house.table, house.worker, claim.subject, -claim.tokens)
  giveCounts(house.table, house.worker, claims)
  if (claims.some(isPlace)) for (const wake of left.get(house) ?? []) wake()
}

const isPlace = (claim: Claim): claim is Place => 'tokens' in claim

/** What is called when a call of this worker has left an engine. */
const left = new WeakMap<House, Set<() => void>>()

/** Calls `wake` whenever a place at an engine is given back by this worker, until the answered function is called. */
export const onPlaceLeft = (house: House, wake: () => void): (() => void) => {
  let wakes = left.get(house)
  if (wakes === undefined) left.set(house, (wakes = new Set()))
  wakes.add(wake)
  return () => void wakes.delete(wake)
}
