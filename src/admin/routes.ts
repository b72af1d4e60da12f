import { AUDIT_ROUTES } from './audit.ts'
import { AUDIT_WORK_ROUTES } from './audit-work.ts'
import { BUDGET_ROUTES } from './budgets.ts'
import { CALL_ROUTES } from './calls.ts'
import { ENGINE_ROUTES } from './engines.ts'
import { EXPLAIN_ROUTES } from './explain.ts'
import { GRANT_ROUTES } from './grants.ts'
import { INVOICE_ROUTES } from './invoices.ts'
import { KEY_ROUTES } from './keys.ts'
import type { AdminRoute } from './route.ts'
import { SETTING_ROUTES } from './settings.ts'
import { TENANT_ROUTES } from './tenants.ts'

/** Every address that needs an operator. Serving, documentation and tests all read this one table. */
export const ADMIN_ROUTES: readonly AdminRoute[] = [
  ...KEY_ROUTES,
  ...TENANT_ROUTES,
  ...ENGINE_ROUTES,
  ...CALL_ROUTES,
  ...EXPLAIN_ROUTES,
  ...INVOICE_ROUTES,
  ...BUDGET_ROUTES,
  ...GRANT_ROUTES,
  ...SETTING_ROUTES,
  ...AUDIT_ROUTES,
  ...AUDIT_WORK_ROUTES,
]
