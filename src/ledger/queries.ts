import { and, asc, desc, eq, gte, lt, sql, type SQL, type SQLWrapper } from 'drizzle-orm'
import { limits } from '../base/limits.ts'
import { Failure } from '../base/failure.ts'
import type { Store } from './database.ts'
import { attempts, calls, decisions, entries, rollups, type AttemptRow, type CallRow } from './tables.ts'
import { dayOf } from './rollup.ts'

/** Which calls: half-open in time, [from, to). */
export type CallFilter = {
  readonly tenant?: string
  readonly model?: string
  readonly from_ms?: number
  readonly to_ms?: number
}

export type Page<Row> = { readonly data: Row[]; readonly next_cursor: string | null }

/**
 * Calls, newest first, at most `limit` (capped at `limits.page_rows_max`). `cursor` is the `next_cursor` of the page
 * before: rows that come in meanwhile shift nothing. A cursor that is not one is a failure.
 */
export const callsPage = (
  { drizzle }: Store,
  filter: CallFilter,
  limit: number,
  cursor?: string,
): Page<CallRow> | Failure => {
  const after = cursor === undefined ? undefined : parseCursor(cursor)
  if (after instanceof Failure) return after
  const rows_max = Math.min(Math.max(Math.floor(limit), 1), limits.page_rows_max)
  const rows = drizzle
    .select()
    .from(calls)
    .where(and(...conditions(filter), after && before(after)))
    .orderBy(desc(calls.at_ms), desc(calls.id))
    .limit(rows_max + 1)
    .all()
  const data = rows.slice(0, rows_max)
  const last = data.at(-1)
  return { data, next_cursor: rows.length > rows_max && last ? `${last.at_ms}.${last.id}` : null }
}

/** One call with the engines it needed (none listed if one was enough) and its entries; undefined if it has no row. */
export const oneCall = ({ drizzle }: Store, id: string) => {
  const row = drizzle.select().from(calls).where(eq(calls.id, id)).get()
  if (row === undefined) return undefined
  const tried: AttemptRow[] = drizzle
    .select()
    .from(attempts)
    .where(eq(attempts.call_id, id))
    .orderBy(asc(attempts.n))
    .all()
  const transfers = drizzle.select().from(entries).where(eq(entries.call_id, id)).orderBy(asc(entries.id)).all()
  return { row, attempts: tried, entries: transfers }
}

/** How a call came to its engine, as text; undefined if there was nothing to tell. */
export const decisionText = ({ drizzle }: Store, id: string): string | undefined =>
  drizzle.select({ text: decisions.text }).from(decisions).where(eq(decisions.call_id, id)).get()?.text

/** What usage can be grouped by. Keys and end users are in no roll-up: for them the calls themselves are summed. */
export const USAGE_GROUPS = ['tenant', 'model', 'day', 'key', 'end_user'] as const
/** Those that {@link usage} answers without reading the calls. */
export const ROLLED_UP: readonly UsageGroup[] = ['tenant', 'model', 'day']
export type UsageGroup = (typeof USAGE_GROUPS)[number]

export type UsageRow = { readonly [group in UsageGroup]?: string } & {
  readonly calls: number
  readonly unpriced_calls: number
  readonly prompt_tokens: number
  readonly cached_tokens: number
  readonly completion_tokens: number
  readonly reasoning_tokens: number
  readonly charge_nanodollars: bigint
}

/** Sums of whole UTC days, each day that [from, to) touches, ordered by the groups; at most `limits.page_rows_max` rows. */
export const usage = (store: Store, groups: readonly UsageGroup[], filter: CallFilter): UsageRow[] =>
  groups.every((group) => ROLLED_UP.includes(group))
    ? usageOfDays(store, groups, filter)
    : usageOfCalls(store, groups, filter)

const usageOfDays = ({ drizzle }: Store, groups: readonly UsageGroup[], filter: CallFilter): UsageRow[] => {
  const by = (['tenant', 'model', 'day'] as const).filter((group) => groups.includes(group))
  const sum = (column: SQLWrapper) => sql`coalesce(sum(${column}), 0)`.mapWith(Number)
  return drizzle
    .select({
      ...Object.fromEntries(by.map((group) => [group, rollups[group]])),
      calls: sum(rollups.calls),
      unpriced_calls: sum(rollups.unpriced_calls),
      prompt_tokens: sum(rollups.prompt_tokens),
      cached_tokens: sum(rollups.cached_tokens),
      completion_tokens: sum(rollups.completion_tokens),
      reasoning_tokens: sum(rollups.reasoning_tokens),
      charge_nanodollars: sql`coalesce(sum(${rollups.charge_nanodollars}), 0)`.mapWith(BigInt),
    })
    .from(rollups)
    .where(
      and(
        filter.tenant === undefined ? undefined : eq(rollups.tenant, filter.tenant),
        filter.model === undefined ? undefined : eq(rollups.model, filter.model),
        filter.from_ms === undefined ? undefined : gte(rollups.day, dayOf(filter.from_ms)),
        filter.to_ms === undefined ? undefined : lt(rollups.day, dayOf(filter.to_ms + DAY_MS - 1)),
      ),
    )
    .groupBy(...by.map((group) => rollups[group]))
    .orderBy(...by.map((group) => asc(rollups[group])))
    .limit(limits.page_rows_max)
    .all()
}

const usageOfCalls = ({ drizzle }: Store, groups: readonly UsageGroup[], filter: CallFilter): UsageRow[] => {
  const by = USAGE_GROUPS.filter((group) => groups.includes(group))
  const column = {
    tenant: sql`${calls.tenant}`,
    model: sql`${calls.model}`,
    day: sql`date(${calls.at_ms} / 1000, 'unixepoch')`,
    key: sql`${calls.key_id}`,
    end_user: sql`${calls.end_user}`,
  }
  const sum = (of: SQLWrapper) => sql`coalesce(sum(${of}), 0)`.mapWith(Number)
  const { from_ms, to_ms, ...rest } = filter
  return drizzle
    .select({
      ...Object.fromEntries(by.map((group) => [group, column[group].mapWith(String)])),
      calls: sql`count(*)`.mapWith(Number),
      unpriced_calls: sum(sql`${calls.charge_nanodollars} IS NULL`),
      prompt_tokens: sum(calls.prompt_tokens),
      cached_tokens: sum(calls.cached_tokens),
      completion_tokens: sum(calls.completion_tokens),
      reasoning_tokens: sum(calls.reasoning_tokens),
      charge_nanodollars: sql`coalesce(sum(${calls.charge_nanodollars}), 0)`.mapWith(BigInt),
    })
    .from(calls)
    .where(
      and(
        ...conditions({
          ...rest,
          ...(from_ms !== undefined && { from_ms: Math.floor(from_ms / DAY_MS) * DAY_MS }),
          ...(to_ms !== undefined && { to_ms: Math.ceil(to_ms / DAY_MS) * DAY_MS }),
        }),
      ),
    )
    .groupBy(...by.map((group) => column[group]))
    .orderBy(...by.map((group) => asc(column[group])))
    .limit(limits.page_rows_max)
    .all()
}

export type Balance = { readonly account: string; readonly balance_nanodollars: bigint }

/** What every account has, folded from all entries, by name. Reads the whole table. */
export const balances = ({ sqlite }: Store): Balance[] =>
  sqlite
    .prepare<Balance, []>(
      `SELECT account, sum(amount) AS balance_nanodollars FROM (
         SELECT credit AS account, amount_nanodollars AS amount FROM entries
         UNION ALL SELECT debit, -amount_nanodollars FROM entries)
       GROUP BY account ORDER BY account`,
    )
    .all()

/** What all calls of a tenant were charged, in nanodollars. */
export const chargedTo = (store: Store, tenant: string): bigint =>
  usage(store, [], { tenant })[0]?.charge_nanodollars ?? 0n

const DAY_MS = 86_400_000

const conditions = ({ tenant, model, from_ms, to_ms }: CallFilter): (SQL | undefined)[] => [
  tenant === undefined ? undefined : eq(calls.tenant, tenant),
  model === undefined ? undefined : eq(calls.model, model),
  from_ms === undefined ? undefined : gte(calls.at_ms, from_ms),
  to_ms === undefined ? undefined : lt(calls.at_ms, to_ms),
]

// Compared as a pair, so that the index on both finds the place.
const before = ({ at_ms, id }: { at_ms: number; id: string }): SQL =>
  sql`(${calls.at_ms}, ${calls.id}) < (${at_ms}, ${id})`

const parseCursor = (cursor: string): { at_ms: number; id: string } | Failure => {
  const found = /^(\d{1,16})\.(.{1,256})$/.exec(cursor)
  if (found) return { at_ms: Number(found[1]), id: found[2]! }
  return new Failure('field_invalid', { param: 'cursor', says: 'cursor must be the next_cursor of the page before.' })
}
