import { expect, test } from 'bun:test'
import { ledgerBench } from '../../bench/ledger.ts'

test('the benchmark runs and posts', async () => {
  const { figures } = await ledgerBench({ seconds: 0.1, runs: 2 })
  expect(Object.keys(figures)).toEqual(['posted_calls_per_s', 'row_delay_ms'])
  for (const { value, min, max } of Object.values(figures))
    expect([min > 0, min <= value, value <= max]).toEqual([true, true, true])
})
