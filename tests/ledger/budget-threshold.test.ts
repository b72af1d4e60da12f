import { expect, test } from 'bun:test'
import type { TenantConfig } from '../../src/config/schema.ts'
import { thresholdCrossed, watchBudgets } from '../../src/ledger/budget-threshold.ts'
import type { CallRow } from '../../src/ledger/tables.ts'

test.each([
  [0n, 79n, 100n, 0.8, false],
  [79n, 80n, 100n, 0.8, true],
  [80n, 81n, 100n, 0.8, false],
  [0n, 500n, 100n, 0.8, true],
  [99n, 100n, 100n, 1, true],
  [0n, 1n, 0n, 0.8, false],
  [0n, 333_333n, 1_000_000n, 0.333333, true],
  [0n, 333_332n, 1_000_000n, 0.333333, false],
  [10n ** 17n, 9n * 10n ** 17n, 10n ** 18n, 0.9, true],
])('from %d to %d of %d at a share of %d: %p', (before, after, limit, share, want) =>
  expect(thresholdCrossed(before, after, limit, share)).toBe(want),
)

const DAY_MS = 86_400_000
const at = Date.UTC(2026, 0, 10, 12)
const row = (tenant: string, at_ms: number, usd: number): CallRow =>
  ({ tenant, at_ms, charge_nanodollars: BigInt(usd) * 1_000_000_000n }) as unknown as CallRow
const tenant = (name: string, more: object): TenantConfig => ({
  name,
  limits: {},
  budgets: [{ usd: '10.00', per: 'day', timezone: 'UTC', ...more }],
})

/** A ledger that knows what it was told, as the accountant's does. */
const watched = (tenants: TenantConfig[], ledger: CallRow[] = []) => {
  const told: string[] = []
  const start = () =>
    watchBudgets({
      tenants: () => tenants,
      spent: (name, from_ms, to_ms) =>
        ledger
          .filter((each) => each.tenant === name && each.at_ms >= from_ms && each.at_ms < to_ms)
          .reduce((sum, { charge_nanodollars }) => sum + (charge_nanodollars ?? 0n), 0n),
      tell: ({ tenant: name, spent, limit }) =>
        told.push(`${name} ${spent / 1_000_000_000n}/${limit / 1_000_000_000n}`),
    })
  let watch = start()
  const post = (...rows: CallRow[]) => {
    ledger.push(...rows)
    watch.posted(rows)
    return told.splice(0)
  }
  return { post, restart: () => void (watch = start()) }
}

test('a crossing is told once in a window, and again in the next', () => {
  const { post } = watched([tenant('a', { alert_share: 0.5 }), tenant('quiet', {})])
  expect(post(row('a', at, 4), row('quiet', at, 50))).toEqual([])
  expect(post(row('a', at, 1))).toEqual(['a 5/10'])
  expect(post(row('a', at, 9))).toEqual([])
  expect(post(row('a', at + DAY_MS, 6))).toEqual(['a 6/10'])
  // A late call of the day before is history.
  expect(post(row('a', at, 100))).toEqual([])
  expect(post(row('a', at + DAY_MS, 6), row('a', at + 2 * DAY_MS, 1))).toEqual([])
  expect(post(row('a', at + 2 * DAY_MS, 5))).toEqual(['a 6/10'])
})

test('a restart counts on from the ledger and tells what is over again', () => {
  const { post, restart } = watched([tenant('a', { alert_share: 0.5 })])
  expect(post(row('a', at, 4))).toEqual([])
  restart()
  expect(post(row('a', at, 1))).toEqual(['a 5/10'])
  restart()
  expect(post(row('a', at, 1))).toEqual(['a 6/10'])
})

test('an increase raises the threshold while it lasts', () => {
  const until = new Date(at + 1_000).toISOString()
  const { post } = watched([tenant('a', { alert_share: 0.5, increases: [{ usd: '10', until }] })])
  expect(post(row('a', at, 9))).toEqual([])
  expect(post(row('a', at, 1))).toEqual(['a 10/20'])
})
