import { verdictOf } from '../balance/verdict.ts'
import { Failure } from '../base/failure.ts'
import { TransportFailure } from '../engines/transport.ts'
import { errorJson, errorStatus } from './engine-error.ts'
import type { Flight } from './flight.ts'
import type { StreamSource } from './stream-source.ts'

/** What a stream that is over comes to, and what the engine is blamed for, if it is. */
export type StreamEnd = {
  /** Why the answer is not whole; undefined if it is. */
  readonly failure: Failure | undefined
  /** The engine's own words on it, for the client; a failure without them is told in the gateway's. */
  readonly error_json: Uint8Array | undefined
  readonly blame: string | undefined
}

/** A deadline of ours as a failure. */
export const lateness = (overdue: NonNullable<Flight['overdue']>): Failure => new Failure(LATENESS[overdue])

const LATENESS = { total: 'deadline_passed', silence: 'engine_timeout', draining: 'draining' } as const

/** Judges a stream that is over. It is whole if `[DONE]` came, or every choice finished and no error followed. */
export const streamEnd = (source: StreamSource, overdue: Flight['overdue']): StreamEnd => {
  const { state, error, failure } = source
  const ended = (why?: Failure, blame?: string): StreamEnd => ({ failure: why, error_json: undefined, blame })
  if (state === 'done' || (state !== 'error' && source.finished)) return ended()
  if (error !== undefined) {
    const verdict = verdictOf(errorStatus(error))
    const blame = verdict.health === 'fail' ? `error event: ${error.message}` : undefined
    // It speaks of the gateway's own credential, which is none of the client's business.
    if (verdict.shown === 'credential') return ended(new Failure('engine_credential'), blame)
    return { failure: new Failure('engine_failed'), error_json: errorJson(source.error_bytes, error), blame }
  }
  if (overdue === 'total' || overdue === 'draining') return ended(lateness(overdue))
  if (failure instanceof Failure) return ended(failure, failure.code)
  if (overdue === 'silence') return ended(lateness(overdue), 'silence')
  if (!(failure instanceof TransportFailure)) return ended(new Failure('engine_cut'), 'the end came early')
  const code = failure.kind === 'invalid' ? 'engine_invalid' : 'engine_cut'
  return ended(new Failure(code), `${failure.kind}: ${String(failure.cause ?? '')}`)
}

/** How long an engine may keep back what comes after the last finish reason: usage, then `[DONE]`. */
export const restMs = ({ usage }: StreamSource): number => (usage === undefined ? USAGE_MS : DONE_MS)

const USAGE_MS = 2_000
const DONE_MS = 500
