import { limits } from '../base/limits.ts'
import type { Log } from '../observe/log.ts'
import { reap } from '../table/counts.ts'
import { WORKER, WORKER_STATE } from '../table/layout.ts'
import { type Table, workerF64, workerI32 } from '../table/table.ts'
import { backoffMs, type Child, endOf, STEADY_MS } from './child-process.ts'
import type { ToChild } from './messages.ts'

/** A worker whose heart has not beaten for so long is frozen: it is killed and replaced. */
const HEARTBEAT_STALE_MS = 5_000
/** The same for one that has not begun to serve. */
const START_MS = 30_000
const WATCH_MS = 250
/** What a worker may take beyond its grace to bring its journal to the disk. */
const LEAVE_MS = 10_000
/** How long a replaced worker goes on serving its connections, asking each to leave, before it closes idle ones. */
const LINGER_MS = 1_000

type Slot = {
  readonly index: number
  readonly child: Child
  readonly failures: number
  /** It is meant to go, so nobody takes its place. */
  retired: boolean
  /** The last heartbeat that was seen, and when it was new, on the supervisor's monotonic clock. */
  beat: number
  beat_tick_ms: number
}

type Ports = {
  readonly table: Table
  readonly spawn: (index: number, port: number, incarnation: number) => Child
  readonly next_incarnation: number
  readonly log: Log
  readonly tick: () => number
}

/** The workers of a house. Each has a column in the shared table of its own for as long as it lives. */
export type Workers = ReturnType<typeof openWorkers>

export const openWorkers = ({ table, spawn, log, tick, next_incarnation }: Ports) => {
  let incarnation = next_incarnation
  const slots = new Map<number, Slot>()
  let port_bound = 0
  let draining = false
  let rolling = false

  const freeIndex = (): number | undefined => {
    // The last column is the accountant's.
    for (let index = 0; index < limits.workers_max - 1; index++) if (!slots.has(index)) return index
    return undefined
  }

  const begin = (failures: number): Slot => {
    const index = freeIndex()
    if (index === undefined) throw new Error('no free column in the shared table for another worker')
    Atomics.store(table.i32, workerI32(index, WORKER.state), WORKER_STATE.starting)
    // Before the process exists: the accountant must never take its journal for a dead one's.
    Atomics.store(table.i32, workerI32(index, WORKER.incarnation), incarnation)
    const child = spawn(index, port_bound, incarnation++)
    const slot: Slot = { index, child, failures, retired: false, beat: 0, beat_tick_ms: tick() }
    Atomics.store(table.i32, workerI32(index, WORKER.pid), child.pid)
    slots.set(index, slot)
    void child.exited.then((code) => ended(slot, code))
    return slot
  }

  /** The process is gone: its share goes back, and unless it was meant to go another takes its place. */
  const ended = async (slot: Slot, code: number): Promise<void> => {
    const { index } = slot
    Atomics.store(table.i32, workerI32(index, WORKER.state), WORKER_STATE.none)
    for (const cell of [WORKER.pid, WORKER.in_flight, WORKER.open_streams, WORKER.journal_full])
      Atomics.store(table.i32, workerI32(index, cell), 0)
    const given_back = await giveBack(index)
    slots.delete(index)
    const failures = tick() - slot.child.started_tick_ms > STEADY_MS ? 0 : slot.failures
    if (!slot.retired && !draining) {
      const restart_in_ms = backoffMs(failures)
      log('error', 'process_died', { role: 'worker', index, pid: slot.child.pid, code, given_back, restart_in_ms })
      await Bun.sleep(restart_in_ms)
    }
    if (slot.retired || draining) return
    const next = begin(failures + 1)
    next.child.ready.catch((cause: unknown) => log('error', 'worker_not_ready', { index: next.index, cause }))
  }

  /** A living worker that is frozen while it changes counts delays this until it is replaced itself. */
  const giveBack = async (dead: number): Promise<number> => {
    for (let given_back = 0; ; await Bun.sleep(50)) {
      const alive = [...slots.values()].filter(({ index, child }) => index !== dead && child.alive())
      try {
        return (
          given_back +
          reap(
            table,
            dead,
            alive.map(({ index }) => index),
          )
        )
      } catch (cause) {
        if (draining) return given_back
        log('warn', 'share_not_given_back', { index: dead, cause })
      }
    }
  }

  let turned_tick_ms = tick()
  const watch = setInterval(() => {
    // Time in which this process did not run says nothing of the others; nor does the wall clock, which can jump.
    const paused = tick() - turned_tick_ms > 4 * WATCH_MS
    turned_tick_ms = tick()
    for (const slot of slots.values()) {
      const beat = table.f64[workerF64(slot.index, WORKER.heartbeat_ms)]!
      if (beat !== slot.beat || paused) {
        slot.beat = beat
        slot.beat_tick_ms = tick()
        continue
      }
      const age_ms = tick() - slot.beat_tick_ms
      const starting = Atomics.load(table.i32, workerI32(slot.index, WORKER.state)) === WORKER_STATE.starting
      if (age_ms < (starting ? START_MS : HEARTBEAT_STALE_MS) || !slot.child.alive()) continue
      log('error', 'worker_frozen', { index: slot.index, pid: slot.child.pid, age_ms: Math.round(age_ms) })
      slot.beat_tick_ms = tick()
      slot.child.kill()
    }
  }, WATCH_MS)

  /** A new worker listens before the old one stops accepting. False if none would start: the old one stays. */
  const replace = async (old: Slot, grace_ms: number): Promise<boolean> => {
    // From here on the new one takes the place of the old, also if that dies meanwhile.
    old.retired = true
    let fresh: Slot | undefined
    try {
      fresh = begin(0)
      await fresh.child.ready
    } catch (cause) {
      log('error', 'roll_stopped', { cause })
      old.retired = !old.child.alive()
      if (fresh) fresh.retired = old.child.alive()
      return false
    }
    old.child.send({ type: 'drain', grace_ms, linger_ms: LINGER_MS })
    await endOf(old.child, LINGER_MS + grace_ms + LEAVE_MS)
    log('info', 'worker_replaced', { index: old.index, pid: old.child.pid })
    return true
  }

  return {
    /** Starts so many; the first binds the port, the others share it. Resolves with the port once all listen. */
    async start(count: number, port: number): Promise<number> {
      port_bound = port
      port_bound = await begin(0).child.ready
      await Promise.all(Array.from({ length: count - 1 }, () => begin(0).child.ready))
      return port_bound
    },
    send(message: ToChild): void {
      for (const slot of slots.values()) slot.child.send(message)
    },
    /** Replaces all workers that there are now, one by one. One round at a time. */
    async roll(grace_ms: number): Promise<void> {
      if (rolling) return log('warn', 'roll_under_way')
      rolling = true
      for (const old of slots.values().toArray()) {
        if (draining) break
        // One that died since has a successor already.
        if (slots.get(old.index) === old && old.child.alive() && !(await replace(old, grace_ms))) break
      }
      rolling = false
    },
    /** Resolves when every worker is gone; one that overstays its grace is killed. */
    async drain(grace_ms: number): Promise<void> {
      draining = true
      clearInterval(watch)
      const children = slots.values().toArray()
      for (const { child } of children) child.send({ type: 'drain', grace_ms })
      await Promise.all(children.map(({ child }) => endOf(child, grace_ms + LEAVE_MS)))
    },
    kill(): void {
      draining = true
      clearInterval(watch)
      for (const slot of slots.values()) slot.child.kill()
    },
  }
}
