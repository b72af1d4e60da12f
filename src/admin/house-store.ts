import { asc, desc, lt } from 'drizzle-orm'
import type { Store } from '../ledger/database.ts'
import { admin_log, type AdminLogRow, tenants, type TenantRow } from '../ledger/house-tables.ts'
import type { Operator } from './operator.ts'

/** Tenants and the admin log in `house.db`. */

/**
 * Writes a line of the admin log: who did what to what. Call it in the transaction of the change that it tells of, so
 * that neither is ever without the other. `detail` must hold no secret.
 */
export const writeDeed = (
  { drizzle }: Store,
  at_ms: number,
  operator: Operator,
  action: string,
  subject: string,
  detail: Readonly<Record<string, unknown>>,
): void => {
  // SQLite numbers the line.
  const row = { at_ms, actor: operator.name, action, subject, detail_json: JSON.stringify(detail) } as AdminLogRow
  drizzle.insert(admin_log).values(row).run()
}

/** Lines of the admin log, newest first, before a number; and whether there are more. */
export const deedsBefore = (
  { drizzle }: Store,
  before: number | undefined,
  rows_max: number,
): { readonly rows: AdminLogRow[]; readonly more: boolean } => {
  const rows = drizzle
    .select()
    .from(admin_log)
    .where(before === undefined ? undefined : lt(admin_log.id, before))
    .orderBy(desc(admin_log.id))
    .limit(rows_max + 1)
    .all()
  return { rows: rows.slice(0, rows_max), more: rows.length > rows_max }
}

/** Tenants that the API made, by name. */
export const madeTenants = ({ drizzle }: Store): TenantRow[] =>
  drizzle.select().from(tenants).orderBy(asc(tenants.name)).all()

/** Stores a new tenant. Requires that there is none of its name. */
export const insertTenant = ({ drizzle }: Store, row: TenantRow): void => {
  drizzle.insert(tenants).values(row).run()
}
