import { Database } from 'bun:sqlite'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'

/**
 * Takes a log's folder for its one writer, so that two never append; undefined if another process has it for longer than
 * `wait_ms`. The lock is SQLite's own on a file of its own: the kernel gives it back however the process ends.
 */
export const lockForWriter = (folder: string, wait_ms: number): { release(): void } | undefined => {
  mkdirSync(folder, { recursive: true })
  const lock = new Database(join(folder, 'writer.lock'), { create: true, readwrite: true })
  try {
    lock.run(`PRAGMA busy_timeout = ${wait_ms}`)
    lock.run('BEGIN EXCLUSIVE')
    return { release: () => lock.close() }
  } catch (cause) {
    lock.close()
    if (cause instanceof Error && 'code' in cause && String(cause.code).startsWith('SQLITE_BUSY')) return undefined
    throw cause
  }
}
