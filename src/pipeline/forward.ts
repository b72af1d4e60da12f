import { Failure } from '../base/failure.ts'
import type { Routed } from './call.ts'
import { attempt } from './attempt.ts'
import { Delivered } from './delivered.ts'
import { echo } from './echo.ts'
import { judge } from './engine-record.ts'
import { Flight } from './flight.ts'
import type { House } from './house.ts'
import { recordAttempt, recordIntent } from './intent.ts'
import { type Answer, Miss } from './outcome.ts'
import { relayStream } from './relay-stream.ts'
import { relayRefusal, relayWhole } from './relay-whole.ts'
import { hedged } from './hedge.ts'
import { goesOn, leave } from './leave.ts'
import { contextTooSmall } from './too-long.ts'
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
  if (streams(call) && hasOthers(call)) flight.delivered = new Delivered()
  const answering = tryEngines(call, house, flight)
  if (!streams(call)) return respond(await answering, call, house, flight)
  // A model may think for long. Once a sign of life is due the status goes out, and the stream waits for the answer.
  const answer = await Promise.race([answering, flight.pingDue()])
  if (answer === undefined) return relayStream(call, house, flight, answering)
  return respond(answer, call, house, flight)
}

/** True if an answer that breaks could go on elsewhere. */
const hasOthers = ({ model }: Routed): boolean => model!.targets.length > 1 || model!.fallbacks.length > 0

const respond = (
  answer: Answer | Failure,
  call: Routed,
  house: House,
  flight: Flight,
): Promise<Response | Failure> | Response | Failure => {
  if (answer instanceof Failure) return flight.end(answer)
  if (answer.kind === 'stream') return relayStream(call, house, flight, answer)
  return answer.kind === 'whole' ? relayWhole(answer, call, house, flight) : relayRefusal(answer, call, house, flight)
}

/** One engine after the other; the last one's word counts when none answers. A bug is answered like a failure. */
const tryEngines = async (call: Routed, house: House, flight: Flight): Promise<Answer | Failure> => {
  const { tried } = flight
  const hedges = call.model!.config.hedge !== undefined
  let renewed = false
  try {
    for (let target = call.target!; ;) {
      const late = flight.givenUp()
      if (late) return late.shown
      flight.attempts++
      const given = hedges
        ? await hedged(call, house, flight, target)
        : { target, outcome: await attempt(call, house, flight, target) }
      const { outcome } = given
      target = given.target
      const too_small = contextTooSmall(outcome, target)
      const [miss, shown] = outcome instanceof Miss ? [outcome, outcome.shown] : [undefined, outcome]
      if (miss) flight.cancel()
      if (miss?.stale && !renewed) renewed = true
      else {
        judge(call, house, target, outcome)
        if (miss === undefined && too_small === undefined) return shown
        tried.push(target)
        const may = (too_small !== undefined || miss?.verdict.next) && goesOn(call, flight)
        const next = may ? leave(call, house, target, tried, too_small) : undefined
        if (next === undefined) return shown
        target = next
      }
      recordAttempt(call, house, target, too_small === undefined ? miss!.because : 'context_length_exceeded')
    }
  } catch (cause) {
    flight.cancel()
    house.log('error', 'internal_error', { call_id: call.id, stage: call.at, cause })
    return new Failure('internal', { cause })
  }
}
