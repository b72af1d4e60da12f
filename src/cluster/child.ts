import { openLog, type Log } from '../observe/log.ts'
import type { TenantIncrease } from '../config/budgets.ts'
import type { TenantConfig } from '../config/schema.ts'
import type { Boot, FromChild, Role, ToChild } from './messages.ts'

/** What a child process of the house is given to run with. */
export type ChildContext = {
  readonly boot: Boot
  readonly log: Log
  /** Says that it serves, on which port. */
  ready(port: number): void
  tell(text: string): void
  /** Hands the tenants that the API made, and the increases of budgets, to the supervisor. */
  tenants(made: readonly TenantConfig[], increases: readonly TenantIncrease[]): void
}

type NewConfig = Extract<ToChild, { type: 'config' }>

/** What a child answers to the supervisor's messages. */
export type ChildLife = {
  /** Puts a configuration in force. If it rejects, the old one stays. */
  readonly onConfig: (message: NewConfig) => void | Promise<void>
  /** Resolves when the process may end. */
  readonly drain: (grace_ms: number, linger_ms: number) => Promise<void>
}

/** The IPC channel of this process, as `main` hands it in. */
export type Channel = {
  send(message: FromChild): void
  onMessage(handler: (message: ToChild) => void): void
  /** The supervisor is gone. */
  onLost(handler: () => void): void
  exit(code: number): void
}

/**
 * Runs a child of the house: waits for its boot message, runs `main`, and obeys. A child whose supervisor is gone drains
 * and ends: nobody would count what it holds.
 */
export const runChild = (role: Role, channel: Channel, main: (context: ChildContext) => Promise<ChildLife>): void => {
  let life: Promise<ChildLife> | undefined
  let log: Log = () => undefined
  let ending = false
  const end = (grace_ms: number, linger_ms: number): void => {
    if (ending) return
    ending = true
    const drained = (async () => (await life)?.drain(grace_ms, linger_ms))()
    drained.then(
      () => channel.exit(0),
      (cause: unknown) => {
        log('error', 'drain_failed', { cause })
        channel.exit(1)
      },
    )
  }
  const boot = (message: Boot): void => {
    log = openLog(role === 'worker' ? `worker-${message.index}` : role, message.pretty_log)
    const context: ChildContext = {
      boot: message,
      log,
      ready: (port) => channel.send({ type: 'ready', port }),
      tell: (text) => channel.send({ type: 'tell', text }),
      tenants: (tenants, increases) => channel.send({ type: 'tenants', tenants, increases }),
    }
    life = main(context)
    life.catch((cause: unknown) => {
      channel.send({ type: 'failed', says: `${role}: ${cause instanceof Error ? cause.message : String(cause)}` })
      log('error', 'process_failed', { cause })
      channel.exit(1)
    })
  }
  const adopt = async (message: NewConfig): Promise<void> => {
    const { generation } = message
    try {
      await (await life)?.onConfig(message)
    } catch (cause) {
      log('error', 'configuration_not_swapped', { generation, cause })
      return
    }
    channel.send({ type: 'adopted', generation })
  }
  channel.onMessage((message) => {
    if (message.type === 'boot') boot(message)
    else if (message.type === 'config') void adopt(message)
    else if (message.type === 'ping') channel.send({ type: 'pong' })
    else end(message.grace_ms, message.linger_ms ?? 0)
  })
  channel.onLost(() => end(0, 0))
}
