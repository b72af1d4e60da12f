import { Failure } from '../base/failure.ts'
import { limits } from '../base/limits.ts'
import type { Call } from './call.ts'

/**
 * The memory that request bodies may hold in one worker, all calls together: `in_flight_max` bodies of `body_bytes_max`
 * would be more than any machine has. A body counts from the moment its size is known to the end of its call.
 */
export class BodyRoom {
  #held_bytes = 0
  readonly #bytes_max: number

  constructor(bytes_max: number = limits.bodies_bytes_max) {
    this.#bytes_max = bytes_max
  }

  get held_bytes(): number {
    return this.#held_bytes
  }

  /** Takes room for bytes of a call's body, or says that there is none. */
  take(call: Call, bytes: number): Failure | undefined {
    // What still comes in for a call that is over is not kept, so nothing would give its room back.
    if (!call.open) return new Failure('client_gone')
    if (this.#held_bytes + bytes > this.#bytes_max)
      return new Failure('overloaded', {
        says: `The request bodies of the calls in flight fill the ${this.#bytes_max} bytes set aside for them.`,
        retry_after_s: 1,
      })
    this.#held_bytes += bytes
    call.body_held_bytes += bytes
    return undefined
  }

  /** Gives back all that a call holds. */
  give(call: Call): void {
    this.#held_bytes -= call.body_held_bytes
    call.body_held_bytes = 0
  }
}
