import { expect, test } from 'bun:test'
import { holdBench } from '../../bench/hold.ts'

test('the benchmark runs, alone and against a second process', async () => {
  const { figures } = await holdBench({ seconds: 0.01, runs: 1 })
  expect(Object.keys(figures)).toEqual(['hold_settle_us', 'hold_settle_contended_us', 'tokens_us', 'rate_us'])
  for (const { value } of Object.values(figures)) expect(value).toBeGreaterThan(0)
})
