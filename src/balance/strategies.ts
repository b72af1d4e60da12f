import type { Ask, Field, Strategy } from './field.ts'
import { draw, mix } from './rendezvous.ts'

/** Calls at an engine below which it is never too loaded for affinity, whatever the others have. */
export const AFFINITY_CALLS_FREE = 4

/** By weight alone. */
export const weighted: Strategy = (field, _ask, random) => drawn(field, random())

/** Candidates that are compared. Two are enough against stale figures; the house's are exact, and four do measurably better. */
const CHOICES = 4

/** Power of a few choices (Mitzenmacher 2001): of some drawn by weight the one with the lowest predicted cost. */
export const leastLoaded: Strategy = (field, _ask, random) => {
  const all = field.size <= CHOICES
  // With few candidates all are compared, from a random one on, so that equal ones share.
  const start = all ? Math.floor(random() * field.size) : 0
  let best = -1
  let best_cost = Number.POSITIVE_INFINITY
  for (let nth = 0; nth < Math.min(CHOICES, field.size); nth++) {
    const at = all ? (start + nth) % field.size : drawn(field, random())
    const cost = field.cost(at)
    if (best >= 0 && cost >= best_cost) continue
    best = at
    best_cost = cost
  }
  return best
}

/** The shortest time to the first token; engines within half as much again are equal, and of those the less loaded wins. */
export const lowestLatency: Strategy = (field, _ask, random) =>
  leastLoadedOf(
    field,
    lowest(field, (at) => field.latencyMs(at), 1.5),
    random,
  )

/** The lowest price of this call; engines of one price share by load. */
export const cheapest: Strategy = (field, ask, random) =>
  leastLoadedOf(
    field,
    lowest(field, (at) => field.price(at, ask), 1),
    random,
  )

/**
 * The engine that had the conversation before, which is where its cache is; the least loaded one if that is loaded beyond
 * the margin, which then has the conversation. A new conversation goes to one of the two targets that hashing gives it
 * among those that carry no more than their share of calls and conversations (consistent hashing with bounded
 * loads, Mirrokni et al. 2018): the first, unless it is far more loaded than the second.
 */
export const followConversation: Strategy = (field, ask, random) => {
  if (ask.key === 0) return leastLoaded(field, ask, random)
  const share = shareOf(field)
  const home = field.home(ask.key)
  if (home >= 0) return fits(field, ask, home, share) ? home : leastLoaded(field, ask, random)
  const may = hasRoom(field, ask, share)
  const first = hashed(field, ask, may)
  if (first < 0) return leastLoaded(field, ask, random)
  const second = hashed(field, ask, (at) => at !== first && may(at))
  const load = (at: number) => field.cost(at) * field.weight(at)
  return second >= 0 && load(second) * FAR_MORE < load(first) ? second : first
}

/** The target that hashing gives a key, without any memory: while it is healthy and within the margin, always the same. */
export const sameTarget: Strategy = (field, ask, random) => {
  if (ask.key === 0) return leastLoaded(field, ask, random)
  const share = shareOf(field)
  const within = hashed(field, ask, (at) => fits(field, ask, at, share))
  return within >= 0 ? within : leastLoaded(field, ask, random)
}

/** The strategies by the names of the configuration. `remembers`: the choice goes to the index of conversations. */
export const STRATEGIES = {
  least_loaded: { choose: leastLoaded, remembers: false },
  weighted: { choose: weighted, remembers: false },
  lowest_latency: { choose: lowestLatency, remembers: false },
  cheapest: { choose: cheapest, remembers: false },
  prefix_affinity: { choose: followConversation, remembers: true },
  session_affinity: { choose: followConversation, remembers: true },
  tenant_affinity: { choose: sameTarget, remembers: false },
} as const satisfies Record<string, { choose: Strategy; remembers: boolean }>

export type StrategyName = keyof typeof STRATEGIES

/** How many times the cost of the second choice the first must have before it is passed over. */
const FAR_MORE = 2
/** Calls beyond the margin that count as chance, once there are enough calls for a share to mean anything. */
const CHANCE_CALLS = 2

/** Calls for each unit of weight, with the one that comes. */
const shareOf = (field: Field): number => {
  let calls = 1
  for (let at = 0; at < field.size; at++) calls += field.calls(at)
  return calls / field.weights
}

/** True if the target with one more call is within the margin over its share. */
const fits = (field: Field, ask: Ask, at: number, share: number): boolean => {
  const waiting = field.waiting(at) ?? 0
  const after = field.calls(at) + 1
  if (waiting > AFFINITY_CALLS_FREE && waiting > after / 2) return false
  return after <= Math.max(AFFINITY_CALLS_FREE, Math.ceil(ask.margin * share * field.weight(at)) + CHANCE_CALLS)
}

/** Says of targets whether they have room for a new conversation: half the margin of conversations, as those live long. */
const hasRoom = (field: Field, ask: Ask, share: number): ((at: number) => boolean) => {
  let sessions = 1
  for (let at = 0; at < field.size; at++) sessions += field.sessions(at)
  const bound = (((1 + ask.margin) / 2) * sessions) / field.weights
  return (at) => field.sessions(at) < Math.ceil(bound * field.weight(at)) && fits(field, ask, at, share)
}

/** The target that hashing gives a key among those that may have it; -1 if none may. */
const hashed = (field: Field, ask: Ask, may: (at: number) => boolean): number => {
  const weigh = !evenWeights(field)
  let best = -1
  let best_draw = -1
  for (let at = 0; at < field.size; at++) {
    // Among equal weights the hash alone gives the same order, without a logarithm for each.
    const value = weigh ? draw(ask.key, field.id(at), field.weight(at)) : mix(ask.key, field.id(at))
    if (value <= best_draw || !may(at)) continue
    best = at
    best_draw = value
  }
  return best
}

const evenWeights = (field: Field): boolean => {
  const weight = field.weight(0)
  for (let at = 1; at < field.size; at++) if (field.weight(at) !== weight) return false
  return true
}

/** One drawn by weight. */
const drawn = (field: Field, random: number): number => {
  let left = random * field.weights
  for (let at = 0; at < field.size; at++) {
    left -= field.weight(at)
    if (left < 0) return at
  }
  return field.size - 1
}

/** Power of two choices among some of the field; at least one must be given. */
const leastLoadedOf = (field: Field, some: readonly number[], random: () => number): number => {
  const nth = Math.floor(random() * some.length)
  const first = some[nth]!
  if (some.length === 1) return first
  const second = some[(nth + 1 + Math.floor(random() * (some.length - 1))) % some.length]!
  return field.cost(second) < field.cost(first) ? second : first
}

/** The targets whose value is at most so many times the least. */
const lowest = (field: Field, valueOf: (at: number) => number, times: number): number[] => {
  const values: number[] = []
  let least = Number.POSITIVE_INFINITY
  for (let at = 0; at < field.size; at++) {
    const value = valueOf(at)
    values.push(value)
    if (value < least) least = value
  }
  const some: number[] = []
  for (let at = 0; at < field.size; at++) if (values[at]! <= least * times) some.push(at)
  return some
}
