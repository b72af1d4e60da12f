import { closeSync, openSync, readSync, renameSync, writeFileSync, writeSync } from 'node:fs'
import type { BudgetConfig, PriorityClass } from '../config/schema.ts'
import { HEADER } from './layout.ts'
import type { Table } from './table.ts'

/**
 * The keys as workers see them: a file of JSON lines beside the shared table. The control process, which owns the store,
 * appends a line for each change and raises `key_file_bytes`; each worker reads on from where it was. A worker so sees a
 * change within one turn of its timer, without a database on its loop. The last line of an id counts.
 */

/** An API key without its secret. */
export type KeyRecord = {
  readonly id: string
  /** SHA-256 of the secret, lower-case hex. */
  readonly sha256: string
  readonly tenant: string
  readonly name: string
  /** Models the key may use; all of the tenant's if absent. */
  readonly models?: readonly string[]
  readonly requests_per_minute?: number
  readonly tokens_per_minute?: number
  readonly concurrent?: number
  /** The highest class of `x-weir-priority`, if lower than the tenant's. */
  readonly priority_max?: PriorityClass
  readonly budgets?: readonly BudgetConfig[]
  readonly expires_at_ms?: number
  readonly revoked_at_ms?: number
}

/** Writes the whole list, replacing an older file. Only before any worker reads it. */
export const writeKeyFile = (path: string, table: Table, keys: Iterable<KeyRecord>): void => {
  const text = [...keys].map((key) => `${JSON.stringify(key)}\n`).join('')
  writeFileSync(`${path}.part`, text, { mode: 0o600 })
  renameSync(`${path}.part`, path)
  Atomics.store(table.i64, HEADER.key_file_bytes, BigInt(Buffer.byteLength(text)))
}

/** Appends changes; only the control process does. Workers see them when the length goes up, so never half a line. */
export const appendKeys = (path: string, table: Table, keys: readonly KeyRecord[]): void => {
  const at = Number(Atomics.load(table.i64, HEADER.key_file_bytes))
  const line = Buffer.from(keys.map((key) => `${JSON.stringify(key)}\n`).join(''))
  const fd = openSync(path, 'r+')
  try {
    writeSync(fd, line, 0, line.length, at)
  } finally {
    closeSync(fd)
  }
  Atomics.store(table.i64, HEADER.key_file_bytes, BigInt(at + line.length))
}

/** A worker's view: by the hash of the secret. */
export type KeyView = {
  readonly by_sha256: Map<string, KeyRecord>
  read_bytes: number
  /** Reads what was appended; a view without it is filled by its owner alone. */
  readonly refresh?: () => void
}

export const emptyKeyView = (): KeyView => ({ by_sha256: new Map(), read_bytes: 0 })

/** A view of the file that can read on by itself. */
export const openKeyView = (path: string, table: Table): KeyView => {
  const view: KeyView = { ...emptyKeyView(), refresh: () => refreshKeys(view, path, table) }
  return view
}

/** The key of a hash. One that is not known may have been made a moment ago: what was appended is read first. */
export const keyBy = (view: KeyView, sha256: string): KeyRecord | undefined => {
  const known = view.by_sha256.get(sha256)
  if (known !== undefined || view.refresh === undefined) return known
  try {
    view.refresh()
  } catch (cause) {
    void cause // Clients hold every descriptor, so no file can be opened: the key is not known yet.
  }
  return view.by_sha256.get(sha256)
}

/** Reads what was appended since the last time; cheap when nothing was. A replaced file is read anew by a new worker. */
export const refreshKeys = (view: KeyView, path: string, table: Table): void => {
  const valid_bytes = Number(Atomics.load(table.i64, HEADER.key_file_bytes))
  if (valid_bytes === view.read_bytes) return
  const bytes = Buffer.allocUnsafe(valid_bytes - view.read_bytes)
  const fd = openSync(path, 'r')
  try {
    readSync(fd, bytes, 0, bytes.length, view.read_bytes)
  } finally {
    closeSync(fd)
  }
  view.read_bytes = valid_bytes
  for (const line of bytes.toString('utf8').split('\n')) {
    if (line === '') continue
    const key = JSON.parse(line) as KeyRecord
    view.by_sha256.set(key.sha256, key)
  }
}
