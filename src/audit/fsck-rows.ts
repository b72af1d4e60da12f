import type { Database } from 'bun:sqlite'
import { type Canonical, canonicalJson } from './canonical-json.ts'
import { Difference } from './check-note.ts'
import { LEAF_BYTES_MAX, sha256 } from './hash.ts'

/** Rows of the ledger against their leaves, in both directions, read as they are stored. */

/** A row as SQLite hands it out with safe integers. */
type Row = Readonly<Record<string, bigint | string | Uint8Array | null>>
type Bound = string | number
type Leaf = Readonly<Record<string, unknown>>

/** Compares each leaf with its rows; at the end every row must have had its leaf. */
export type RowCheck = { onLeaf(index: number, leaf: Buffer): void; finish(log_leaves: number): void }

/** The logged tables: how a row is called, and how the leaf of a type finds it. */
const TABLES = {
  call: { table: 'calls', key: ['id'] },
  price: { table: 'prices', key: ['model', 'version'] },
  refusal: { table: 'refusals', key: ['id'] },
  admin_action: { table: 'admin_actions', key: ['id'] },
} as const
type Type = keyof typeof TABLES

/**
 * Members that came with a later version, and what rows from before it have. Leaves of that time lack them: then the row
 * may say nothing else.
 */
const LATER: Readonly<Record<string, Canonical>> = { asked_model: '', entries: [], image_nanodollars: 0, images: 0 }

/** How many leaves the rows say there are. */
export const ledgerSize = (db: Database): number =>
  ['calls', 'entries', 'prices', 'refusals', 'admin_actions'].reduce((size, table) => {
    const found = db.prepare<{ size: bigint | null }, []>(`SELECT max(log_index) + 1 AS size FROM ${table}`).get()
    return Math.max(size, Number(found?.size ?? 0))
  }, 0)

/** Begins a comparison. Throws a {@link Difference} at the first thing that does not agree. */
export const checkRows = (db: Database): RowCheck => {
  const seen = new Map<string, number>()
  const count = (table: string, rows: number) => seen.set(table, (seen.get(table) ?? 0) + rows)
  const finders = Object.fromEntries(
    Object.entries(TABLES).map(([type, { table, key }]) => [
      type,
      db.prepare<Row, Bound[]>(`SELECT * FROM ${table} WHERE ${key.map((name) => `${name} = ?`).join(' AND ')}`),
    ]),
  )
  const attempts = db.prepare<Row, [string]>('SELECT * FROM attempts WHERE call_id = ? ORDER BY n')
  const entry = db.prepare<Row, [number]>('SELECT * FROM entries WHERE id = ?')
  const posted = db.prepare<Row, [string, bigint]>(
    'SELECT * FROM entries WHERE call_id = ? AND log_index = ? ORDER BY id',
  )

  const want = (type: Type, row: Row, leaf: Leaf): Record<string, Canonical> => {
    if (type !== 'call') return { ...plain(row), type }
    const { salt, ...rest } = row
    const id = String(row['id'])
    const tried = attempts.all(id).map(({ call_id: _call, ...attempt }) => plain(attempt))
    const entries = posted
      .all(id, (row['log_index'] ?? -1n) as bigint)
      .map(({ call_id: _call, log_index: _index, ...transfer }) => plain(transfer))
    count('attempts', tried.length)
    count('entries', entries.length)
    // An erased salt leaves its hash in the leaf, and nothing to compare it with.
    const salt_sha256 = salt instanceof Uint8Array ? sha256(salt).toHex() : String(leaf['salt_sha256'])
    return { ...plain(rest), entries, salt_sha256, tried, type }
  }

  const compareEntries = (index: number, leaf: Leaf, bytes: Buffer) => {
    const members = Array.isArray(leaf['entries']) ? (leaf['entries'] as Leaf[]) : []
    const entries = members.map((member) => {
      const row = entry.get(Number(member['id']))
      const name = `entry ${String(member['id'])}`
      if (row === null) throw new Difference(`${name} of leaf ${index} is not in the ledger`)
      const { log_index, ...rest } = row
      if (Number(log_index) !== index)
        throw new Difference(`${name} says leaf ${String(log_index)}, and is in leaf ${index}`)
      compareFields(name, index, plain(rest), member)
      return plain(rest)
    })
    count('entries', entries.length)
    compare(`the entries of leaf ${index}`, index, { entries, log_index: index, type: 'entries' }, leaf, bytes)
  }

  return {
    onLeaf: (index, bytes) => {
      const leaf = parse(index, bytes)
      if (leaf['type'] === 'entries') return compareEntries(index, leaf, bytes)
      if (leaf['type'] === 'too_long') return compareHash(db, index, leaf, (type, row) => want(type, row, leaf), count)
      const type = leaf['type'] as Type
      if (!Object.hasOwn(TABLES, type)) throw new Difference(`leaf ${index} is of unknown type ${JSON.stringify(type)}`)
      const { table, key } = TABLES[type]
      const name = `${type} ${key.map((column) => String(leaf[column])).join(' version ')}`
      const row = finders[type]!.get(...key.map((column) => leaf[column] as Bound))
      if (row === null) throw new Difference(`${name} of leaf ${index} is not in the ledger`)
      count(table, 1)
      compare(name, index, want(type, row, leaf), leaf, bytes)
    },
    finish: (log_leaves) => {
      for (const table of ['calls', 'attempts', 'entries', 'prices', 'refusals', 'admin_actions']) {
        const rows = countRows(db, table, log_leaves)
        const leaves = seen.get(table) ?? 0
        if (rows !== leaves)
          throw new Difference(`${table} has ${rows} rows and the log has ${leaves} of them${extra(db, table)}`)
      }
    },
  }
}

/** Rows whose leaves the log has, or that name none. Later rows wait for theirs: the next start makes them. */
const countRows = (db: Database, table: string, log_leaves: number): number => {
  const from = table === 'attempts' ? 'attempts JOIN calls ON calls.id = attempts.call_id' : table
  const sql = `SELECT count(*) AS n FROM ${from} WHERE log_index IS NULL OR log_index < ?`
  return Number(db.prepare<{ n: bigint }, [number]>(sql).get(log_leaves)?.n ?? 0n)
}

const extra = (db: Database, table: string): string => {
  if (table === 'attempts') return ''
  const row = db.prepare<Row, []>(`SELECT * FROM ${table} WHERE log_index IS NULL LIMIT 1`).get()
  const twice = db
    .prepare<Row, []>(
      `SELECT * FROM ${table} WHERE log_index IN (SELECT log_index FROM ${table} GROUP BY log_index HAVING count(*) > 1) LIMIT 1`,
    )
    .get()
  if (row !== null) return `: ${String(row['id'] ?? row['model'])} has no leaf`
  return twice !== null && table !== 'entries' ? `: ${String(twice['id'] ?? twice['model'])} shares a leaf` : ''
}

const parse = (index: number, bytes: Buffer): Leaf => {
  try {
    return JSON.parse(bytes.toString('utf8')) as Leaf
  } catch {
    throw new Difference(`leaf ${index} is not JSON`)
  }
}

const compare = (name: string, index: number, now: Record<string, Canonical>, leaf: Leaf, bytes: Buffer): void => {
  const want = asOf(leaf, now)
  const json = canonicalJson(want)
  if (json === bytes.toString('utf8')) return
  if (Buffer.byteLength(json) > LEAF_BYTES_MAX) throw new Difference(`${name} is longer than its leaf ${index} can be`)
  compareFields(name, index, want, leaf)
  throw new Difference(`leaf ${index} of ${name} is not the canonical JSON of its row`)
}

/** A row as the version that wrote the leaf had it. */
const asOf = (leaf: Leaf, row: Record<string, Canonical>): Record<string, Canonical> =>
  Object.fromEntries(
    Object.entries(row).filter(
      ([name, value]) => name in leaf || !(name in LATER) || JSON.stringify(value) !== JSON.stringify(LATER[name]),
    ),
  )

const compareFields = (name: string, index: number, want: Record<string, Canonical>, leaf: Leaf): void => {
  for (const field of new Set([...Object.keys(want), ...Object.keys(leaf)])) {
    const [in_row, in_leaf] = [JSON.stringify(want[field]), JSON.stringify(leaf[field])]
    if (in_row !== in_leaf)
      throw new Difference(
        `${name}: ${field} is ${in_row ?? 'absent'} in the ledger and ${in_leaf ?? 'absent'} in leaf ${index}`,
      )
  }
}

// A row that was too long for a leaf is found by its index, which costs a search of the tables.
const compareHash = (
  db: Database,
  index: number,
  leaf: Leaf,
  want: (type: Type, row: Row) => Record<string, Canonical>,
  count: (table: string, rows: number) => void,
): void => {
  for (const [type, { table }] of Object.entries(TABLES)) {
    const row = db.prepare<Row, [number]>(`SELECT * FROM ${table} WHERE log_index = ?`).get(index)
    if (row === null) continue
    const hash = sha256(Buffer.from(canonicalJson(want(type as Type, row)))).toHex()
    if (hash !== leaf['sha256']) throw new Difference(`${type} of leaf ${index} has another hash than its leaf says`)
    return count(table, 1)
  }
  throw new Difference(`leaf ${index} has no row in the ledger`)
}

const plain = (row: Row): Record<string, Canonical> =>
  Object.fromEntries(Object.entries(row).map(([name, value]) => [name, plainValue(value)]))

const plainValue = (value: Row[string]): Canonical => {
  if (value instanceof Uint8Array) return value.toHex()
  if (typeof value === 'bigint') return Number.isSafeInteger(Number(value)) ? Number(value) : value.toString()
  return value ?? null
}
