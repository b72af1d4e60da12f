import type { Log } from '../observe/log.ts'
import { HEADER } from '../table/layout.ts'
import type { Table } from '../table/table.ts'
import { backoffMs, type Child, endOf, STEADY_MS } from './child-process.ts'
import type { Role, ToChild } from './messages.ts'

/** A role of which there is one process. */
export type SingleRole = Exclude<Role, 'worker'>

/** A process that says nothing for so long, although it is asked, is frozen: it is killed and replaced. */
const SILENT_MS = 30_000
const PING_MS = 2_000
/** What of the time to stop is kept for closing what is open. */
const CLOSE_MS = 1_000
/** The share of the time to stop after which a process is killed, so that another can finish. */
const FIRST_SHARE = 0.75

const PID_CELL = {
  control: HEADER.control_pid,
  accountant: HEADER.accountant_pid,
  auditor: HEADER.auditor_pid,
  demo: HEADER.demo_pid,
} as const satisfies Record<SingleRole, number>

type Ports = {
  readonly table: Table
  readonly spawn: (role: SingleRole, port: number) => Child
  readonly log: Log
  readonly tick: () => number
}

/** The processes of which a house has one each: kept alive until the house stops. */
export type Singles = ReturnType<typeof openSingles>

export const openSingles = ({ table, spawn, log, tick }: Ports) => {
  const children = new Map<SingleRole, Child>()
  let stopping = false

  const begin = (role: SingleRole, port: number): Child => {
    const child = spawn(role, port)
    Atomics.store(table.i32, PID_CELL[role], child.pid)
    children.set(role, child)
    return child
  }

  const watch = async (role: SingleRole, port: number, child: Child, failures: number): Promise<void> => {
    const code = await child.exited
    if (stopping) return
    const failed = tick() - child.started_tick_ms > STEADY_MS ? 0 : failures
    const delay_ms = backoffMs(failed)
    log('error', 'process_died', { role, pid: child.pid, code, restart_in_ms: delay_ms })
    await Bun.sleep(delay_ms)
    if (stopping) return
    const next = begin(role, port)
    next.ready.catch((cause: unknown) => log('error', 'process_not_ready', { role, cause }))
    void watch(role, port, next, failed + 1)
  }

  const pings = watchSilence(children, tick, log)

  return {
    /** Starts a process, and again whenever it dies. Resolves with its port once it serves; rejects if it never does. */
    async keep(role: SingleRole, port: number): Promise<number> {
      const child = begin(role, port)
      const served = await child.ready
      void watch(role, served, child, 0)
      return served
    },
    has: (role: SingleRole): boolean => children.has(role),
    send(role: SingleRole, message: ToChild): void {
      children.get(role)?.send(message)
    },
    /** From here on nothing is restarted. */
    stopping(): void {
      stopping = true
      clearInterval(pings)
    },
    /**
     * Ends a process in order, and answers its exit code. One that is just dead, or dies of it, is started once more to
     * finish, as long as there is time: all of it takes `within_ms` at most.
     */
    async stop(role: SingleRole, within_ms: number, to_the_end: boolean): Promise<number> {
      const until_tick_ms = tick() + within_ms
      let child = children.get(role)
      for (let turn = 0; ; turn++) {
        if (child?.alive() === false && to_the_end) child = begin(role, 0)
        // One that is frozen leaves its successor some time.
        const left_ms = (until_tick_ms - tick()) * (turn === 0 && to_the_end ? FIRST_SHARE : 1)
        child?.send({ type: 'drain', grace_ms: Math.max(left_ms - CLOSE_MS, 0) })
        const code = await endOf(child, left_ms)
        if (code === 0 || !to_the_end || turn === 2 || until_tick_ms - tick() < CLOSE_MS) return code
        log('warn', 'process_died', { role, pid: child?.pid, code, while: 'stopping' })
      }
    },
    kill(): void {
      stopping = true
      clearInterval(pings)
      for (const child of children.values()) child.kill()
    },
  }
}

/** Asks every process how it is, and kills one that does not answer. Its exit does the rest. */
const watchSilence = (children: ReadonlyMap<SingleRole, Child>, tick: () => number, log: Log): Timer => {
  let turned_tick_ms = tick()
  return setInterval(() => {
    // After a sleep of the machine everybody looks silent; they get their time from now on.
    const slept = tick() - turned_tick_ms > 2 * PING_MS
    turned_tick_ms = tick()
    for (const [role, child] of children) {
      const silent_ms = tick() - child.heard_tick_ms()
      if (silent_ms > SILENT_MS && !slept && child.alive()) {
        log('error', 'process_frozen', { role, pid: child.pid, silent_ms: Math.round(silent_ms) })
        child.kill()
      } else child.send({ type: 'ping' })
    }
  }, PING_MS)
}
