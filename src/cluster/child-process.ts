import type { TenantIncrease } from '../config/budgets.ts'
import type { TenantConfig } from '../config/schema.ts'
import type { Boot, FromChild, Role, ToChild } from './messages.ts'

/** A process of the house, as the supervisor holds it. */
export type Child = {
  readonly role: Role
  readonly pid: number
  readonly started_tick_ms: number
  /** When it last said anything, on the monotonic clock. */
  heard_tick_ms(): number
  /** A message to a process that is gone is dropped: its exit is what counts. */
  send(message: ToChild): void
  kill(): void
  alive(): boolean
  /** Resolves with the port once it serves; rejects with what it said, or how it ended, if it never does. */
  readonly ready: Promise<number>
  readonly exited: Promise<number>
}

/** How a child is started: the command line before the role, and the environment. */
export type Spawner = {
  readonly command: readonly string[]
  readonly env: Record<string, string | undefined>
  readonly tick: () => number
}

/** What the supervisor does with what a child says beyond being ready. */
export type Hear = {
  tell(text: string): void
  tenants(made: readonly TenantConfig[], increases: readonly TenantIncrease[]): void
  adopted(generation: number): void
}

/** Starts a child and sends it its boot message. */
export const spawnChild = (spawner: Spawner, role: Role, boot: Boot, hear: Hear): Child => {
  const { promise: ready, resolve, reject } = Promise.withResolvers<number>()
  // Awaited by the supervisor in its own time; a rejection before that is not a bug.
  ready.catch(() => undefined)
  let heard_tick_ms = spawner.tick()
  const child = Bun.spawn({
    // The folder is only there to be seen in a process list.
    cmd: [...spawner.command, role, boot.files.data],
    env: spawner.env,
    stdin: 'ignore',
    // The supervisor's stdout is for its ready line alone.
    stdout: 2,
    stderr: 'inherit',
    serialization: 'json',
    ipc: (message: FromChild) => {
      heard_tick_ms = spawner.tick()
      if (message.type === 'ready') resolve(message.port)
      else if (message.type === 'tell') hear.tell(message.text)
      else if (message.type === 'tenants') hear.tenants(message.tenants, message.increases)
      else if (message.type === 'adopted') hear.adopted(message.generation)
      else if (message.type === 'failed') reject(new Error(message.says))
    },
  })
  const alive = () => child.exitCode === null && child.signalCode === null
  const exited = child.exited.then((code) => {
    reject(new Error(`${role} ended with ${child.signalCode ?? code} before it was ready`))
    return code
  })
  const send = (message: ToChild): void => {
    if (!alive()) return
    try {
      child.send(message)
    } catch (cause) {
      void cause // It has just ended, and `exited` is about to say so.
    }
  }
  send(boot)
  return {
    role,
    pid: child.pid,
    started_tick_ms: heard_tick_ms,
    heard_tick_ms: () => heard_tick_ms,
    send,
    kill: () => child.kill('SIGKILL'),
    alive,
    ready,
    exited,
  }
}

/** Waits for a child to go, and kills it if it does not. Answers its exit code; 0 if there is none. */
export const endOf = async (child: Child | undefined, within_ms: number): Promise<number> => {
  if (child === undefined) return 0
  const timer = setTimeout(child.kill, within_ms)
  const code = await child.exited
  clearTimeout(timer)
  return code
}

/** Restart delays: from 100 ms doubling to 5 s; a child that ran for 10 s starts afresh. */
export const backoffMs = (failures_in_a_row: number): number => Math.min(100 * 2 ** failures_in_a_row, 5_000)
export const STEADY_MS = 10_000
