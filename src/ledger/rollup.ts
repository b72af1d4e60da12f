import type { CallRow, RollupRow } from './tables.ts'

/** Sums rows by tenant, model and day. Independent of their order. */
export const addUp = (rows: readonly CallRow[]): RollupRow[] => {
  const sums = new Map<string, RollupRow>()
  let [day, day_number] = ['', -1]
  for (const row of rows) {
    const number = Math.floor(row.at_ms / DAY_MS)
    if (number !== day_number) [day, day_number] = [dayOf(row.at_ms), number]
    const name = `${row.tenant}\n${row.model}\n${day}`
    const sum = sums.get(name) ?? nothing(row, day)
    sum.calls += 1
    sum.unpriced_calls += row.charge_nanodollars === null ? 1 : 0
    sum.prompt_tokens += row.prompt_tokens
    sum.cached_tokens += row.cached_tokens
    sum.completion_tokens += row.completion_tokens
    sum.reasoning_tokens += row.reasoning_tokens
    sum.charge_nanodollars += row.charge_nanodollars ?? 0n
    sums.set(name, sum)
  }
  return [...sums.values()]
}

const DAY_MS = 86_400_000

/** The UTC day of a time, `YYYY-MM-DD`. Requires a time that a Date can hold. */
export const dayOf = (at_ms: number): string => new Date(at_ms).toISOString().slice(0, 10)

const nothing = (row: CallRow, day: string): RollupRow => ({
  tenant: row.tenant,
  model: row.model,
  day,
  calls: 0,
  unpriced_calls: 0,
  prompt_tokens: 0,
  cached_tokens: 0,
  completion_tokens: 0,
  reasoning_tokens: 0,
  charge_nanodollars: 0n,
})
