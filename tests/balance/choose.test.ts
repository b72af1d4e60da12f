import { expect, test } from 'bun:test'
import type { Target } from '../../src/balance/catalogue.ts'
import { chooseTarget } from '../../src/balance/choose.ts'
import { claimProbe, coolMs, HEALTH, markFailed, markGood, onProbation } from '../../src/balance/health.ts'
import { verdictOf } from '../../src/balance/verdict.ts'
import { takeCounts } from '../../src/table/counts.ts'
import { createTable, subjectOf, type Table } from '../../src/table/table.ts'
import { rollFrom, tempFolder } from '../kit/wait.ts'

const NOW = 1_700_000_000_000

const target = (table: Table, name: string, weight = 1, capacity = 100): Target =>
  ({
    engine: { name, subject: subjectOf(table, 'engine', name)!, config: { capacity }, transport: undefined },
    model: name,
    weight,
  }) as unknown as Target

const opened = (folder: string) => createTable(`${folder}/table`, 64, 0)
const randomOf = (seed: number) => {
  const roll = rollFrom(seed)
  return () => roll(1_000_000) / 1_000_000
}
const name = (chosen: ReturnType<typeof chooseTarget>) => ('why' in chosen ? chosen.why : chosen.engine.name)

test('weights share the traffic of idle engines', () => {
  using folder = tempFolder()
  const table = opened(folder.path)
  const targets = [target(table, 'a', 3), target(table, 'b', 1)]
  const random = randomOf(1)
  let first = 0
  for (let turn = 0; turn < 4_000; turn++) if (name(chooseTarget(targets, [], table, NOW, random)) === 'a') first++
  expect(first / 4_000).toBeGreaterThan(0.7)
  expect(first / 4_000).toBeLessThan(0.8)
})

test('the less loaded of two is chosen, per capacity and weight', () => {
  using folder = tempFolder()
  const table = opened(folder.path)
  const targets = [target(table, 'a'), target(table, 'b')]
  takeCounts(table, 0, [{ subject: targets[0]!.engine.subject, limit: 100 }])
  for (let turn = 0; turn < 50; turn++) expect(name(chooseTarget(targets, [], table, NOW, randomOf(turn)))).toBe('b')
})

test('full, tried and cooling engines are skipped, and the answer says why none is left', () => {
  using folder = tempFolder()
  const table = opened(folder.path)
  const one = target(table, 'a', 1, 1)
  const two = target(table, 'b')
  takeCounts(table, 0, [{ subject: one.engine.subject, limit: 1 }])
  expect(name(chooseTarget([one], [], table, NOW, Math.random))).toBe('full')
  expect(name(chooseTarget([two], [two], table, NOW, Math.random))).toBe('tried')
  markFailed(table, two.engine.subject, NOW, 42_000)
  expect(chooseTarget([two], [], table, NOW, Math.random)).toEqual({ wait_ms: 42_000, why: 'cooling' })
  expect(name(chooseTarget([one, two], [], table, NOW, Math.random))).toBe('full')
})

test('a benched engine gets exactly one probe when its time is up, and its answer decides', () => {
  using folder = tempFolder()
  const table = opened(folder.path)
  const a = target(table, 'a')
  const b = target(table, 'b')
  const pick = (at_ms: number) => name(chooseTarget([a, b], [], table, at_ms, Math.random))
  markFailed(table, a.engine.subject, NOW)
  for (let turn = 0; turn < 20; turn++) expect(pick(NOW + 1_999)).toBe('b')
  const after = NOW + HEALTH.cooldown_ms
  expect([pick(after), pick(after), pick(after)]).toEqual(['a', 'b', 'b'])
  markFailed(table, a.engine.subject, after)
  expect(coolMs(table, a.engine.subject, after)).toBe(2 * HEALTH.cooldown_ms)
  const later = after + 2 * HEALTH.cooldown_ms
  expect(claimProbe(table, a.engine.subject, later)).toBe(true)
  expect(claimProbe(table, a.engine.subject, later)).toBe(false)
  markGood(table, a.engine.subject, 5)
  expect(onProbation(table, a.engine.subject)).toBe(false)
  expect(coolMs(table, a.engine.subject, later)).toBe(0)
})

test.each([
  // retry_after_ms, benched for
  [undefined, 2_000],
  [0, 1_000],
  [30_000, 30_000],
  [9_999_999_999, HEALTH.retry_after_ms_max],
])('a failure with Retry-After %p ms benches for %p ms', (retry_after_ms, wanted) => {
  using folder = tempFolder()
  const table = opened(folder.path)
  const { subject } = target(table, 'a').engine
  markFailed(table, subject, NOW, retry_after_ms)
  expect(coolMs(table, subject, NOW)).toBe(wanted)
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
