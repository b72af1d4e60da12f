import { expect, setDefaultTimeout, test } from 'bun:test'
import { runExact } from './exact-long.ts'

setDefaultTimeout(60_000)

test('budgets that pay for exactly N calls, 150 callers at once, hang-ups: N, and to the nanodollar', async () => {
  const seed = Number(process.env['SEED'] ?? Math.floor(Math.random() * 2 ** 31))
  const seen = await runExact({ rounds: 2, callers: 150, seed }).catch((cause: Error) => {
    throw new Error(`repeat with SEED=${seed}: ${cause.message}`, { cause })
  })
  expect(seen.lines).toHaveLength(2)
  expect(seen.admitted + seen.refused).toBe(2 * 3 * 150)
})
