import { Database } from 'bun:sqlite'
import { existsSync } from 'node:fs'
import { HEADER } from '../table/layout.ts'
import { openTable } from '../table/table.ts'
import type { HouseFiles } from './messages.ts'

/** A data folder that is taken. It is free again when the process ends, however that ends. */
export type HouseLock = { release(): void }

/**
 * Takes the data folder for this process, so that two houses never share one. Answers the pid of the house that has it
 * (0 if it cannot be told) when it is taken. The lock is SQLite's own on an empty file: the kernel gives it back when
 * the process is gone, so nothing is left to be taken for a sign of life after a crash, and pids may be used again.
 */
export const lockHouse = (files: HouseFiles): HouseLock | number => {
  const lock = new Database(files.lock, { create: true, readwrite: true })
  try {
    lock.run('PRAGMA busy_timeout = 0')
    lock.run('BEGIN EXCLUSIVE')
  } catch (cause) {
    lock.close()
    if (!(cause instanceof Error && 'code' in cause && String(cause.code).startsWith('SQLITE_BUSY'))) throw cause
    return holderOf(files)
  }
  return { release: () => lock.close() }
}

const holderOf = ({ table }: HouseFiles): number => {
  if (!existsSync(table)) return 0
  try {
    return openTable(table).i32[HEADER.supervisor_pid]!
  } catch {
    return 0 // It is just being made, or is of another version.
  }
}
