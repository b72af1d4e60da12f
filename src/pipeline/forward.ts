import type { Target } from '../balance/catalogue.ts'
import { Failure } from '../base/failure.ts'
import { limits } from '../base/limits.ts'
import { attempt } from './attempt.ts'
import type { Call, Routed } from './call.ts'
import { echo } from './echo.ts'
import { judge } from './engine-record.ts'
import { Flight } from './flight.ts'
import type { House } from './house.ts'
import { recordAttempt, recordIntent } from './intent.ts'
import { type Answer, Miss } from './outcome.ts'
import { relayStream } from './relay-stream.ts'
import { relayRefusal, relayWhole } from './relay-whole.ts'
import { leavePlace } from './place.ts'
import { nextTarget } from './route.ts'
import { streams } from './upstream-request.ts'

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
  if (!streams(call)) return respond(await answering, call, house, flight)
  // A model may think for long. Once a sign of life is due the status goes out, and the stream waits for the answer.
  const answer = await Promise.race([answering, flight.pingDue()])
  if (answer === undefined) return relayStream(call, house, flight, answering)
  return respond(answer, call, house, flight)
}

const respond = (
  answer: Answer | Failure,
  call: Routed,
  house: House,
  flight: Flight,
): Promise<Response> | Response | Failure => {
  if (answer instanceof Failure) return flight.end(answer)
  if (answer.kind === 'stream') return relayStream(call, house, flight, answer)
  return answer.kind === 'whole' ? relayWhole(answer, call, house, flight) : relayRefusal(answer, call, house, flight)
}

/** One engine after the other; the last one's word counts when none answers. A bug is answered like a failure. */
const tryEngines = async (call: Routed, house: House, flight: Flight): Promise<Answer | Failure> => {
  try {
    return await asLongAsUseful(call, house, flight)
  } catch (cause) {
    flight.cancel()
    house.log('error', 'internal_error', { call_id: call.id, stage: call.at, cause })
    return new Failure('internal', { cause })
  }
}

const asLongAsUseful = async (call: Routed, house: House, flight: Flight): Promise<Answer | Failure> => {
  const tried: Target[] = []
  let renewed = false
  for (let target = call.target!; ;) {
    const late = flight.givenUp()
    if (late) return late.shown
    flight.attempts++
    const outcome = await attempt(call, house, flight, target)
    if (outcome instanceof Miss) flight.cancel()
    else {
      judge(call, house, target, outcome)
      return outcome
    }
    if (outcome.stale && !renewed) renewed = true
    else {
      judge(call, house, target, outcome)
      tried.push(target)
      const next = goesOn(call, flight, outcome, tried) ? leave(call, house, target, tried) : undefined
      if (next === undefined) return outcome.shown
      target = next
    }
    recordAttempt(call, house, target, outcome.because)
  }
}

const goesOn = (call: Call, flight: Flight, miss: Miss, tried: readonly Target[]): boolean =>
  miss.verdict.next && tried.length < limits.attempts_max && !call.client_gone && flight.givenUp() === undefined

/** Gives the place at an engine back and takes one at another; undefined if there is none. */
const leave = (call: Call, house: House, target: Target, tried: readonly Target[]): Target | undefined => {
  leavePlace(call, house, target)
  const next = nextTarget(call, house, tried)
  if (next instanceof Failure) return undefined
  call.target = next
  return next
}
