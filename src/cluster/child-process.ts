import type { TenantConfig } from '../config/schema.ts'
import type { Boot, FromChild, Role, ToChild } from './messages.ts'

/** A process of the house, as the supervisor holds it. */
export type Child = {
  readonly role: Role
  readonly pid: number
  readonly started_tick_ms: number
  send(message: ToChild): void
  kill(signal: 'SIGTERM' | 'SIGKILL'): void
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
export type Hear = { tell(text: string): void; tenants(made: readonly TenantConfig[]): void }

/** Starts a child and sends it its boot message. */
export const spawnChild = (spawner: Spawner, role: Role, boot: Boot, hear: Hear): Child => {
  const { promise: ready, resolve, reject } = Promise.withResolvers<number>()
  // Awaited by the supervisor in its own time; a rejection before that is not a bug.
  ready.catch(() => undefined)
  const child = Bun.spawn({
    // The folder is only there to be seen in a process list.
    cmd: [...spawner.command, role, boot.files.data],
    env: spawner.env,
    stdin: 'ignore',
    stdout: 'inherit',
    stderr: 'inherit',
    serialization: 'json',
    ipc: (message: FromChild) => {
      if (message.type === 'ready') resolve(message.port)
      else if (message.type === 'tell') hear.tell(message.text)
      else if (message.type === 'tenants') hear.tenants(message.tenants)
      else reject(new Error(message.says))
    },
  })
  const exited = child.exited.then((code) => {
    reject(new Error(`${role} ended with ${child.signalCode ?? code} before it was ready`))
    return code
  })
  child.send(boot)
  return {
    role,
    pid: child.pid,
    started_tick_ms: spawner.tick(),
    send: (message) => {
      if (child.exitCode === null && child.signalCode === null) child.send(message)
    },
    kill: (signal) => child.kill(signal),
    ready,
    exited,
  }
}

/** Restart delays: from 100 ms doubling to 5 s; a child that ran for 10 s starts afresh. */
export const backoffMs = (failures_in_a_row: number): number => Math.min(100 * 2 ** failures_in_a_row, 5_000)
export const STEADY_MS = 10_000
