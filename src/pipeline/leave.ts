import type { Target } from '../balance/catalogue.ts'
import { Failure } from '../base/failure.ts'
import { limits } from '../base/limits.ts'
import type { Call } from './call.ts'
import type { Flight } from './flight.ts'
import type { House } from './house.ts'
import { leavePlace } from './place.ts'
import { nextTarget } from './route.ts'

/** True while another engine may be asked: there is somebody to hear it, and neither time nor attempts have run out. */
export const goesOn = (call: Call, flight: Flight): boolean =>
  flight.tried.length < limits.attempts_max && call.open && !call.client_gone && flight.givenUp() === undefined

/** Gives the place at an engine back and takes one at another; undefined if there is none. See {@link nextTarget}. */
export const leave = (
  call: Call,
  house: House,
  target: Target,
  tried: readonly Target[],
  context_above?: number,
): Target | undefined => {
  leavePlace(call, house, target)
  const next = nextTarget(call, house, tried, context_above)
  if (next instanceof Failure) return undefined
  call.target = next
  return next
}
