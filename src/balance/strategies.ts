import type { Ask, Field, Strategy } from './field.ts'
import { draw } from './rendezvous.ts'

/** Calls at an engine below which it is never too loaded for affinity, whatever the others have. */
export const AFFINITY_CALLS_FREE = 4

/** By weight alone. */
export const weighted: Strategy = (field, _ask, random) => drawn(field, random(), -1)

/** Power of two choices (Mitzenmacher 2001): of two drawn by weight the one with the lower predicted cost. */
export const leastLoaded: Strategy = (field, _ask, random) => {
  if (field.size === 1) return 0
  const first = drawn(field, random(), -1)
  const second = drawn(field, random(), first)
  return field.cost(second) < field.cost(first) ? second : first
}

/** The shortest time to the first token; engines within a tenth of it are equal, and of those the cheapest to load wins. */
export const lowestLatency: Strategy = (field, ask, random) => {
  let least_ms = Number.POSITIVE_INFINITY
  for (let at = 0; at < field.size; at++) least_ms = Math.min(least_ms, field.latencyMs(at))
  return leastLoadedOf(field, ask, random, (at) => field.latencyMs(at) <= least_ms * 1.1)
}

/** The lowest price of this call; engines of one price share by load. */
export const cheapest: Strategy = (field, ask, random) => {
  let least = Number.POSITIVE_INFINITY
  for (let at = 0; at < field.size; at++) least = Math.min(least, field.price(at, ask))
  return leastLoadedOf(field, ask, random, (at) => field.price(at, ask) <= least)
}

/**
 * The engine that had the conversation before, which is where its cache is. A new conversation, or one whose engine
 * is gone or loaded beyond the margin, goes to the target that hashing gives it among those that carry no more than
 * their share of calls and conversations (consistent hashing with bounded loads, Mirrokni et al. 2018).
 */
export const followConversation: Strategy = (field, ask, random) => {
  if (ask.key === 0) return leastLoaded(field, ask, random)
  const bound = callsBound(field, ask)
  const home = field.home(ask.key)
  if (home >= 0 && fits(field, home, bound)) return home
  let sessions = 0
  for (let at = 0; at < field.size; at++) sessions += field.sessions(at)
  const sessions_bound = Math.ceil((ask.margin - (ask.margin - 1) / 2) * ((sessions + 1) / field.size))
  const free = hashed(field, ask, (at) => field.sessions(at) < sessions_bound && fits(field, at, bound))
  return free >= 0 ? free : orLeastLoaded(field, ask, random, bound)
}

/** The target that hashing gives a key, without any memory: while it is healthy and within the margin, always the same. */
export const sameTarget: Strategy = (field, ask, random) => {
  if (ask.key === 0) return leastLoaded(field, ask, random)
  return orLeastLoaded(field, ask, random, callsBound(field, ask))
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

/** Calls that a target may have when one more is given out: its share by weight times the margin, and a few in any case. */
const callsBound = (field: Field, ask: Ask): number => {
  let calls = 1
  let weights = 0
  for (let at = 0; at < field.size; at++) {
    calls += field.calls(at)
    weights += field.weight(at)
  }
  return (ask.margin * calls) / weights
}

const fits = (field: Field, at: number, bound: number): boolean => {
  const waiting = field.waiting(at) ?? 0
  const after = field.calls(at) + 1
  if (waiting > AFFINITY_CALLS_FREE && waiting > after / 2) return false
  return after <= Math.max(AFFINITY_CALLS_FREE, Math.ceil(bound * field.weight(at)))
}

const orLeastLoaded = (field: Field, ask: Ask, random: () => number, bound: number): number => {
  const within = hashed(field, ask, (at) => fits(field, at, bound))
  return within >= 0 ? within : leastLoaded(field, ask, random)
}

const hashed = (field: Field, ask: Ask, may: (at: number) => boolean): number => {
  let best = -1
  let best_draw = -1
  for (let at = 0; at < field.size; at++) {
    const value = draw(ask.key, field.id(at), field.weight(at))
    if (value <= best_draw || !may(at)) continue
    best = at
    best_draw = value
  }
  return best
}

/** One drawn by weight, but for the one numbered `without`. */
const drawn = (field: Field, random: number, without: number): number => {
  let weights = 0
  for (let at = 0; at < field.size; at++) if (at !== without) weights += field.weight(at)
  let left = random * weights
  let last = 0
  for (let at = 0; at < field.size; at++) {
    if (at === without) continue
    last = at
    left -= field.weight(at)
    if (left < 0) return at
  }
  return last
}

/** Power of two choices among some of the field; at least one must qualify. */
const leastLoadedOf = (field: Field, _ask: Ask, random: () => number, may: (at: number) => boolean): number => {
  let count = 0
  for (let at = 0; at < field.size; at++) if (may(at)) count++
  const first = nth(field, may, Math.floor(random() * count))
  if (count === 1) return first
  const skip = Math.floor(random() * (count - 1))
  const second = nth(field, (at) => at !== first && may(at), skip)
  return field.cost(second) < field.cost(first) ? second : first
}

const nth = (field: Field, may: (at: number) => boolean, skip: number): number => {
  let left = skip
  for (let at = 0; at < field.size; at++) if (may(at) && left-- === 0) return at
  return 0
}
