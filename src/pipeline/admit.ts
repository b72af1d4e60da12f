import { Failure } from '../base/failure.ts'
import { newCallId } from '../base/ids.ts'
import { WORKER } from '../table/layout.ts'
import { workerI32 } from '../table/table.ts'
import { bodyTooLarge } from './body-limit.ts'
import type { Admitted, Arrival, Call } from './call.ts'
import type { House } from './house.ts'

/** Lets a call in, or not: room in the house, a body that can fit, a journal that can record it. Starts its deadline. */
export const admit = (arrival: Arrival, house: House): Admitted | Failure => {
  const { catalogue, table } = house
  if (house.draining) return new Failure('draining', { retry_after_s: 1 })
  const headers = arrival.request.headers
  const length = headers.get('content-length')
  const limit = catalogue.config.server.body_bytes_max
  // "3, 3" and worse are the frame stage's; a number that is too large needs no reading.
  if (length !== null && Number(length) > limit) return bodyTooLarge(limit)
  if (!house.journal.has_room()) return new Failure('journal_full', { retry_after_s: 5 })
  const in_flight = workerI32(house.worker, WORKER.in_flight)
  if (Atomics.add(table.i32, in_flight, 1) >= catalogue.config.server.in_flight_max) {
    Atomics.sub(table.i32, in_flight, 1)
    return new Failure('overloaded', { retry_after_s: 1 })
  }
  const started_tick_ms = house.tick()
  const call: Call = {
    id: newCallId(),
    arrival,
    headers,
    catalogue,
    received_at_ms: house.now(),
    started_tick_ms,
    deadline_tick_ms: started_tick_ms + catalogue.config.timeouts.total_ms,
    at: 'admit',
    key: undefined,
    tenant: undefined,
    body: undefined,
    model: undefined,
    target: undefined,
    decision: undefined,
    ask: undefined,
    queue_ms: 0,
    claims: [],
    body_held_bytes: 0,
    keeping: undefined,
    rate: undefined,
    token_rate: undefined,
    images: 0,
    held: undefined,
    intended: false,
    open: true,
    client_gone: false,
  }
  return call as Admitted
}
