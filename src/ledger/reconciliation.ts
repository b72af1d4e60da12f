import { usd } from '../base/money.ts'
import type { Store } from './database.ts'
import { isoOf } from './wire.ts'

/**
 * The gateway's books against what engines said of their usage. The ledger keeps, for each call, the engine's own count
 * where the engine gave one (`usage_source` is `engine`, and the tokens of the row are the engine's figures, unchanged),
 * and a count of the gateway's where it did not. So what can be told apart honestly is:
 *
 *   counted by the engine    its figures are the row: they cannot differ, unless the engine contradicted itself (the
 *                            pipeline corrects such figures downwards before they are written)
 *   counted by the gateway   every such call is a difference: an engine's bill may show another figure
 *   unknown                  calls whose process died: what they delivered last is billed
 *
 * and, where an engine keeps totals of its own, the ledger's sums by engine stand beside them for the same span
 * (`engines`). The engine's totals are handed in by who read them; the ledger has none.
 */
export type Reconciliation = {
  readonly from: string
  readonly to: string
  readonly lines: readonly ReconciliationLine[]
  /** Every call that an engine did not count, newest last, at most {@link DIFFERENCES_MAX}; `differences_total` is how many there are. */
  readonly differences: readonly ReconciliationDifference[]
  readonly differences_total: number
  readonly engines: readonly EngineLine[]
}

/** Calls of a key on a UTC day, by who counted them. */
export type ReconciliationLine = {
  readonly day: string
  readonly tenant: string
  readonly key: string
  readonly calls: number
  readonly calls_by_engine: number
  readonly calls_estimated: number
  readonly calls_recovered: number
  readonly prompt_tokens: number
  readonly prompt_tokens_by_engine: number
  readonly completion_tokens: number
  readonly completion_tokens_by_engine: number
  readonly charge_usd: string
  /** The part of the charge that rests on the gateway's own count. */
  readonly charge_estimated_usd: string
}

export type ReconciliationDifference = {
  readonly call_id: string
  readonly at: string
  readonly tenant: string
  readonly key: string
  readonly model: string
  readonly engine: string
  readonly engine_model: string
  readonly ending: string
  /** `estimated`: the engine never said. `recovered`: the process that would know has died. */
  readonly why: 'estimated' | 'recovered'
  readonly prompt_tokens: number
  readonly completion_tokens: number
  readonly charge_usd: string | null
}

/** The ledger's sums of one engine, beside the engine's own if they are known. */
export type EngineLine = {
  readonly engine: string
  readonly calls: number
  readonly prompt_tokens: number
  readonly completion_tokens: number
  readonly calls_estimated: number
}

/** Differences that one report lists. */
export const DIFFERENCES_MAX = 10_000

// What reached no engine's counter on either side is no difference.
const DOUBTFUL = "usage_source = 'estimated' AND (prompt_tokens > 0 OR completion_tokens > 0 OR ending = 'recovered')"

/** Compares the calls that began in [from_ms, to_ms), of one tenant or all. Reads every row of the span. */
export const reconcile = (
  { sqlite }: Store,
  from_ms: number,
  to_ms: number,
  tenant: string | undefined,
): Reconciliation => {
  const asked = [from_ms, to_ms, tenant ?? ''] as const
  const of = "FROM calls WHERE at_ms >= ?1 AND at_ms < ?2 AND (?3 = '' OR tenant = ?3)"
  const lines = sqlite
    .query<LineRow, [number, number, string]>(
      `SELECT date(at_ms / 1000, 'unixepoch') AS day, tenant, key_id AS key, count(*) AS calls,
         sum(usage_source = 'engine') AS calls_by_engine, sum(${DOUBTFUL}) AS calls_estimated,
         sum(ending = 'recovered') AS calls_recovered, sum(prompt_tokens) AS prompt_tokens,
         sum(CASE WHEN usage_source = 'engine' THEN prompt_tokens ELSE 0 END) AS prompt_tokens_by_engine,
         sum(completion_tokens) AS completion_tokens,
         sum(CASE WHEN usage_source = 'engine' THEN completion_tokens ELSE 0 END) AS completion_tokens_by_engine,
         coalesce(sum(charge_nanodollars), 0) AS charge,
         coalesce(sum(CASE WHEN ${DOUBTFUL} THEN charge_nanodollars ELSE 0 END), 0) AS charge_estimated
       ${of} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3`,
    )
    .all(...asked)
  const differences = sqlite
    .query<DifferenceRow, [number, number, string, number]>(
      `SELECT id, at_ms, tenant, key_id, model, engine, engine_model, ending, prompt_tokens, completion_tokens,
         charge_nanodollars AS charge ${of} AND ${DOUBTFUL} ORDER BY at_ms, id LIMIT ?4`,
    )
    .all(...asked, DIFFERENCES_MAX)
  const engines = sqlite
    .query<
      Record<'calls' | 'prompt_tokens' | 'completion_tokens' | 'calls_estimated', bigint> & { engine: string },
      [number, number, string]
    >(
      `SELECT engine, count(*) AS calls, sum(prompt_tokens) AS prompt_tokens,
         sum(completion_tokens) AS completion_tokens, sum(${DOUBTFUL}) AS calls_estimated
       ${of} GROUP BY 1 ORDER BY 1`,
    )
    .all(...asked)
  const found = lines.map(lineOf)
  return {
    from: isoOf(from_ms),
    to: isoOf(to_ms),
    lines: found,
    differences: differences.map(differenceOf),
    differences_total: found.reduce((sum, line) => sum + line.calls_estimated, 0),
    engines: engines.map(({ engine, ...counts }) => ({ engine, ...numbers(counts) })),
  }
}

type Counts = Exclude<keyof ReconciliationLine, 'day' | 'tenant' | 'key' | 'charge_usd' | 'charge_estimated_usd'>
type LineRow = Record<Counts, bigint> &
  Record<'day' | 'tenant' | 'key', string> &
  Record<'charge' | 'charge_estimated', bigint>
type DifferenceRow = Record<'id' | 'tenant' | 'key_id' | 'model' | 'engine' | 'engine_model' | 'ending', string> &
  Record<'at_ms' | 'prompt_tokens' | 'completion_tokens', bigint> & { charge: bigint | null }

const lineOf = ({ day, tenant, key, charge, charge_estimated, ...counts }: LineRow): ReconciliationLine => ({
  day,
  tenant,
  key,
  ...numbers(counts),
  charge_usd: usd(charge),
  charge_estimated_usd: usd(charge_estimated),
})

const differenceOf = ({
  id,
  at_ms,
  key_id,
  charge,
  prompt_tokens,
  completion_tokens,
  ...row
}: DifferenceRow): ReconciliationDifference => ({
  call_id: id,
  at: isoOf(Number(at_ms)),
  key: key_id,
  ...row,
  why: row.ending === 'recovered' ? 'recovered' : 'estimated',
  prompt_tokens: Number(prompt_tokens),
  completion_tokens: Number(completion_tokens),
  charge_usd: charge === null ? null : usd(charge),
})

const numbers = <Name extends string>(row: Record<Name, bigint>): Record<Name, number> =>
  Object.fromEntries(Object.entries<bigint>(row).map(([name, value]) => [name, Number(value)])) as Record<Name, number>
