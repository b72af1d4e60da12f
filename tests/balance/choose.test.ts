import { expect, test } from 'bun:test'
import { noteLatency } from '../../src/balance/averages.ts'
import type { Target } from '../../src/balance/catalogue.ts'
import { chooseTarget, type Wish } from '../../src/balance/choose.ts'
import type { Pick } from '../../src/balance/decision.ts'
import { HEALTH, markFailed } from '../../src/balance/health.ts'
import { verdictOf } from '../../src/balance/verdict.ts'
import { takeCounts } from '../../src/table/counts.ts'
import { SUBJECT } from '../../src/table/layout.ts'
import { tempFolder } from '../kit/wait.ts'
import { modelOf, NOW, randomFrom, tableIn, targetOf, wish } from './kit.ts'

const name = (chosen: ReturnType<typeof chooseTarget>) => ('why' in chosen ? chosen.why : chosen.engine.name)
const random = randomFrom(1)

test('full, tried and cooling engines are skipped, and the answer says why none is left', () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  const one = targetOf(table, 'a', { capacity: 1 })
  const two = targetOf(table, 'b')
  takeCounts(table, 0, [{ subject: one.engine.subject, limit: 1 }])
  const choose = (targets: (typeof one)[], made: Partial<Wish> = {}) =>
    chooseTarget(modelOf(targets), wish(made), table, NOW, random)
  expect(name(choose([one]))).toBe('full')
  expect(name(choose([two], { tried: [two] }))).toBe('tried')
  markFailed(table, two.engine.subject, NOW, 42_000)
  expect(choose([two])).toEqual({ wait_ms: 42_000, why: 'cooling' })
  expect(name(choose([one, two]))).toBe('full')
  const picks: Pick[] = []
  const three = targetOf(table, 'c')
  expect(name(choose([one, two, three], { picks }))).toBe('c')
  expect(picks[0]!.skips).toEqual([
    { engine: 'a', why: 'full', wait_ms: 1_000 },
    { engine: 'b', why: 'cooling', wait_ms: 42_000 },
  ])
})

test('least_loaded: a slow engine gets next to nothing while the quick ones are a dozen calls busier', () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  const [slow, quick, other] = ['slow', 'quick', 'other'].map((one) => targetOf(table, one)) as [Target, Target, Target]
  const set = (target: Target, calls: number, latency_ms?: number) => {
    table.i32[target.engine.subject * 2 + SUBJECT.count] = calls
    if (latency_ms !== undefined) noteLatency(table, target.engine.subject, latency_ms, NOW)
  }
  const shareOf = (target: Target) => {
    let chosen = 0
    for (let turn = 0; turn < 1_000; turn++)
      if (chooseTarget(modelOf([slow, quick, other]), wish(), table, NOW, random) === target) chosen++
    return chosen / 1_000
  }
  // Of unknown speed it gets its first call, and no second one before it answered.
  set(quick, 2, 50)
  set(other, 2, 50)
  expect(shareOf(slow)).toBeGreaterThan(0.98)
  set(slow, 1)
  expect(shareOf(slow)).toBe(0)
  set(slow, 0, 500)
  set(quick, 12)
  set(other, 12)
  expect(shareOf(slow)).toBe(0)
  // When the others are that busy it is better than nothing.
  set(quick, 40)
  set(other, 40)
  expect(shareOf(slow)).toBeGreaterThan(0.98)
  // Twice as slow may be the load alone: it takes part.
  set(quick, 3, 50)
  set(other, 3, 50)
  table.f64[slow.engine.subject + SUBJECT.latency_ms] = 100
  expect(shareOf(slow)).toBeGreaterThan(0.98)
})

test.each([1, 2, 3])(
  'seed %p: an engine that was ten times slower is asked rarely, and found out when it is quick again',
  (seed) => {
    using folder = tempFolder()
    const table = tableIn(folder)
    const targets = ['slow', 'quick', 'other'].map((one) => targetOf(table, one))
    const draws = randomFrom(seed)
    const running: { readonly target: Target; readonly ends_ms: number; readonly took_ms: number }[] = []
    /** Share of the first engine in 60 calls a second for so many seconds, while its first token takes so long. */
    const shareIn = (from_s: number, seconds: number, slow_ms: number) => {
      let chosen = 0
      for (let nth = 0; nth < seconds * 60; nth++) {
        const now_ms = NOW + from_s * 1_000 + (nth * 1_000) / 60
        for (const call of running.filter(({ ends_ms }) => ends_ms <= now_ms)) {
          running.splice(running.indexOf(call), 1)
          table.i32[call.target.engine.subject * 2 + SUBJECT.count]! -= 1
          noteLatency(table, call.target.engine.subject, call.took_ms, call.ends_ms)
        }
        const target = chooseTarget(modelOf(targets), wish(), table, now_ms, draws)
        if ('why' in target) throw new Error(target.why)
        const took_ms = target === targets[0] ? slow_ms : 50
        table.i32[target.engine.subject * 2 + SUBJECT.count]! += 1
        running.push({ target, took_ms, ends_ms: now_ms + took_ms })
        if (target === targets[0]) chosen++
      }
      return chosen / (seconds * 60)
    }
    shareIn(0, 5, 500)
    expect(shareIn(5, 120, 500)).toBeLessThan(0.01)
    // Three or four calls of three hundred must find it out.
    shareIn(125, 60, 50)
    expect(shareIn(185, 20, 50)).toBeGreaterThan(0.2)
  },
)

test('a prompt that is surely too long goes to a target with a larger context', () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  const small = targetOf(table, 'small', { context_tokens: 8_192 })
  const large = targetOf(table, 'large', { context_tokens: 131_072 })
  const unknown = targetOf(table, 'unknown')
  const choose = (targets: (typeof small)[], made: Parameters<typeof wish>[0]) =>
    name(chooseTarget(modelOf(targets), wish(made), table, NOW, random))
  for (let turn = 0; turn < 20; turn++) expect(choose([small, large], { prompt_tokens: 20_000 })).toBe('large')
  expect(choose([small], { prompt_tokens: 20_000 })).toBe('context')
  expect(choose([small], { prompt_tokens: 20_000, any_context: true })).toBe('small')
  // An estimate is up to twice the truth.
  expect(choose([small], { prompt_tokens: 16_000 })).toBe('small')
  expect(choose([small, unknown, large], { context_above: 8_192 })).toBe('large')
  expect(choose([small, unknown], { context_above: 8_192 })).toBe('context')
})

test('of the targets of a model at most half are out for bad answers; unreachable and broken ones are out in any number', () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  const targets = ['a', 'b', 'c', 'd'].map((one) => targetOf(table, one))
  const chosen = (at_ms: number) => {
    const seen = new Set<string>()
    const draws = randomFrom(7)
    for (let turn = 0; turn < 200; turn++) seen.add(name(chooseTarget(modelOf(targets), wish(), table, at_ms, draws)))
    return [...seen].toSorted()
  }
  const fail = (nth: number, kind: 'bad' | 'unreachable') =>
    markFailed(table, targets[nth]!.engine.subject, NOW, undefined, kind)
  fail(0, 'bad')
  fail(1, 'bad')
  expect(chosen(NOW + 1)).toEqual(['c', 'd'])
  fail(2, 'bad')
  expect(chosen(NOW + 1)).toHaveLength(2)
  fail(3, 'bad')
  expect(chosen(NOW + 1)).toHaveLength(2)
  using other_folder = tempFolder()
  const other = tableIn(other_folder)
  const same = ['a', 'b', 'c', 'd'].map((one) => targetOf(other, one))
  for (const { engine } of same.slice(0, 3)) markFailed(other, engine.subject, NOW, undefined, 'unreachable')
  for (let turn = 0; turn < 50; turn++)
    expect(name(chooseTarget(modelOf(same), wish(), other, NOW + 1, random))).toBe('d')
})

test('when all have been slow once, the one that is due first answers; when they are slow again, nobody', () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  const targets = ['a', 'b', 'c'].map((one) => targetOf(table, one))
  targets.forEach(({ engine }, nth) => markFailed(table, engine.subject, NOW - 30 + nth * 10, undefined, 'silent'))
  const choose = (made: Partial<Wish> = {}) => name(chooseTarget(modelOf(targets), wish(made), table, NOW, random))
  expect(choose()).toBe('a')
  expect(choose({ tried: [targets[0]!] })).toBe('b')
  for (const { engine } of targets)
    for (let at_ms = NOW + 2_000; at_ms < NOW + 10_000; at_ms += 4_000) markFailed(table, engine.subject, at_ms)
  expect(name(chooseTarget(modelOf(targets), wish(), table, NOW + 6_100, random))).toBe('cooling')
})

test('the only engine of a model is benched and tried again, never for ever', () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  const only = targetOf(table, 'a')
  const choose = (at_ms: number) => chooseTarget(modelOf([only]), wish(), table, at_ms, random)
  let now_ms = NOW
  for (let failure = 0; failure < 10; failure++) {
    expect(name(choose(now_ms))).toBe('a')
    markFailed(table, only.engine.subject, now_ms, undefined, 'bad')
    const left = choose(now_ms)
    if (!('why' in left)) throw new Error('it is not benched')
    expect(left.why).toBe('cooling')
    expect(left.wait_ms).toBeLessThanOrEqual(HEALTH.cooldown_ms_max)
    now_ms += left.wait_ms
  }
})

test.each([
  // status, another engine, health, shown
  [200, false, 'good', 'as_is'],
  [302, true, 'fail', 'as_is'],
  [400, false, 'none', 'as_is'],
  [401, true, 'fail', 'credential'],
  [403, true, 'fail', 'credential'],
  [404, true, 'none', 'as_is'],
  [408, true, 'none', 'as_is'],
  [413, false, 'none', 'as_is'],
  [422, false, 'none', 'as_is'],
  [429, true, 'fail', 'as_is'],
  [500, true, 'fail', 'as_is'],
  [503, true, 'fail', 'as_is'],
] as const)('status %p: next=%p health=%p shown=%p', (status, next, health, shown) => {
  expect(verdictOf(status)).toEqual({ next, health, shown })
})
