import type { Catalogue, Tenant } from '../balance/catalogue.ts'
import type { Failure } from '../base/failure.ts'
import type { TokenCounter } from '../engines/token-counter.ts'
import type { JournalRecord } from '../journal/record.ts'
import type { Log } from '../observe/log.ts'
import type { Metrics } from '../observe/metrics.ts'
import type { KeyView } from '../table/key-file.ts'
import type { Table } from '../table/table.ts'
import type { BodyRoom } from './body-room.ts'
import type { Refusals } from './refusals.ts'
import type { Shelf } from './idempotency-store.ts'
import type { Watch } from './watch.ts'

/** What the hot path needs of the journal. */
export type JournalPort = {
  /** In the operating system's hands when it returns; answers the position to wait for, or that there is no room. */
  append(record: JournalRecord): number | Failure
  /** In strict mode resolves once everything up to the position is on disk, or with why it cannot be; else undefined. */
  synced(position: number): Promise<Failure | undefined> | undefined
  /** False when the disk is full: no new call may begin. */
  has_room(): boolean
}

/** Has the proof of a tenant's own call made; `from` is the size of a checkpoint that the caller kept. */
export type AskProof = (id: string, tenant: string, from: number | undefined) => Promise<string | Failure>

/** The worker's surroundings, handed to every stage. The only mutable part is the catalogue, swapped whole on reload. */
export type House = {
  readonly worker: number
  readonly table: Table
  readonly keys: KeyView
  readonly journal: JournalPort
  readonly metrics: Metrics
  readonly watch: Watch
  readonly refusals: Refusals
  readonly askProof: AskProof
  readonly bodies: BodyRoom
  readonly log: Log
  /** Answers kept for repeats; without one the header Idempotency-Key means nothing. */
  readonly shelf?: Shelf
  /** Counts what an engine did not; without one tokens are estimated by size. */
  readonly counter?: TokenCounter
  catalogue: Catalogue
  /** Tenants that keys name and the configuration does not; bounded by the shared table. */
  readonly other_tenants: Map<string, Tenant>
  /** True once the worker is about to go: every answer asks its client to close the connection. */
  leaving: boolean
  /** Asked at each answer; true while descriptors are short: it ends its connection, so that clients who wait outside come in. */
  isCrowded: () => boolean
  /** True once no new call may begin. */
  draining: boolean
  readonly now: () => number
  readonly tick: () => number
  readonly random: () => number
}
