import { expect, test } from 'bun:test'
import { noteCall, RETRY_BUDGET, retryAllowed } from '../../src/balance/retry-budget.ts'
import { subjectOf } from '../../src/table/table.ts'
import { tempFolder } from '../kit/wait.ts'
import { NOW, tableIn } from './kit.ts'

test('a fifth of the traffic may be retries, and a few a second in any case', () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  const model = { subject: subjectOf(table, 'model', 'm')! }
  const spend = (at_ms: number) => {
    let allowed = 0
    while (retryAllowed(table, model, at_ms)) allowed++
    return allowed
  }
  expect(spend(NOW)).toBe(RETRY_BUDGET.burst)
  expect(spend(NOW)).toBe(0)
  expect(spend(NOW + 1_000)).toBe(RETRY_BUDGET.floor_per_s)
  for (let call = 0; call < 1_000; call++) noteCall(table, model)
  expect(spend(NOW + 1_000)).toBe(RETRY_BUDGET.burst)
  for (let call = 0; call < 100; call++) noteCall(table, model)
  expect(spend(NOW + 1_000)).toBe(20)
})

test('much traffic in good times buys no more than the burst later', () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  const model = { subject: subjectOf(table, 'model', 'm')! }
  for (let call = 0; call < 100_000; call++) noteCall(table, model)
  let allowed = 0
  while (retryAllowed(table, model, NOW)) allowed++
  expect(allowed).toBe(RETRY_BUDGET.burst)
})
