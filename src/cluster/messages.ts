import type { TenantIncrease } from '../config/budgets.ts'
import type { NumberedConfig } from '../config/load.ts'
import type { TenantConfig } from '../config/schema.ts'

/** The roles a process of the house can have. */
export type Role = 'worker' | 'control' | 'accountant' | 'auditor' | 'demo'

/** What every child is told at its start, over the IPC channel: secrets of the configuration never touch a disk or an argument list. */
export type Boot = NumberedConfig & {
  readonly type: 'boot'
  readonly files: HouseFiles
  /** Worker only: its column in the shared table and the number that tells its journal from its predecessors'. */
  readonly index: number
  readonly incarnation: number
  /** Port to bind; 0 takes a free one. */
  readonly port: number
  /** Descriptors that one process may open. */
  readonly descriptors_max: number
  readonly pretty_log: boolean
  /** Control only: environment's WEIR_ADMIN_TOKEN and WEIR_DEMO_KEY, if set. */
  readonly admin_token?: string
  readonly demo_key?: string
  /** Control only: the house serves the demo engine, so a demo key is due. */
  readonly demo: boolean
}

/** Paths of a house, all under its data folder. */
export type HouseFiles = {
  readonly data: string
  readonly table: string
  readonly keys: string
  readonly journal: string
  readonly ledger: string
  readonly house: string
  readonly audit: string
  readonly idempotency: string
  readonly letters: string
  readonly admin_token: string
  readonly lock: string
}

export type ToChild =
  | Boot
  | (NumberedConfig & { readonly type: 'config' })
  /** Answered by `pong`: a process that does not is frozen. */
  | { readonly type: 'ping' }
  /** End in order. A worker with a successor goes on serving its connections for `linger_ms` first, and asks them to leave. */
  | { readonly type: 'drain'; readonly grace_ms: number; readonly linger_ms?: number }

export type FromChild =
  | { readonly type: 'ready'; readonly port: number }
  | { readonly type: 'pong' }
  /** The configuration with this number is in force in the process. */
  | { readonly type: 'adopted'; readonly generation: number }
  /** Shown to the operator once, on the terminal, not in the log. */
  | { readonly type: 'tell'; readonly text: string }
  /**
   * Tenants that the admin API made and increases of any tenant's budgets, all of them: the supervisor puts them into the
   * next configuration.
   */
  | {
      readonly type: 'tenants'
      readonly tenants: readonly TenantConfig[]
      readonly increases: readonly TenantIncrease[]
    }
  | { readonly type: 'failed'; readonly says: string }
