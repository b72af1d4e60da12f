import { existsSync, readFileSync } from 'node:fs'
import { limits } from '../base/limits.ts'
import { HEADER, WORKER } from '../table/layout.ts'
import { openTable, workerI32 } from '../table/table.ts'
import type { HouseFiles, Role } from './messages.ts'

/** How long the children of a dead house may take to notice that it is gone. */
const LEAVE_MS = 5_000

/**
 * Waits until no process of an earlier house works on these files: after `kill -9` of a supervisor its children end by
 * themselves, and until then they own the port and write their journals. One that does not is killed: its pid stands in
 * the house's own table.
 */
export const awaitOrphans = async ({ table, data }: HouseFiles, kill: (pid: number) => void): Promise<void> => {
  const pids = recordedPids(table)
  for (let waited_ms = 0; ; waited_ms += 50) {
    const left = pids.filter((pid) => isOurs(pid, data))
    if (left.length === 0) return
    if (waited_ms === LEAVE_MS) left.forEach(kill)
    if (waited_ms > LEAVE_MS + 5_000) throw new Error(`processes of an earlier house do not end: ${left.join(', ')}`)
    await Bun.sleep(50)
  }
}

const recordedPids = (table_path: string): number[] => {
  if (!existsSync(table_path)) return []
  let table
  try {
    table = openTable(table_path)
  } catch {
    return [] // Not a table of this version: nothing of it can be known.
  }
  const cells: number[] = [HEADER.control_pid, HEADER.accountant_pid, HEADER.auditor_pid, HEADER.demo_pid]
  for (let worker = 0; worker < limits.workers_max; worker++) cells.push(workerI32(worker, WORKER.pid))
  return cells.map((cell) => table.i32[cell]!).filter((pid) => pid > 1)
}

/**
 * A pid may belong to another program by now, in a container even to this very house: only a child has its role and the
 * folder as the last two words of its command line.
 */
const isOurs = (pid: number, data: string): boolean => {
  try {
    const [role, folder] = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').slice(-3, -1)
    return folder === data && ROLES.has(role ?? '')
  } catch {
    return false // It has ended.
  }
}

const ROLES: ReadonlySet<string> = new Set<Role>(['worker', 'control', 'accountant', 'auditor', 'demo'])
