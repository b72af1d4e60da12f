import { Database } from 'bun:sqlite'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { type CheckedNote, Difference, type PublicKey, readNote, signersOf } from './check-note.ts'
import { checkAdminLog, checkBooks } from './fsck-books.ts'
import { checkJournal } from './fsck-journal.ts'
import { type Note, readCheckpoints, walkLog } from './fsck-log.ts'
import { openRefusals } from './fsck-refusals.ts'
import { checkRows, ledgerSize } from './fsck-rows.ts'
import { sameBytes } from './hash.ts'

/** What a check found: the first difference if there is one, what is worth knowing, and how much was looked at. */
export type FsckReport = {
  readonly fault: string | undefined
  readonly notes: readonly string[]
  readonly counts: { leaves: number; signed: number; checkpoints: number; records: number }
}

/** What to hold the folder against beside itself: keys known from elsewhere, and a checkpoint kept elsewhere. */
export type FsckOptions = { readonly keys: readonly PublicKey[]; readonly saved: string | undefined }

/**
 * Checks a stopped house's data folder: journal, rows, entries, leaves, nodes and checkpoints must agree, all of it
 * hashed again. It shares nothing with the code that wrote them but SHA-256 and canonical JSON, and writes nothing.
 */
export const fsck = (data: string, options: FsckOptions): FsckReport => {
  const notes: string[] = []
  const counts = { leaves: 0, signed: 0, checkpoints: 0, records: 0 }
  try {
    check(data, options, (says) => void notes.push(says), counts)
    return { fault: undefined, notes, counts }
  } catch (cause) {
    const fault =
      cause instanceof Difference
        ? cause.message
        : `the check could not go on: ${cause instanceof Error ? cause.message : String(cause)}`
    return { fault, notes, counts }
  }
}

const check = (data: string, { keys, saved }: FsckOptions, note: Note, counts: FsckReport['counts']): void => {
  const audit = join(data, 'audit')
  for (const file of ['ledger.db', 'audit/leaves.data', 'audit/nodes', 'audit/checkpoints.data', 'audit/origin'])
    if (!existsSync(join(data, file))) throw new Difference(`${file} is missing in ${data}`)
  const db = open(join(data, 'ledger.db'))
  // One state of it: after the death of a house its accountant may still be posting what the journals have.
  db.run('BEGIN')
  try {
    const checkpoints = readCheckpoints(audit, keys, note)
    const kept = saved === undefined ? undefined : keptNote(saved, keys, checkpoints)
    const size = ledgerSize(db)
    const rows = checkRows(db)
    const log = walkLog(audit, checkpoints, size, rows.onLeaf, note)
    Object.assign(counts, { leaves: log.leaves, signed: log.signed, checkpoints: checkpoints.length })
    checkSizes(log.leaves, size, log.signed, note)
    rows.finish(log.leaves)
    if (kept !== undefined && !checkpoints.some((one) => one.size === kept.size && sameBytes(one.root, kept.root)))
      throw new Difference(
        `the kept checkpoint of size ${kept.size} is not among those of the log, whose newest is of size ${log.signed}`,
      )
    checkBooks(db)
    counts.records = journalCounts(data, db, note)
    const open_refusals = openRefusals(db)
    if (open_refusals > 0)
      note(`${open_refusals} lines of refused calls are no leaves yet; they become some once their minute is over`)
    if (existsSync(join(data, 'house.db'))) adminCounts(data, db, note)
    else note('house.db is missing: admin actions were compared with their leaves only')
  } finally {
    db.close()
  }
}

const open = (path: string): Database => new Database(path, { readonly: true, safeIntegers: true, strict: true })

const keptNote = (saved: string, keys: readonly PublicKey[], checkpoints: readonly CheckedNote[]): CheckedNote => {
  const kept = readNote(saved, 'the kept checkpoint')
  if (keys.length > 0) signersOf(kept, keys, 'the kept checkpoint')
  const newest = checkpoints.at(-1)
  if (newest !== undefined && newest.origin !== kept.origin)
    throw new Difference(`the kept checkpoint is of "${kept.origin}", the log is "${newest.origin}"`)
  const same = checkpoints.find(({ size }) => size === kept.size)
  if (same !== undefined && !sameBytes(same.root, kept.root))
    throw new Difference(
      `the log signs another root at size ${kept.size} than the kept checkpoint: history was rewritten`,
    )
  return kept
}

const checkSizes = (leaves: number, rows: number, signed: number, note: Note): void => {
  if (leaves < signed)
    throw new Difference(`the log has ${leaves} leaves, and a checkpoint signs ${signed}: its tail is missing`)
  if (rows < signed)
    throw new Difference(`the ledger has rows for ${rows} leaves, and a checkpoint signs ${signed}: rows are missing`)
  if (leaves < rows)
    note(`${rows - leaves} leaves that are not signed are missing; the next start makes them of their rows`)
  if (leaves > rows) note(`${leaves - rows} leaves were not committed with their rows; the next start cuts them`)
  if (rows > signed) note(`${rows - signed} leaves are not signed yet; the next start signs them`)
}

const journalCounts = (data: string, db: Database, note: Note): number => {
  if (!existsSync(join(data, 'journal'))) return 0
  const { records, waiting } = checkJournal(join(data, 'journal'), db, note)
  if (waiting > 0) note(`${waiting} records of the journal are not posted yet; the next start posts them`)
  return records
}

const adminCounts = (data: string, db: Database, note: Note): void => {
  const house = open(join(data, 'house.db'))
  try {
    const newer = checkAdminLog(db, house)
    if (newer > 0) note(`${newer} admin actions are not in the ledger yet; the next start copies them`)
  } finally {
    house.close()
  }
}
