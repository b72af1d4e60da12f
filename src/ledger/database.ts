import { Database } from 'bun:sqlite'
import { drizzle, type BunSQLiteDatabase } from 'drizzle-orm/bun-sqlite'
import { migrate } from 'drizzle-orm/bun-sqlite/migrator'
import { readMigrationFiles } from 'drizzle-orm/migrator'
import { existsSync, mkdirSync, statfsSync } from 'node:fs'
import { dirname, join } from 'node:path'

/**
 * Opens the two SQLite files of the data folder, and is the only place that does. Every connection is set the same way
 * and asked afterwards whether the setting took; a start-up that cannot keep the promise throws an error that says why.
 */

/** `ledger` is written by the accountant alone, `house` by the control process alone. */
export type DatabaseName = 'ledger' | 'house'

/** One connection: `sqlite` for prepared statements, `drizzle` for the rest. Close it through `sqlite.close()`. */
export type Store = { readonly sqlite: Database; readonly drizzle: BunSQLiteDatabase }

/** How long one statement waits for another's lock, blocking its process; who writes retries after it. */
const BUSY_MS = { ledger: 250, house: 5_000 } as const
/** How long a starting process waits while others create or migrate the same file. */
const START_MS = 60_000
/** What the write-ahead log is cut to after a long reader let it grow. */
const WAL_BYTES_MAX = 64 * 1024 * 1024

const MIGRATIONS = join(import.meta.dir, '../../drizzle')

/** Opens a file of the data folder for its one writer; creates and migrates it first, also when several do so at once. */
export const openWriter = (data: string, name: DatabaseName): Store =>
  naming(fileOf(data, name), (path) => {
    mkdirSync(data, { recursive: true })
    refuseNetworkShare(data)
    prepare(data, name)
    return connect(path, name)
  })

/** Opens a file of the data folder to read. It is created or migrated first only if that has not been done yet. */
export const openReader = (data: string, name: DatabaseName): Store =>
  naming(fileOf(data, name), (path) => {
    if (!isCurrent(path, name)) openWriter(data, name).sqlite.close()
    const sqlite = new Database(path, { readonly: true, safeIntegers: true, strict: true })
    assertSettings(sqlite, [
      ['query_only', 'ON', 1n],
      ['busy_timeout', String(BUSY_MS[name]), BigInt(BUSY_MS[name])],
    ])
    return { sqlite, drizzle: drizzle({ client: sqlite }) }
  })

/** Where a database of the data folder lies. */
export const fileOf = (data: string, name: DatabaseName): string => join(data, `${name}.db`)

// A start-up error names its file, whatever SQLite said.
const naming = (path: string, open: (path: string) => Store): Store => {
  try {
    return open(path)
  } catch (cause) {
    throw new Error(`${path} cannot be opened: ${cause instanceof Error ? cause.message : String(cause)}`, { cause })
  }
}

const connect = (path: string, name: DatabaseName): Store => {
  const sqlite = new Database(path, { create: true, readwrite: true, safeIntegers: true, strict: true })
  assertSettings(sqlite, [
    ['busy_timeout', String(BUSY_MS[name]), BigInt(BUSY_MS[name])],
    ['journal_mode', 'WAL', 'wal'],
    ['synchronous', 'FULL', 2n],
    ['foreign_keys', 'ON', 1n],
    ['journal_size_limit', String(WAL_BYTES_MAX), BigInt(WAL_BYTES_MAX)],
    ['wal_autocheckpoint', '4000', 4_000n],
  ])
  return { sqlite, drizzle: drizzle({ client: sqlite }) }
}

const assertSettings = (sqlite: Database, settings: readonly (readonly [string, string, unknown])[]) => {
  for (const [pragma, value, want] of settings) {
    sqlite.run(`PRAGMA ${pragma} = ${value}`)
    const got = sqlite.prepare<Record<string, unknown>, []>(`PRAGMA ${pragma}`).get()
    const found = got === null ? undefined : Object.values(got)[0]
    if (found !== want) throw new Error(`PRAGMA ${pragma} is ${String(found)}, needs ${String(want)}`)
  }
}

/**
 * Creates and migrates under a lock of its own: switching to WAL and drizzle's migrator both fail when two processes do
 * them at once, and an exclusive lock on a file beside ends with its process, however that ends.
 */
const prepare = (data: string, name: DatabaseName) => {
  const path = fileOf(data, name)
  if (isCurrent(path, name)) return
  const lock = new Database(join(data, `${name}.start.lock`), { create: true, readwrite: true })
  try {
    lock.run(`PRAGMA busy_timeout = ${START_MS}`)
    lock.run('BEGIN EXCLUSIVE')
    const store = connect(path, name)
    try {
      migrate(store.drizzle, { migrationsFolder: join(MIGRATIONS, name) })
    } finally {
      store.sqlite.close()
    }
  } finally {
    lock.close()
  }
}

const isCurrent = (path: string, name: DatabaseName): boolean => {
  if (!existsSync(path)) return false
  const wanted = readMigrationFiles({ migrationsFolder: join(MIGRATIONS, name) }).at(-1)?.folderMillis
  const sqlite = new Database(path, { readonly: true, safeIntegers: true })
  try {
    sqlite.run(`PRAGMA busy_timeout = ${START_MS}`)
    const table = sqlite.prepare("SELECT 1 FROM sqlite_schema WHERE name = '__drizzle_migrations'").get()
    if (table === null) return false
    const last = sqlite.prepare<{ at: unknown }, []>('SELECT max(created_at) AS at FROM __drizzle_migrations').get()
    return last !== null && Number(last.at) >= Number(wanted)
  } finally {
    sqlite.close()
  }
}

// statfs(2): file systems whose locks or shared mappings do not hold between machines, so a write-ahead log is unsafe.
const NETWORK_SHARES = new Map([
  [0x6969, 'NFS'],
  [0x517b, 'SMB'],
  [0xff534d42, 'CIFS'],
  [0xfe534d42, 'SMB2'],
  [0x01021997, '9P'],
  [0x5346414f, 'AFS'],
  [0x00c36400, 'Ceph'],
  [0x0bd00bd0, 'Lustre'],
])

/** The name of the network file system of a type number of statfs(2); undefined for all others. */
export const networkShare = (type: number): string | undefined => NETWORK_SHARES.get(type >>> 0)

const refuseNetworkShare = (data: string) => {
  if (process.platform !== 'linux') return
  const share = networkShare(statfsSync(dirname(fileOf(data, 'ledger'))).type)
  if (share !== undefined) throw new Error(`it lies on ${share}; the data folder must be on a local disk`)
}
