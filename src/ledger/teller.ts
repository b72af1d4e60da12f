import { type Clock, tickMs } from '../base/clock.ts'
import { Failure } from '../base/failure.ts'
import type { Log } from '../observe/log.ts'

export type Tell = (event: string, cause: unknown) => void

/** A trouble that stays is said again after so long, and so is one that comes back. */
const AGAIN_MS = 60_000

/** Says a trouble once a minute, however often it comes in a row. */
export const teller = (log: Log, tick: Clock = tickMs): Tell => {
  let last = ''
  let said_tick_ms = 0
  return (event, cause) => {
    const said = `${event} ${cause instanceof Failure ? cause.detail.says : String(cause)}`
    if (said === last && tick() - said_tick_ms < AGAIN_MS) return
    log('warn', event, { cause })
    last = said
    said_tick_ms = tick()
  }
}
