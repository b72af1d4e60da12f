import type { Ask, Field, Strategy } from './field.ts'
import { draw, mix } from './rendezvous.ts'

/** Calls at an engine below which it is never too loaded for affinity, whatever the others have. */
export const AFFINITY_CALLS_FREE = 4

/** By weight alone. */
export const weighted: Strategy = (field, _ask, random) => drawn(field, random())

/** Candidates that are compared. Two are enough against stale figures; the house's are exact, and four do measurably better. */
const CHOICES = 4

/**
 * Power of a few choices (Mitzenmacher 2001): of some drawn by weight the one with the lowest predicted cost. One call in
 * {@link EXPLORED} goes to the engine whose speed was measured longest ago instead.
 */
export const leastLoaded: Strategy = (field, _ask, random) => {
  const first = random()
  const asked = explored(field, first)
  if (asked >= 0) return asked
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

/**
 * The shortest time to the first token; engines that take less than twice as long are equal, and of those the less loaded wins.
 * An idle engine of unknown speed comes first; one call in {@link EXPLORED} goes to the one measured longest ago.
 */
export const lowestLatency: Strategy = (field, _ask, random) => {
  const asked = explored(field, random())
  return asked >= 0 ? asked : leastLoadedOf(field, quickest(field), random)
}

/** The lowest price of this call; engines of one price share by load. */
export const cheapest: Strategy = (field, ask, random) => {
  let least = Number.POSITIVE_INFINITY
  let count = 0
  for (let at = 0; at < field.size; at++) {
    const price = field.price(at, ask)
    if (price > least) continue
    if (price < least) count = 0
    least = price
    some[count++] = at
  }
  return leastLoadedOf(field, count, random)
}

/**
 * The engine that had the conversation before, which is where its cache is; the least loaded one if that is loaded beyond
 * the margin, which then has the conversation. A new conversation has no cache anywhere: of the targets that carry no more
 * than their share of calls and conversations (consistent hashing with bounded loads, Mirrokni et al. 2018) it goes to
 * the one that hashing gives it, unless another would begin with it clearly sooner.
 */
export const followConversation: Strategy = (field, ask, random) => {
  if (ask.key === 0) return leastLoaded(field, ask, random)
  const share = shareOf(field)
  const home = field.home(ask.key)
  if (home >= 0) return fits(field, ask, home, share) ? home : leastLoaded(field, ask, random)
  const may = hasRoom(field, ask, share)
  const first = hashed(field, ask, may)
  if (first < 0) return leastLoaded(field, ask, random)
  const load = (at: number) => field.cost(at) * field.weight(at)
  let best = first
  let least = Math.min(load(first) / CLEARLY, load(first) - ONE_CALL)
  for (let at = 0; at < field.size; at++) {
    const value = load(at)
    if (value >= least || !may(at)) continue
    best = at
    least = value
  }
  return best
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

/** How many times the load of another the first choice must have before it is passed over. */
const CLEARLY = 1.2
/** And what that is at least: idle engines differ by chance, and then hashing has the word. */
const ONE_CALL = 1
/** Calls beyond the margin that count as chance, once there are enough calls for a share to mean anything. */
const CHANCE_CALLS = 2

/** Calls for each unit of weight, with the one that comes. */
const shareOf = (field: Field): number => (field.all_calls + 1) / field.weights

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
  const weigh = !field.even
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

/** One drawn by weight. */
const drawn = (field: Field, random: number): number => {
  if (field.even) return Math.floor(random * field.size)
  let left = random * field.weights
  for (let at = 0; at < field.size; at++) {
    left -= field.weight(at)
    if (left < 0) return at
  }
  return field.size - 1
}

/** Of so many calls one asks an engine that has not been asked for long: that it is quick again nobody else would find out. */
export const EXPLORED = 300
/** An engine that was measured within this time needs no such call. */
const MEASURED_MS = 1_000

/** The idle engine whose speed was measured longest ago, for one draw in {@link EXPLORED}; else -1. */
const explored = (field: Field, random: number): number => {
  if (random * EXPLORED >= 1 || field.size === 1) return -1
  let best = -1
  let longest_ms = MEASURED_MS
  for (let at = 0; at < field.size; at++) {
    const silent_ms = field.calls(at) === 0 ? field.silentMs(at) : 0
    if (silent_ms <= longest_ms) continue
    best = at
    longest_ms = silent_ms
  }
  return best
}

/** Candidates of the choice under way: one list for all, so that none is made. Nothing else runs between its filling and its reading. */
const some: number[] = []

/** Power of two choices among the first of {@link some}; at least one must be there. */
const leastLoadedOf = (field: Field, count: number, random: () => number): number => {
  const nth = Math.floor(random() * count)
  const first = some[nth]!
  if (count === 1) return first
  const second = some[(nth + 1 + Math.floor(random() * (count - 1))) % count]!
  return field.cost(second) < field.cost(first) ? second : first
}

const latencies: number[] = []

/** Latencies that are less than so many times the least are equal: an engine's load, which follows the choice, moves them as much. */
const ALIKE = 2

/** Puts those into {@link some} whose latency is equal to the least; answers how many. */
const quickest = (field: Field): number => {
  let least = Number.POSITIVE_INFINITY
  for (let at = 0; at < field.size; at++) {
    let value = field.latencyMs(at)
    // While its first answer is under way nobody knows more: it counts as one of the quick.
    if (value === 0 && field.calls(at) > 0) value = -1
    latencies[at] = value
    if (value >= 0 && value < least) least = value
  }
  let count = 0
  for (let at = 0; at < field.size; at++)
    if (latencies[at]! <= least || latencies[at]! < least * ALIKE) some[count++] = at
  return count
}
