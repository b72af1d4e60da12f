import { nowMs, tickMs } from '../base/clock.ts'
import type { Config } from '../config/schema.ts'
import type { Log } from '../observe/log.ts'
import { keepSwept } from '../pipeline/idempotency-sweep.ts'
import { WORKER, WORKER_STATE } from '../table/layout.ts'
import { type Table, workerI32 } from '../table/table.ts'

/** Keeps the answers to calls with an Idempotency-Key in bounds, and gives back what dead workers had claimed. */
export const startSweeper = (folder: string, table: Table, config: () => Config, log: Log): { stop(): void } =>
  keepSwept(
    { folder, is_live: (owner) => isLive(table, owner), bounds: () => config().idempotency, now: nowMs },
    tickMs,
    (event, detail) => log(event === 'failed' ? 'error' : 'info', `idempotency_${event}`, { ...detail }),
  )

/** True while the worker that an owner's name (`w3-17`) means is there. */
const isLive = ({ i32 }: Table, owner: string): boolean => {
  const found = /^w(\d+)-(\d+)$/.exec(owner)
  if (!found) return false
  const worker = Number(found[1])
  return (
    Atomics.load(i32, workerI32(worker, WORKER.state)) !== WORKER_STATE.none &&
    Atomics.load(i32, workerI32(worker, WORKER.incarnation)) === Number(found[2])
  )
}
