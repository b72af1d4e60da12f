import { readFileSync } from 'node:fs'
import type { Config } from '../config/schema.ts'

/** Files that a worker needs besides sockets: journal, table, listener, pipes, libraries. */
const OTHER_FILES = 64

/** File descriptors: what a worker may open and what its settings ask for. Bun raises the soft limit to the hard one by itself. */
export type Descriptors = {
  readonly allowed: number
  readonly needed: number
  /** Connections to engines a worker gets, so that clients and engines fit together: a proxied call takes two. */
  readonly upstream_sockets: number
}

export const planDescriptors = (config: Config, allowed: number): Descriptors => {
  const { in_flight_max, upstream_sockets_max } = config.server
  const fits = Math.max(16, Math.floor((allowed - OTHER_FILES) / 4))
  return {
    allowed,
    needed: in_flight_max + upstream_sockets_max + OTHER_FILES,
    upstream_sockets: Math.min(upstream_sockets_max, fits),
  }
}

/** The log line about them, which says what to do if they are too few. */
export const descriptorsTold = (plan: Descriptors) => {
  const few = plan.allowed < plan.needed
  const says =
    'raise the hard limit of open files (ulimit -Hn, LimitNOFILE) to what is needed, or lower server.in_flight_max'
  return [few ? 'warn' : 'info', 'descriptors', { ...plan, ...(few && { says }) }] as const
}

/** The hard limit of this process on open files; a large number where the system does not say. */
export const hardLimit = (): number => {
  try {
    const line = readFileSync('/proc/self/limits', 'utf8')
      .split('\n')
      .find((row) => row.startsWith('Max open files'))
    const hard = line?.trim().split(/\s{2,}/)[2]
    return hard === undefined || hard === 'unlimited' ? 1_048_576 : Number(hard)
  } catch {
    return 1_048_576 // Not Linux; the system's own errors will tell.
  }
}
