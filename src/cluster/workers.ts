import { limits } from '../base/limits.ts'
import type { Log } from '../observe/log.ts'
import { reap } from '../table/counts.ts'
import { WORKER, WORKER_STATE } from '../table/layout.ts'
import { type Table, workerF64, workerI32 } from '../table/table.ts'
import { backoffMs, type Child } from './child-process.ts'
import type { ToChild } from './messages.ts'

/** A worker whose heart has not beaten for so long is frozen: it is killed and replaced. */
const HEARTBEAT_STALE_MS = 5_000
const WATCH_MS = 250

type Slot = { readonly index: number; child: Child; failures: number; retired: boolean }

type Ports = {
  readonly table: Table
  readonly spawn: (index: number, port: number, incarnation: number) => Child
  readonly next_incarnation: number
  readonly log: Log
  readonly now: () => number
}

/** The workers of a house. Each has a column in the shared table of its own for as long as it lives. */
export type Workers = ReturnType<typeof openWorkers>

export const openWorkers = ({ table, spawn, log, now, next_incarnation }: Ports) => {
  let incarnation = next_incarnation
  const slots = new Map<number, Slot>()
  let port_bound = 0
  let draining = false

  const aliveBut = (dead: number) => [...slots.keys()].filter((index) => index !== dead)
  const freeIndex = (): number => {
    // The last column is the accountant's.
    for (let index = 0; index < limits.workers_max - 1; index++) if (!slots.has(index)) return index
    throw new Error(`at most ${limits.workers_max - 1} workers`)
  }

  const begin = (index: number, port: number, failures: number): Slot => {
    table.f64[workerF64(index, WORKER.heartbeat_ms)] = now()
    Atomics.store(table.i32, workerI32(index, WORKER.state), WORKER_STATE.starting)
    // Before the process exists: the accountant must never take its journal for a dead one's.
    Atomics.store(table.i32, workerI32(index, WORKER.incarnation), incarnation)
    const slot: Slot = { index, child: spawn(index, port, incarnation++), failures, retired: false }
    Atomics.store(table.i32, workerI32(index, WORKER.pid), slot.child.pid)
    slots.set(index, slot)
    void slot.child.exited.then((code) => ended(slot, code))
    return slot
  }

  /** The process is gone: its share goes back, and unless it was meant to go another takes its place. */
  const ended = async (slot: Slot, code: number): Promise<void> => {
    const { index } = slot
    Atomics.store(table.i32, workerI32(index, WORKER.state), WORKER_STATE.none)
    for (const cell of [WORKER.pid, WORKER.in_flight, WORKER.open_streams])
      Atomics.store(table.i32, workerI32(index, cell), 0)
    const given_back = reap(table, index, aliveBut(index))
    slots.delete(index)
    if (draining || slot.retired) return
    const delay_ms = backoffMs(slot.failures)
    log('error', 'process_died', {
      role: 'worker',
      index,
      pid: slot.child.pid,
      code,
      given_back,
      restart_in_ms: delay_ms,
    })
    await Bun.sleep(delay_ms)
    if (draining) return
    const next = begin(freeIndex(), port_bound, slot.failures + 1)
    await next.child.ready.then(
      () => setTimeout(() => (next.failures = 0), 10_000).unref(),
      (cause: unknown) => log('error', 'worker_not_ready', { index: next.index, cause }),
    )
  }

  const watch = setInterval(() => {
    for (const slot of slots.values()) {
      const age_ms = now() - table.f64[workerF64(slot.index, WORKER.heartbeat_ms)]!
      const limit_ms =
        Atomics.load(table.i32, workerI32(slot.index, WORKER.state)) === WORKER_STATE.starting
          ? 30_000
          : HEARTBEAT_STALE_MS
      if (age_ms < limit_ms) continue
      log('error', 'worker_frozen', { index: slot.index, pid: slot.child.pid, age_ms: Math.round(age_ms) })
      table.f64[workerF64(slot.index, WORKER.heartbeat_ms)] = now()
      slot.child.kill('SIGKILL')
    }
  }, WATCH_MS)

  return {
    /** Starts so many; the first binds the port, the others share it. Resolves with the port once all listen. */
    async start(count: number, port: number): Promise<number> {
      port_bound = port
      port_bound = await begin(freeIndex(), port, 0).child.ready
      await Promise.all(Array.from({ length: count - 1 }, () => begin(freeIndex(), port_bound, 0).child.ready))
      return port_bound
    },
    send(message: ToChild): void {
      for (const slot of slots.values()) slot.child.send(message)
    },
    /** A new worker listens before an old one stops accepting. */
    async roll(port: number, grace_ms: number): Promise<void> {
      for (const old of [...slots.values()]) {
        await begin(freeIndex(), port, 0).child.ready
        old.retired = true
        old.child.send({ type: 'drain', grace_ms })
        const timer = setTimeout(() => old.child.kill('SIGKILL'), grace_ms + 10_000)
        await old.child.exited
        clearTimeout(timer)
        log('info', 'worker_replaced', { index: old.index, pid: old.child.pid })
      }
    },
    /** Resolves when every worker is gone; one that overstays its grace is killed. */
    async drain(grace_ms: number): Promise<void> {
      draining = true
      clearInterval(watch)
      const children = [...slots.values()].map((slot) => slot.child)
      for (const child of children) child.send({ type: 'drain', grace_ms })
      const timer = setTimeout(() => children.forEach((child) => child.kill('SIGKILL')), grace_ms + 10_000)
      await Promise.all(children.map((child) => child.exited))
      clearTimeout(timer)
    },
    kill(): void {
      draining = true
      clearInterval(watch)
      for (const slot of slots.values()) slot.child.kill('SIGKILL')
    },
  }
}
