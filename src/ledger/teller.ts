import { Failure } from '../base/failure.ts'
import type { Log } from '../observe/log.ts'

export type Tell = (event: string, cause: unknown) => void

/** Says a trouble once, however often it comes in a row. */
export const teller = (log: Log): Tell => {
  let last = ''
  return (event, cause) => {
    const said = `${event} ${cause instanceof Failure ? cause.detail.says : String(cause)}`
    if (said !== last) log('warn', event, { cause })
    last = said
  }
}
