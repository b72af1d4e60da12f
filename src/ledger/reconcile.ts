import type { Store } from './database.ts'
import { decodeOpenCall } from './open-call.ts'
import { balances } from './queries.ts'

/**
 * Recomputes what the tables must agree on and names each disagreement; empty if the books are right. All accounts sum
 * to zero, revenue is the sum of the charges, each tenant's held money is what its open calls hold, and the roll-ups
 * are the sums of the rows. Reads the whole ledger in one snapshot.
 */
export const findFaults = (store: Store): string[] => {
  const faults: string[] = []
  store.sqlite.run('BEGIN')
  try {
    const accounts = new Map(balances(store).map(({ account, balance_nanodollars }) => [account, balance_nanodollars]))
    const expect = (what: string, got: bigint, want: bigint) => {
      if (got !== want) faults.push(`${what}: ${got}, want ${want}`)
    }
    expect(
      'sum of all accounts',
      [...accounts.values()].reduce((sum, balance) => sum + balance, 0n),
      0n,
    )
    expect('revenue', (accounts.get('revenue') ?? 0n) + refunded(store), charged(store))
    const holds = openHolds(store)
    for (const [account, balance] of accounts)
      if (account.startsWith('held:')) expect(account, balance, holds.get(account) ?? 0n)
    for (const [account, hold] of holds) if (!accounts.has(account)) expect(account, 0n, hold)
    faults.push(...rollupFaults(store))
  } finally {
    store.sqlite.run('ROLLBACK')
  }
  return faults
}

const one = ({ sqlite }: Store, sql: string): bigint => sqlite.prepare<{ n: bigint }, []>(sql).get()?.n ?? 0n

const charged = (store: Store): bigint => one(store, 'SELECT coalesce(sum(charge_nanodollars), 0) AS n FROM calls')

// Refunds and adjustments move revenue beside the calls' charges.
const refunded = (store: Store): bigint =>
  one(
    store,
    `SELECT coalesce(sum(CASE WHEN debit = 'revenue' THEN amount_nanodollars ELSE -amount_nanodollars END), 0) AS n
     FROM entries WHERE 'revenue' IN (debit, credit) AND kind IN ('refund', 'adjustment', 'grant')`,
  )

const openHolds = ({ sqlite }: Store): Map<string, bigint> => {
  const holds = new Map<string, bigint>()
  for (const { state } of sqlite.prepare<{ state: string }, []>('SELECT state FROM open_calls').iterate()) {
    const { intent } = decodeOpenCall(state)
    if (intent === null || intent.hold_nanodollars === 0) continue
    const account = `held:${intent.tenant}`
    holds.set(account, (holds.get(account) ?? 0n) + BigInt(Math.round(intent.hold_nanodollars)))
  }
  return holds
}

const SUMS = `count(*), sum(charge_nanodollars IS NULL), sum(prompt_tokens), sum(cached_tokens), sum(completion_tokens),
  sum(reasoning_tokens), coalesce(sum(charge_nanodollars), 0)`

const rollupFaults = ({ sqlite }: Store): string[] => {
  const of_calls = `SELECT tenant, model, date(at_ms / 1000, 'unixepoch') AS day, ${SUMS} FROM calls GROUP BY 1, 2, 3`
  const stored = 'SELECT * FROM rollups'
  const differing = (some: string, others: string) =>
    sqlite.prepare<{ tenant: string; model: string; day: string }, []>(`${some} EXCEPT ${others}`).all()
  const days = [...differing(of_calls, stored), ...differing(stored, of_calls)]
  return [
    ...new Set(
      days.map(({ tenant, model, day }) => `roll-up of ${tenant}, ${model}, ${day} is not the sum of its rows`),
    ),
  ]
}
