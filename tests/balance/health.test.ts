import { expect, test } from 'bun:test'
import {
  FORGET_MS,
  latencyMs,
  noteLatency,
  noteTokenTime,
  silentMs,
  tokenMs,
  SLOW_START_MS,
  warmth,
} from '../../src/balance/averages.ts'
import { chooseTarget } from '../../src/balance/choose.ts'
import {
  claimProbe,
  coolMs,
  HEALTH,
  markFailed,
  markGood,
  markProbed,
  onProbation,
  releaseProbe,
} from '../../src/balance/health.ts'
import { openTable } from '../../src/table/table.ts'
import { tempFolder } from '../kit/wait.ts'
import { modelOf, NOW, randomFrom, tableIn, targetOf, wish } from './kit.ts'

test('a benched engine gets exactly one trial when its time is up, and its answer decides', () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  const a = targetOf(table, 'a')
  const b = targetOf(table, 'b')
  const random = randomFrom(3)
  const pick = (at_ms: number) => {
    const chosen = chooseTarget(modelOf([a, b]), wish(), table, at_ms, random)
    return 'why' in chosen ? chosen.why : chosen.engine.name
  }
  markFailed(table, a.engine.subject, NOW)
  for (let turn = 0; turn < 20; turn++) expect(pick(NOW + 1_999)).toBe('b')
  const after = NOW + HEALTH.cooldown_ms
  expect([pick(after), pick(after), pick(after)]).toEqual(['a', 'b', 'b'])
  markFailed(table, a.engine.subject, after)
  expect(coolMs(table, a.engine.subject, after)).toBe(2 * HEALTH.cooldown_ms)
  const later = after + 2 * HEALTH.cooldown_ms
  expect(claimProbe(table, a.engine.subject, later)).toBe(true)
  expect(claimProbe(table, a.engine.subject, later)).toBe(false)
  markGood(table, a.engine.subject, 5, later)
  expect(onProbation(table, a.engine.subject)).toBe(false)
  expect(coolMs(table, a.engine.subject, later)).toBe(0)
})

test('of many workers that see the same table exactly one gets the trial', () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  const { subject } = targetOf(table, 'a').engine
  markFailed(table, subject, NOW)
  const workers = Array.from({ length: 8 }, () => openTable(`${folder.path}/table`))
  expect(workers.filter((worker) => claimProbe(worker, subject, NOW + HEALTH.cooldown_ms))).toHaveLength(1)
})

test('a trial that proved nothing hands the trial on; so does one that never ends', () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  const { subject } = targetOf(table, 'a').engine
  markFailed(table, subject, NOW)
  const after = NOW + HEALTH.cooldown_ms
  releaseProbe(table, subject)
  expect(coolMs(table, subject, NOW)).toBe(HEALTH.cooldown_ms)
  expect(claimProbe(table, subject, after)).toBe(true)
  releaseProbe(table, subject)
  expect(claimProbe(table, subject, after)).toBe(true)
  expect(claimProbe(table, subject, after + HEALTH.probe_ms - 1)).toBe(false)
  expect(claimProbe(table, subject, after + HEALTH.probe_ms)).toBe(true)
})

test('an engine that dies with many calls is benched once, not once for each', () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  const { subject } = targetOf(table, 'a').engine
  for (let call = 0; call < 50; call++) markFailed(table, subject, NOW + call)
  expect(coolMs(table, subject, NOW)).toBe(HEALTH.cooldown_ms)
})

test.each([
  // retry_after_ms, benched for
  [undefined, 2_000],
  [0, 1_000],
  [30_000, 30_000],
  [9_999_999_999, HEALTH.retry_after_ms_max],
])('a failure with Retry-After %p ms benches for %p ms', (retry_after_ms, wanted) => {
  using folder = tempFolder()
  const table = tableIn(folder)
  const { subject } = targetOf(table, 'a').engine
  markFailed(table, subject, NOW, retry_after_ms)
  expect(coolMs(table, subject, NOW)).toBe(wanted)
})

test('failures that double reach a bound', () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  const { subject } = targetOf(table, 'a').engine
  const benches: number[] = []
  let now_ms = NOW
  for (let failure = 0; failure < 8; failure++) {
    markFailed(table, subject, now_ms)
    benches.push(coolMs(table, subject, now_ms))
    now_ms += benches.at(-1)!
    claimProbe(table, subject, now_ms)
  }
  expect(benches).toEqual([2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000, 30_000])
})

test('a probe that fails keeps an engine out; one that succeeds lets the next call try', () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  const { subject } = targetOf(table, 'a').engine
  markProbed(table, subject, false, NOW, 6_000)
  expect(coolMs(table, subject, NOW)).toBe(6_000)
  markProbed(table, subject, true, NOW + 2_000, 6_000)
  expect([coolMs(table, subject, NOW + 2_000), onProbation(table, subject)]).toEqual([0, true])
  expect(claimProbe(table, subject, NOW + 2_000)).toBe(true)
  // A good probe during the trial does not let a second one in.
  markProbed(table, subject, true, NOW + 3_000, 6_000)
  expect(claimProbe(table, subject, NOW + 3_000)).toBe(false)
})

test.each([
  // why it was benched, a good probe ends the bench
  ['unreachable', true],
  ['silent', false],
  ['bad', false],
  ['asked', false],
] as const)('benched because %s: a good probe ends it: %p', (kind, ends) => {
  using folder = tempFolder()
  const table = tableIn(folder)
  const { subject } = targetOf(table, 'a').engine
  markFailed(table, subject, NOW, kind === 'asked' ? 2_000 : undefined, kind)
  markProbed(table, subject, true, NOW + 10, 6_000)
  expect(coolMs(table, subject, NOW + 10)).toBe(ends ? 0 : 1_990)
})

test('an engine that is back starts with a fifth of its traffic and has all of it after the slow start', () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  const { subject } = targetOf(table, 'a').engine
  expect(warmth(table, subject, NOW)).toBe(1)
  markFailed(table, subject, NOW)
  markGood(table, subject, 5, NOW)
  const at = [0, SLOW_START_MS / 2, SLOW_START_MS].map((age_ms) => warmth(table, subject, NOW + age_ms))
  expect(at).toEqual([0.2, 0.5, 1])
})

test('an average rises fast and falls slowly, faster after a silence, and is forgotten in the end', () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  const { subject } = targetOf(table, 'a').engine
  expect(latencyMs(table, subject, NOW)).toBe(0)
  noteLatency(table, subject, 100, NOW)
  expect(latencyMs(table, subject, NOW)).toBe(100)
  // One long prompt is no slow engine: a sample counts as three averages at most.
  noteLatency(table, subject, 10_000, NOW)
  expect(latencyMs(table, subject, NOW)).toBe(200)
  noteLatency(table, subject, 10_000, NOW)
  expect(latencyMs(table, subject, NOW)).toBe(400)
  noteLatency(table, subject, 100, NOW)
  expect(latencyMs(table, subject, NOW)).toBe(370)
  noteLatency(table, subject, 240, NOW + 2_000)
  expect(latencyMs(table, subject, NOW + 2_000)).toBe(305)
  // Each kind has an age of its own: samples of one keep nothing alive of the other.
  noteTokenTime(table, subject, 20, NOW + FORGET_MS)
  expect(latencyMs(table, subject, NOW + FORGET_MS + 1_999)).toBe(305)
  expect(latencyMs(table, subject, NOW + FORGET_MS + 2_000)).toBe(0)
  expect(tokenMs(table, subject, NOW + FORGET_MS + 2_000)).toBe(20)
  expect(silentMs(table, subject, NOW + FORGET_MS + 2_000)).toBe(2_000)
  noteLatency(table, subject, 7, NOW + 2 * FORGET_MS)
  expect(latencyMs(table, subject, NOW + 2 * FORGET_MS)).toBe(7)
})
