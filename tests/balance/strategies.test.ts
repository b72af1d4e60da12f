import { describe, expect, test } from 'bun:test'
import type { Ask, Field } from '../../src/balance/field.ts'
import { hashOf } from '../../src/balance/rendezvous.ts'
import { AFFINITY_CALLS_FREE, STRATEGIES, type StrategyName } from '../../src/balance/strategies.ts'
import { randomFrom } from './kit.ts'

type Made = {
  readonly name: string
  weight?: number
  calls?: number
  waiting?: number
  latency_ms?: number
  silent_ms?: number
  price?: number
  sessions?: number
}

const fieldOf = (made: readonly Made[], homes: ReadonlyMap<number, string> = new Map()): Field => ({
  size: made.length,
  weights: made.reduce((sum, one) => sum + (one.weight ?? 1), 0),
  even: made.every(({ weight }) => weight === made[0]!.weight),
  all_calls: made.reduce((sum, one) => sum + (one.calls ?? 0), 0),
  id: (at) => hashOf(made[at]!.name),
  weight: (at) => made[at]!.weight ?? 1,
  calls: (at) => made[at]!.calls ?? 0,
  waiting: (at) => made[at]!.waiting,
  cost: (at) => (((made[at]!.calls ?? 0) + 1) * (made[at]!.latency_ms || 1)) / (made[at]!.weight ?? 1),
  latencyMs: (at) => made[at]!.latency_ms ?? 0,
  silentMs: (at) => made[at]!.silent_ms ?? 0,
  price: (at) => made[at]!.price ?? 0,
  sessions: (at) => made[at]!.sessions ?? 0,
  home: (key) => made.findIndex(({ name }) => name === homes.get(key)),
})

const askOf = (key = 0): Ask => ({ key, prompt_tokens: 100, answer_tokens: 256, margin: 1.25 })
const names = (count: number) => Array.from({ length: count }, (_, nth) => ({ name: `e${nth}` }))

/** How often each is chosen in so many turns. */
const shares = (strategy: StrategyName, made: readonly Made[], turns: number, key?: (turn: number) => number) => {
  const random = randomFrom(11)
  const counts = made.map(() => 0)
  for (let turn = 0; turn < turns; turn++) {
    const ask = askOf(key?.(turn))
    counts[STRATEGIES[strategy].choose(fieldOf(made), ask, random)]! += 1 / turns
  }
  return counts
}

const near = (share: number, wanted: number) => expect(Math.abs(share - wanted)).toBeLessThan(0.03)

test('weighted shares by weight', () => {
  const [a, b, c] = shares('weighted', [{ name: 'a', weight: 6 }, { name: 'b', weight: 3 }, { name: 'c' }], 4_000)
  near(a!, 0.6)
  near(b!, 0.3)
  near(c!, 0.1)
})

test('least_loaded takes the cheaper of two, and equal ones share', () => {
  const [a, b] = shares(
    'least_loaded',
    [
      { name: 'a', calls: 3 },
      { name: 'b', calls: 2 },
    ],
    200,
  )
  expect([a, Math.round(b!)]).toEqual([0, 1])
  for (const share of shares('least_loaded', names(4), 4_000)) near(share, 0.25)
})

test('least_loaded takes the best of few, and of many does not herd to it', () => {
  const few = [
    { name: 'a', latency_ms: 10 },
    { name: 'b', latency_ms: 11 },
    { name: 'c', latency_ms: 100 },
  ]
  expect(shares('least_loaded', few, 300).map((share) => Math.round(share * 100))).toEqual([100, 0, 0])
  const many: Made[] = names(16).map((one, nth) => ({ ...one, latency_ms: 10 + nth }))
  const taken = shares('least_loaded', many, 4_000)
  expect(taken[0]).toBeGreaterThan(0.15)
  expect(taken[0]).toBeLessThan(0.4)
  expect(taken[15]).toBeLessThan(0.01)
})

test('lowest_latency takes the fastest, those less than twice as slow by load, and asks the unknown first', () => {
  const [a, b, c] = shares(
    'lowest_latency',
    [
      { name: 'a', latency_ms: 100, calls: 5 },
      { name: 'b', latency_ms: 195 },
      { name: 'c', latency_ms: 200 },
    ],
    500,
  )
  expect([a, Math.round(b!), c]).toEqual([0, 1, 0])
  expect(shares('lowest_latency', [{ name: 'a', latency_ms: 5 }, { name: 'b' }], 100)[0]).toBe(0)
  // While its first answer is under way it is one of the quick ones, of which the less loaded wins.
  const unknown = (calls: number) =>
    shares(
      'lowest_latency',
      [
        { name: 'a', latency_ms: 5, calls: 2 },
        { name: 'b', calls, latency_ms: 0 },
      ],
      100,
    )
  expect([0, 1, 4_000].map((calls) => Math.round(unknown(calls)[1]!))).toEqual([1, 1, 0])
})

test.each(['least_loaded', 'lowest_latency'] as const)(
  '%s: less than one call in a hundred finds out whether the slow engine is quick again',
  (strategy) => {
    const engines = (calls = 0): Made[] => [
      { name: 'a', latency_ms: 10 },
      { name: 'b', latency_ms: 10 },
      { name: 'c', latency_ms: 1_000, silent_ms: 2_000, calls },
      { name: 'd', latency_ms: 1_000, silent_ms: 1_500 },
    ]
    const [, , c, d] = shares(strategy, engines(), 20_000)
    expect([c! > 0.002, c! < 0.005, d]).toEqual([true, true, 0])
    // One call at a time, and then the next is due.
    const [, , busy, next] = shares(strategy, engines(1), 20_000)
    expect([busy, next! > 0.002, next! < 0.005]).toEqual([0, true, true])
    // An engine that was measured just now needs no such call.
    expect(shares(strategy, [engines()[0]!, { ...engines()[2]!, silent_ms: 900 }], 2_000)[1]).toBe(0)
  },
)

test('cheapest takes the lowest price, and equal ones share', () => {
  const [a, b, c] = shares(
    'cheapest',
    [
      { name: 'a', price: 3 },
      { name: 'b', price: 2 },
      { name: 'c', price: 2 },
    ],
    2_000,
  )
  expect(a).toBe(0)
  near(b!, 0.5)
  near(c!, 0.5)
})

describe.each(['tenant_affinity', 'session_affinity', 'prefix_affinity'] as const)('%s', (strategy) => {
  const keys = Array.from({ length: 10_000 }, (_, nth) => hashOf(`key ${nth}`))
  const choose = (made: readonly Made[], key: number, home?: string) =>
    made[
      STRATEGIES[strategy].choose(
        fieldOf(made, home === undefined ? undefined : new Map([[key, home]])),
        askOf(key),
        randomFrom(1),
      )
    ]!.name

  test('the same key goes to the same engine, and keys spread evenly', () => {
    const engines = names(8)
    const counts = new Map<string, number>()
    for (const key of keys) {
      const first = choose(engines, key)
      expect(choose(engines, key)).toBe(first)
      counts.set(first, (counts.get(first) ?? 0) + 1)
    }
    for (const count of counts.values()) expect(Math.abs(count / 1_250 - 1)).toBeLessThan(0.1)
    expect(counts.size).toBe(8)
  })

  test('when an engine leaves only its own keys move', () => {
    const engines = names(8)
    const without = engines.filter(({ name }) => name !== 'e3')
    let moved = 0
    for (const key of keys) {
      const before = choose(engines, key)
      const after = choose(without, key)
      if (before !== after) moved++
      if (before !== 'e3') expect(after).toBe(before)
    }
    expect(moved / keys.length).toBeLessThan((1 / 8) * 1.1)
  })

  test('weights are kept', () => {
    const engines = [
      { name: 'a', weight: 3 },
      { name: 'b', weight: 1 },
    ]
    const share = keys.filter((key) => choose(engines, key) === 'a').length / keys.length
    near(share, 0.75)
  })

  test('it yields to load beyond the margin, and only then', () => {
    const engines = names(4)
    const key = keys[0]!
    const home = choose(engines, key)
    const loaded = (calls: number, others: number, waiting?: number): Made[] =>
      engines.map(({ name }) => ({
        name,
        calls: name === home ? calls : others,
        ...(name === home && waiting !== undefined && { waiting }),
      }))
    // Few calls never count as load; of 4 × 20 the share is 20, a quarter more is free, and a little is chance.
    expect(choose(loaded(AFFINITY_CALLS_FREE - 1, 0), key, home)).toBe(home)
    expect(choose(loaded(AFFINITY_CALLS_FREE + 2, 0), key, home)).not.toBe(home)
    expect(choose(loaded(24, 20), key, home)).toBe(home)
    expect(choose(loaded(40, 20), key, home)).not.toBe(home)
    // Calls that are not ours make the engine wait all the same.
    expect(choose(loaded(10, 10, 50), key, home)).not.toBe(home)
  })
})

test('a conversation follows the engine that had it, not the hash', () => {
  const engines = names(4)
  for (const name of ['e0', 'e1', 'e2', 'e3']) {
    const field = fieldOf(engines, new Map([[77, name]]))
    expect(STRATEGIES.prefix_affinity.choose(field, askOf(77), randomFrom(1))).toBe(Number(name.slice(1)))
  }
})

test('a new conversation goes where hashing has it while engines differ by chance, and elsewhere when that begins clearly sooner', () => {
  const random = randomFrom(1)
  const choose = (made: readonly Made[], key: number) =>
    STRATEGIES.prefix_affinity.choose(fieldOf(made), askOf(key), random)
  const idle: Made[] = names(4)
  for (let nth = 1; nth < 200; nth++) {
    const key = hashOf(`new ${nth}`)
    const first = choose(idle, key)
    // Twice as slow and idle: no reason to go elsewhere.
    expect(choose(idle.with(first, { ...idle[first]!, latency_ms: 2 }), key)).toBe(first)
    // Two calls more than the others: elsewhere is sooner.
    expect(choose(idle.with(first, { ...idle[first]!, calls: 2 }), key)).not.toBe(first)
  }
})

test('new conversations pass by an engine that has more than its share of them', () => {
  const engines: Made[] = names(4).map((one, nth) => ({ ...one, sessions: nth === 0 ? 40 : 10 }))
  for (let key = 1; key < 500; key++)
    expect(STRATEGIES.prefix_affinity.choose(fieldOf(engines), askOf(hashOf(`${key}`)), randomFrom(1))).not.toBe(0)
})

test('40 calls at once with one prefix: no engine is idle while another is over the margin', () => {
  const engines: Made[] = names(4).map((one) => ({ ...one, calls: 0 }))
  const key = hashOf('shared')
  const homes = new Map<number, string>()
  for (let call = 0; call < 40; call++) {
    const chosen = engines[STRATEGIES.prefix_affinity.choose(fieldOf(engines, homes), askOf(key), randomFrom(call))]!
    chosen.calls! += 1
    homes.set(key, chosen.name)
  }
  const calls = engines.map((one) => one.calls!)
  expect(Math.min(...calls)).toBeGreaterThan(0)
  expect(Math.max(...calls)).toBeLessThanOrEqual(Math.ceil(1.25 * 10) + 2)
})
