import type { Store } from './database.ts'

/** Whose spend: the columns of `calls` that must be equal. */
export type Spender = {
  readonly tenant?: string
  readonly end_user?: string
  readonly key_id?: string
  readonly model?: string
}

/**
 * What was charged less what was refunded, in nanodollars, for calls that began in `[start_ms, end_ms)`; with `series`,
 * what was charged to calls of these journal series alone. Refunds are to tenants, so they count only for a whole tenant.
 */
export const spentIn = (
  { sqlite }: Store,
  spender: Spender,
  start_ms: number,
  end_ms: number,
  series?: readonly string[],
): bigint => {
  const wanted = Object.entries(spender)
  const until_ms = Number.isFinite(end_ms) ? end_ms : Number.MAX_SAFE_INTEGER
  const conditions = [...wanted.map(([column]) => `${column} = ?`), 'at_ms >= ?', 'at_ms < ?']
  if (series) conditions.push(`series IN (${series.map(() => '?').join(', ')})`)
  const row = sqlite
    .prepare<{ sum: bigint | null }, (string | number)[]>(
      `SELECT sum(charge_nanodollars) AS sum FROM calls WHERE ${conditions.join(' AND ')}`,
    )
    .get(...wanted.map(([, value]) => value), start_ms, until_ms, ...(series ?? []))
  const charged = row?.sum ?? 0n
  if (series !== undefined || wanted.length !== 1 || spender.tenant === undefined) return charged
  return charged - refunds(sqlite, spender.tenant, start_ms, until_ms)
}

/** When the newest call began, 0 if there is none. */
export const newestCallMs = ({ sqlite }: Store): number =>
  Number(sqlite.prepare<{ at: bigint | null }, []>('SELECT max(at_ms) AS at FROM calls').get()?.at ?? 0)

const refunds = (sqlite: Store['sqlite'], tenant: string, start_ms: number, end_ms: number): bigint =>
  sqlite
    .prepare<{ sum: bigint | null }, [string, number, number]>(
      "SELECT sum(amount_nanodollars) AS sum FROM entries WHERE kind = 'refund' AND credit = ? AND at_ms >= ? AND at_ms < ?",
    )
    .get(`tenant:${tenant}`, start_ms, end_ms)?.sum ?? 0n

/** The end users of a tenant that the ledger knows. */
export const spendersOf = ({ sqlite }: Store, tenant: string): string[] =>
  sqlite
    .prepare<{ end_user: string }, [string]>("SELECT DISTINCT end_user FROM calls WHERE tenant = ? AND end_user <> ''")
    .all(tenant)
    .map(({ end_user }) => end_user)

/** True if everything of a series is posted and no more will come. */
export const finishedSeries = ({ sqlite }: Store, series: string): boolean =>
  sqlite.prepare<{ finished: unknown }, [string]>('SELECT finished FROM positions WHERE series = ?').get(series)
    ?.finished === 1n
