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
export class Workers {
  readonly #ports: Ports
  readonly #slots = new Map<number, Slot>()
  #incarnation: number
  #port_bound = 0
  #draining = false
  #rolling = false
  #turned_tick_ms: number
  readonly #watch: Timer

  constructor(ports: Ports) {
    this.#ports = ports
    this.#incarnation = ports.next_incarnation
    this.#turned_tick_ms = ports.tick()
    this.#watch = setInterval(() => this.#look(), WATCH_MS)
  }

  /** Starts so many; the first binds the port, the others share it. Resolves with the port once all listen. */
  async start(count: number, port: number): Promise<number> {
    this.#port_bound = port
    this.#port_bound = await this.#begin(0).child.ready
    await Promise.all(Array.from({ length: count - 1 }, () => this.#begin(0).child.ready))
    return this.#port_bound
  }

  send(message: ToChild): void {
    for (const slot of this.#slots.values()) slot.child.send(message)
  }

  /** Replaces all workers that there are now, one by one. One round at a time. */
  async roll(grace_ms: number): Promise<void> {
    if (this.#rolling) return this.#ports.log('warn', 'roll_under_way')
    this.#rolling = true
    const present = [...this.#slots.values()]
    for (const old of present) {
      if (this.#draining) break
      // One that died since has a successor already.
      const there = this.#slots.get(old.index) === old && old.child.alive()
      if (there && !(await this.#replace(old, grace_ms))) break
    }
    this.#rolling = false
  }

  /** Resolves when every worker is gone; one that overstays its grace is killed. */
  async drain(grace_ms: number): Promise<void> {
    this.#draining = true
    clearInterval(this.#watch)
    const children = [...this.#slots.values()].map(({ child }) => child)
    for (const child of children) child.send({ type: 'drain', grace_ms })
    await Promise.all(children.map((child) => endOf(child, grace_ms + LEAVE_MS)))
  }

  kill(): void {
    this.#draining = true
    clearInterval(this.#watch)
    for (const slot of this.#slots.values()) slot.child.kill()
  }

  #begin(failures: number): Slot {
    const { table, spawn, tick } = this.#ports
    const index = this.#freeIndex()
    if (index === undefined) throw new Error('no free column in the shared table for another worker')
    Atomics.store(table.i32, workerI32(index, WORKER.state), WORKER_STATE.starting)
    // Before the process exists: the accountant must never take its journal for a dead one's.
    Atomics.store(table.i32, workerI32(index, WORKER.incarnation), this.#incarnation)
    const child = spawn(index, this.#port_bound, this.#incarnation++)
    const slot: Slot = { index, child, failures, retired: false, beat: 0, beat_tick_ms: tick() }
    Atomics.store(table.i32, workerI32(index, WORKER.pid), child.pid)
    this.#slots.set(index, slot)
    void child.exited.then((code) => this.#ended(slot, code))
    return slot
  }

  #freeIndex(): number | undefined {
    // The last column is the accountant's; one whose share of budgets is still owed is not free.
    const { i32 } = this.#ports.table
    for (let index = 0; index < limits.workers_max - 1; index++)
      if (!this.#slots.has(index) && Atomics.load(i32, workerI32(index, WORKER.budgets_owed)) === 0) return index
    return undefined
  }

  /** The process is gone: its share goes back, and unless it was meant to go another takes its place. */
  async #ended(slot: Slot, code: number): Promise<void> {
    const { table, log, tick } = this.#ports
    const { index, child } = slot
    Atomics.store(table.i32, workerI32(index, WORKER.state), WORKER_STATE.none)
    for (const cell of [WORKER.pid, WORKER.in_flight, WORKER.open_streams, WORKER.journal_full])
      Atomics.store(table.i32, workerI32(index, cell), 0)
    const given_back = await this.#giveBack(index)
    this.#slots.delete(index)
    const failures = tick() - child.started_tick_ms > STEADY_MS ? 0 : slot.failures
    if (!slot.retired && !this.#draining) {
      const restart_in_ms = backoffMs(failures)
      log('error', 'process_died', { role: 'worker', index, pid: child.pid, code, given_back, restart_in_ms })
      await Bun.sleep(restart_in_ms)
    }
    if (slot.retired || this.#draining) return
    const next = this.#begin(failures + 1)
    next.child.ready.catch((cause: unknown) => log('error', 'worker_not_ready', { index: next.index, cause }))
  }

  /** A living worker that is frozen while it changes counts delays this until it is replaced itself. */
  async #giveBack(dead: number): Promise<number> {
    const { table, log } = this.#ports
    for (;;) {
      const alive = [...this.#slots.values()].filter(({ index, child }) => index !== dead && child.alive())
      try {
        return reap(
          table,
          dead,
          alive.map(({ index }) => index),
        )
      } catch (cause) {
        if (this.#draining) return 0
        log('warn', 'share_not_given_back', { index: dead, cause })
      }
      await Bun.sleep(50)
    }
  }

  /** Kills what does not beat. Its exit does the rest. */
  #look(): void {
    const { table, log, tick } = this.#ports
    // Time in which this process did not run says nothing of the others; nor does the wall clock, which can jump.
    const paused = tick() - this.#turned_tick_ms > 4 * WATCH_MS
    this.#turned_tick_ms = tick()
    for (const slot of this.#slots.values()) {
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
  }

  /** A new worker listens before the old one stops accepting. False if none would start: the old one stays. */
  async #replace(old: Slot, grace_ms: number): Promise<boolean> {
    const { log } = this.#ports
    // From here on the new one takes the place of the old, also if that dies meanwhile.
    old.retired = true
    let fresh: Slot | undefined
    try {
      fresh = this.#begin(0)
      await fresh.child.ready
    } catch (cause) {
      log('error', 'roll_stopped', { cause })
      // Whichever of the two is restarted, if both are gone, it is one.
      old.retired = !old.child.alive()
      if (fresh) fresh.retired = old.child.alive()
      return false
    }
    old.child.send({ type: 'drain', grace_ms, linger_ms: LINGER_MS })
    await endOf(old.child, LINGER_MS + grace_ms + LEAVE_MS)
    log('info', 'worker_replaced', { index: old.index, pid: old.child.pid })
    return true
  }
}
