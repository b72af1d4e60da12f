import type { Target } from '../balance/catalogue.ts'
import { markFailed, markGood, releaseProbe } from '../balance/health.ts'
import { Failure } from '../base/failure.ts'
import { limits } from '../base/limits.ts'
import { giveCounts } from '../table/counts.ts'
import { attempt } from './attempt.ts'
import type { Call, Routed } from './call.ts'
import { echo } from './echo.ts'
import { Flight } from './flight.ts'
import type { House } from './house.ts'
import { recordAttempt, recordIntent } from './intent.ts'
import { type Answer, Miss } from './outcome.ts'
import { relayStream } from './relay-stream.ts'
import { relayWhole, relayRefusal } from './relay-whole.ts'
import { nextTarget } from './route.ts'

/**
 * Takes the call to engines until one answers, and the answer to the client. The intent is in the journal before the
 * first engine hears of the call. Nothing goes to the client before an engine has shown a first event or a whole body,
 * so until then another engine can take over.
 */
export const forward = async (call: Routed, house: House): Promise<Response | Failure> => {
  const full = recordIntent(call, house)
  if (full) return full
  if (call.target === undefined) return echo(call, house)
  const flight = new Flight(call, house)
  const answering = tryEngines(call, house, flight)
  if (!call.body.stream) {
    const answer = await answering
    return answer instanceof Failure ? flight.end(answer) : respond(answer, call, house, flight)
  }
  // A model may think for long. Once a sign of life is due the status goes out, and the stream waits for the answer.
  const answer = await Promise.race([answering, flight.pingDue()])
  if (answer === undefined) return relayStream(call, house, flight, answering)
  return answer instanceof Failure ? flight.end(answer) : respond(answer, call, house, flight)
}

const respond = (answer: Answer, call: Routed, house: House, flight: Flight): Promise<Response> | Response => {
  if (answer.kind === 'stream') return relayStream(call, house, flight, answer)
  return answer.kind === 'whole' ? relayWhole(answer, call, house, flight) : relayRefusal(answer, call, house, flight)
}

/** One engine after the other, as the table of verdicts allows; the last one's word counts when none answers. */
const tryEngines = async (call: Routed, house: House, flight: Flight): Promise<Answer | Failure> => {
  const tried: Target[] = []
  for (let target = call.target!; ;) {
    tried.push(target)
    flight.attempts = tried.length
    const outcome = await attempt(call, house, flight, target)
    judge(call, house, target, outcome)
    if (!(outcome instanceof Miss)) return outcome
    const over =
      call.client_gone || !outcome.verdict.next || tried.length >= limits.attempts_max || flight.overdue !== undefined
    const next = over ? undefined : leave(call, house, target, tried)
    if (next === undefined) return outcome.shown
    recordAttempt(call, house, next, outcome.because)
    target = next
  }
}

/** Gives the place at an engine back and takes one at another; undefined if there is none. */
const leave = (call: Call, house: House, target: Target, tried: readonly Target[]): Target | undefined => {
  const at = call.claims.findIndex((claim) => claim.subject === target.engine.subject)
  giveCounts(house.table, house.worker, call.claims.splice(at, 1))
  const next = nextTarget(call, house, tried)
  if (next instanceof Failure) return undefined
  call.target = next
  return next
}

/** Writes what happened into the engine's record. A call that the client left, or that was at fault itself, proves nothing. */
const judge = (call: Call, house: House, target: Target, outcome: Answer | Miss): void => {
  const subject = target.engine.subject
  if (!(outcome instanceof Miss)) {
    if (outcome.kind === 'refusal') releaseProbe(house.table, subject)
    else markGood(house.table, subject, outcome.first_byte_ms)
    return
  }
  if (call.client_gone || outcome.verdict.health === 'none') return releaseProbe(house.table, subject)
  markFailed(house.table, subject, house.now(), outcome.retry_after_ms)
  house.log('warn', 'engine_failed', {
    call_id: call.id,
    engine: target.engine.name,
    because: outcome.because,
    cause: outcome.cause,
  })
  if (outcome.verdict.shown === 'credential')
    house.log('error', 'engine_refuses_our_credential', { engine: target.engine.name })
}
