import { Failure } from '../base/failure.ts'
import { admit } from './admit.ts'
import type { Arrival, Call, Screened } from './call.ts'
import { enrich } from './enrich.ts'
import { forward } from './forward.ts'
import { frame } from './frame.ts'
import type { House } from './house.ts'
import { identify } from './identify.ts'
import { limit } from './limit.ts'
import { noteRefusal } from './note-refusal.ts'
import { route } from './route.ts'
import { screen } from './screen.ts'
import { endCall } from './settle.ts'

/** Runs one call; never rejects. */
export type Serve = (arrival: Arrival, house: House) => Promise<Response>

/** Makes a response of a failure; the HTTP layer's. */
export type Refuse = (failure: Failure, call_id?: string) => Response

/** Takes a call whose client does not wait for the answer; undefined if it waits. */
export type Accept = (call: Screened, house: House) => Promise<Response | Failure> | undefined

/** The way of a call, read from top to bottom. A stage left out or two swapped do not compile. */
export const hotPath =
  (refuse: Refuse, accept?: Accept): Serve =>
  async (arrival, house) => {
    const admitted = admit(arrival, house)
    if (admitted instanceof Failure) return refused(admitted, undefined, house, refuse)
    try {
      const framed = frame(admitted, house)
      if (framed instanceof Failure) return refused(framed, admitted, house, refuse)
      const identified = identify(framed, house)
      if (identified instanceof Failure) return refused(identified, admitted, house, refuse)
      const limited = await limit(identified, house)
      if (limited instanceof Failure) return refused(limited, admitted, house, refuse)
      if (limited instanceof Response) return limited
      const screened = screen(limited, house)
      if (screened instanceof Failure) return refused(screened, admitted, house, refuse)
      const accepting = accept?.(screened, house)
      if (accepting !== undefined) {
        const accepted = await accepting
        return accepted instanceof Failure ? refused(accepted, admitted, house, refuse) : accepted
      }
      const enriched = enrich(screened, house)
      if (enriched instanceof Failure) return refused(enriched, admitted, house, refuse)
      const routed = await route(enriched, house)
      if (routed instanceof Failure) return refused(routed, admitted, house, refuse)
      const answer = await forward(routed, house)
      return answer instanceof Failure ? refused(answer, admitted, house, refuse) : answer
    } catch (cause) {
      return refused(new Failure('internal', { cause }), admitted, house, refuse)
    }
  }

/** The one exit of a call that gets no answer: it is settled, counted, logged if it is a bug, and rendered. */
const refused = (failure: Failure, call: Call | undefined, house: House, refuse: Refuse): Response => {
  noteRefusal(failure, call, house)
  house.metrics.failed(failure.code)
  house.metrics.add(failure.status >= 500 ? 'answers_5xx' : 'answers_4xx', 1)
  if (failure.code === 'internal')
    house.log('error', 'internal_error', { call_id: call?.id, stage: call?.at, cause: failure.detail.cause })
  if (call?.open) endCall(call, house, { ending: 'refused', status: failure.status, failure: failure.code })
  return refuse(failure, call?.id)
}
