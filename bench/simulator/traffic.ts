export type Random = () => number

/** [0, 1), the same for the same seed (mulberry32). */
export const randomOf = (seed: number): Random => {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}

const between = (random: Random, low: number, high: number): number => Math.floor(low + random() * (high - low))
const exponential = (random: Random, mean: number): number => -Math.log(1 - random()) * mean

/** One turn of a conversation: what the user adds, how long the answer is, and how long the user thinks before it. */
export type Turn = { readonly user_tokens: number; readonly answer_tokens: number; readonly think_ms: number }
export type Conversation = {
  readonly starts_ms: number
  readonly system_tokens: number
  readonly turns: readonly Turn[]
}

/** Conversations whose prompts grow: each turn sends everything that was said before. */
export const conversations = (count: number, turns: number, seed: number): Conversation[] => {
  const random = randomOf(seed)
  return Array.from({ length: count }, () => ({
    starts_ms: random() * 20_000,
    system_tokens: 1_200,
    turns: Array.from({ length: turns }, (_, nth) => ({
      user_tokens: nth === 0 ? between(random, 400, 2_400) : between(random, 40, 240),
      answer_tokens: between(random, 60, 300),
      think_ms: nth === 0 ? 0 : 1_000 + exponential(random, 6_000),
    })),
  }))
}

/** Calls that have nothing to do with each other, so many a second. */
export const oneShots = (per_s: number, seconds: number, seed: number): Conversation[] => {
  const random = randomOf(seed)
  const all: Conversation[] = []
  for (let at_ms = 0; at_ms < seconds * 1_000; at_ms += exponential(random, 1_000 / per_s))
    all.push({
      starts_ms: at_ms,
      system_tokens: 100,
      turns: [{ user_tokens: between(random, 50, 800), answer_tokens: between(random, 40, 200), think_ms: 0 }],
    })
  return all
}
