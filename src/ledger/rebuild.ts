import type { Store } from './database.ts'
import { usd } from '../base/money.ts'

/** A sum of a tenant, model and UTC day, as it is stored and as the rows say; null where there is none. */
export type RollupDifference = {
  readonly tenant: string
  readonly model: string
  readonly day: string
  readonly stored: RollupSums | null
  readonly of_rows: RollupSums | null
}

export type RollupSums = {
  readonly calls: number
  readonly unpriced_calls: number
  readonly prompt_tokens: number
  readonly cached_tokens: number
  readonly completion_tokens: number
  readonly reasoning_tokens: number
  readonly charge_usd: string
}

const COLUMNS =
  'tenant, model, day, calls, unpriced_calls, prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, charge_nanodollars'
const OF_CALLS = `SELECT tenant, model, date(at_ms / 1000, 'unixepoch') AS day, count(*) AS calls,
  sum(charge_nanodollars IS NULL) AS unpriced_calls, sum(prompt_tokens) AS prompt_tokens,
  sum(cached_tokens) AS cached_tokens, sum(completion_tokens) AS completion_tokens,
  sum(reasoning_tokens) AS reasoning_tokens, coalesce(sum(charge_nanodollars), 0) AS charge_nanodollars
  FROM calls GROUP BY 1, 2, 3`

/**
 * Makes the roll-ups anew out of the rows of the calls, and answers every sum that differed. With `write` the new ones
 * take the place of the old, all in one transaction; only the writer of `ledger.db` may ask for that. Balances need no
 * rebuilding: they are a fold of the entries whenever they are asked for.
 */
export const rebuildRollups = ({ sqlite }: Store, write: boolean): RollupDifference[] => {
  sqlite.run(write ? 'BEGIN IMMEDIATE' : 'BEGIN')
  let done = false
  try {
    const missing = sqlite.query<Stored, []>(`SELECT * FROM (${OF_CALLS}) EXCEPT SELECT ${COLUMNS} FROM rollups`).all()
    const wrong = sqlite.query<Stored, []>(`SELECT ${COLUMNS} FROM rollups EXCEPT SELECT * FROM (${OF_CALLS})`).all()
    if (write && missing.length + wrong.length > 0) {
      sqlite.run('DELETE FROM rollups')
      sqlite.run(`INSERT INTO rollups (${COLUMNS}) ${OF_CALLS}`)
    }
    sqlite.run('COMMIT')
    done = true
    return paired(missing, wrong)
  } finally {
    if (!done) sqlite.run('ROLLBACK')
  }
}

type Stored = Record<'tenant' | 'model' | 'day', string> &
  Record<Exclude<keyof RollupSums, 'charge_usd'> | 'charge_nanodollars', bigint>

const paired = (of_rows: readonly Stored[], stored: readonly Stored[]): RollupDifference[] => {
  const nameOf = ({ tenant, model, day }: Stored) => `${day}\n${tenant}\n${model}`
  const [right, left] = [of_rows, stored].map((rows) => new Map(rows.map((row) => [nameOf(row), row]))) as [
    Map<string, Stored>,
    Map<string, Stored>,
  ]
  return [...new Set([...right.keys(), ...left.keys()])].toSorted().map((name) => {
    const { tenant, model, day } = (right.get(name) ?? left.get(name))!
    return { tenant, model, day, stored: sumsOf(left.get(name)), of_rows: sumsOf(right.get(name)) }
  })
}

const sumsOf = (row: Stored | undefined): RollupSums | null =>
  row === undefined
    ? null
    : {
        calls: Number(row.calls),
        unpriced_calls: Number(row.unpriced_calls),
        prompt_tokens: Number(row.prompt_tokens),
        cached_tokens: Number(row.cached_tokens),
        completion_tokens: Number(row.completion_tokens),
        reasoning_tokens: Number(row.reasoning_tokens),
        charge_usd: usd(row.charge_nanodollars),
      }
