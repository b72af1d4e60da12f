import type { Clock } from '../base/clock.ts'
import type { NumberedConfig } from '../config/load.ts'
import type { TenantConfig } from '../config/schema.ts'
import type { Store } from '../ledger/database.ts'
import type { Log } from '../observe/log.ts'
import type { Table } from '../table/table.ts'
import type { AuditView } from './audit-view.ts'

/** What the ops plane needs of the control process. */
export type OpsHouse = {
  readonly table: Table
  /** The configuration in force, its number and its file; asked anew for each request. */
  readonly catalogue: () => NumberedConfig
  /** `house.db`, of which the control process is the one writer. */
  readonly house_db: Store
  /** `ledger.db`, opened to read. */
  readonly ledger_reader: Store
  /** The Merkle log of the ledger. */
  readonly audit: AuditView
  /** The file from which workers learn of keys. */
  readonly key_file_path: string
  /** SHA-256 of the admin token in hex. */
  readonly admin_token_sha256: string
  /**
   * Called after a tenant was made or a budget increased, with the tenants that the API made: whoever hands configurations
   * to the workers adds them and the increases, or budgets and limits do not hold.
   */
  readonly tenantsChanged: (made: readonly TenantConfig[]) => void
  readonly now: Clock
  readonly log: Log
}
