import { expect, test } from 'bun:test'
import { holdTokens, settleTokens, takeRates } from '../../src/quota/rates.ts'
import { reap } from '../../src/table/counts.ts'
import { createTable, subjectOf } from '../../src/table/table.ts'
import { forAll, tempFolder } from '../kit/wait.ts'

const NOW = 1_700_000_000_000
const opened = (path: string) => {
  const table = createTable(`${path}/table`, 256, 0)
  const claim = (name: string, per_minute: number) => ({ subject: subjectOf(table, 'key', name)!, per_minute })
  return { table, claim }
}

test('requests: all or none, and the refused limit tells its state', () => {
  using folder = tempFolder()
  const { table, claim } = opened(folder.path)
  const claims = [claim('key', 10), claim('tenant', 2), claim('model', 5)]
  expect(takeRates(table, claims, NOW).states.map(({ remaining }) => remaining)).toEqual([9, 1, 4])
  expect(takeRates(table, claims, NOW).refused).toBe(-1)
  const refused = takeRates(table, claims, NOW)
  expect(refused.refused).toBe(1)
  expect(refused.states.at(-1)).toEqual({
    admitted: false,
    limit: 2,
    remaining: 0,
    reset_ms: 60_000,
    retry_after_ms: 30_000,
  })
  expect(takeRates(table, [claim('key', 10)], NOW).states[0]!.remaining).toBe(7)
  expect(takeRates(table, [claim('none', 0)], NOW).refused).toBe(0)
})

test('tokens: a hold stays for the whole stream, then the real count stands until time has passed', () => {
  using folder = tempFolder()
  const { table, claim } = opened(folder.path)
  const claims = [claim('key', 100)]
  const hold = (tokens: number, at_ms: number) => holdTokens(table, 0, claims, tokens, NOW + at_ms)
  expect(hold(60, 0).states[0]!.remaining).toBe(40)
  expect(hold(41, 30_000).refused).toBe(0)
  expect(hold(40, 90_000).refused).toBe(-1)
  settleTokens(table, 0, claims, 60, 100, NOW + 90_000)
  settleTokens(table, 0, claims, 40, 0, NOW + 90_000)
  expect(hold(1, 90_000).states[0]!.retry_after_ms).toBe(600)
  expect(hold(1, 90_599).refused).toBe(0)
  expect(hold(1, 90_600).refused).toBe(-1)
  expect(hold(99, 149_999).refused).toBe(0)
  expect(hold(99, 150_000).refused).toBe(-1)
})

test('tokens: all or none, what is not used makes room at once, more than was held is owed', () => {
  using folder = tempFolder()
  const { table, claim } = opened(folder.path)
  const claims = [claim('key', 1_000), claim('tenant', 500)]
  expect(holdTokens(table, 0, claims, 600, NOW).refused).toBe(1)
  expect(holdTokens(table, 0, claims, 500, NOW).refused).toBe(-1)
  settleTokens(table, 0, claims, 500, 20, NOW)
  expect(holdTokens(table, 1, claims, 481, NOW).refused).toBe(1)
  expect(holdTokens(table, 1, claims, 480, NOW).states.map(({ remaining }) => remaining)).toEqual([500, 0])
  settleTokens(table, 1, claims, 480, 980, NOW)
  expect(holdTokens(table, 1, claims, 1, NOW).states[0]!.remaining).toBe(0)
  expect(holdTokens(table, 1, [claim('tenant', 500)], 1, NOW + 60_000).refused).toBe(0)
  expect(holdTokens(table, 1, [claim('tenant', 500)], 1, NOW + 60_120).refused).toBe(-1)
})

test('tokens: what a dead worker held is given back', () => {
  using folder = tempFolder()
  const { table, claim } = opened(folder.path)
  const claims = [claim('key', 100)]
  expect(holdTokens(table, 3, claims, 100, NOW).refused).toBe(-1)
  expect(holdTokens(table, 0, claims, 1, NOW).refused).toBe(0)
  reap(table, 3, [0])
  expect(holdTokens(table, 0, claims, 100, NOW).refused).toBe(-1)
})

test('tokens: in no span more than n + t·n/60 are settled, and held and settled never exceed the limit at once', () => {
  using folder = tempFolder()
  const { table, claim } = opened(folder.path)
  let run = 0
  forAll(40, (roll) => {
    const limit = 50 + roll(2_000)
    const claims = [claim(`k${run++}`, limit)]
    const flying: { held: number; until_ms: number }[] = []
    const settled: { at_ms: number; tokens: number }[] = []
    let at_ms = NOW
    for (let step = 0; step < 300; step++) {
      at_ms += roll(3) === 0 ? roll(4_000) : roll(50)
      for (const call of flying.filter(({ until_ms }) => until_ms <= at_ms)) {
        flying.splice(flying.indexOf(call), 1)
        const tokens = roll(call.held + 1)
        settleTokens(table, 0, claims, call.held, tokens, at_ms)
        settled.push({ at_ms, tokens })
      }
      const held = 1 + roll(limit)
      if (holdTokens(table, 0, claims, held, at_ms).refused >= 0) continue
      flying.push({ held, until_ms: at_ms + roll(20_000) })
      const outstanding = flying.reduce((sum, call) => sum + call.held, 0)
      if (outstanding > limit) throw new Error(`${outstanding} held of ${limit}`)
    }
    for (let from = 0; from < settled.length; from++) {
      let sum = 0
      for (let to = from; to < settled.length; to++) {
        sum += settled[to]!.tokens
        const bound = limit + ((settled[to]!.at_ms - settled[from]!.at_ms) * limit) / 60_000
        if (sum > bound + 1e-6) throw new Error(`${sum} tokens settled, bound ${bound}`)
      }
    }
  })
})
