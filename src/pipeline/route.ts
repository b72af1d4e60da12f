import type { Target } from '../balance/catalogue.ts'
import { chooseTarget } from '../balance/choose.ts'
import { Failure } from '../base/failure.ts'
import { takeCounts } from '../table/counts.ts'
import { type Call, type Enriched, pass, type Routed } from './call.ts'
import type { House } from './house.ts'

/** Chooses the engine and takes a place at it. */
export const route = (call: Enriched, house: House): Routed | Failure => {
  const open: Call = call
  if (call.model === undefined) return pass<Routed>(call, 'route')
  const target = nextTarget(call, house, [])
  if (target instanceof Failure) return target
  open.target = target
  return pass<Routed>(call, 'route')
}

/** A target of the call's model that was not tried yet, with one place at its engine taken; `leaveTarget` gives it back. */
export const nextTarget = (call: Call, house: House, tried: readonly Target[]): Target | Failure => {
  const model = call.model!
  // Another worker can take the last place between the choice and the claim: choose again, each time among fewer.
  const full: Target[] = []
  for (;;) {
    const chosen = chooseTarget(model.targets, [...tried, ...full], house.table, house.now(), house.random)
    if ('why' in chosen)
      return new Failure('no_engine', {
        says: `No engine for the model ${JSON.stringify(model.name)} can take this call now (${chosen.why}).`,
        retry_after_s: Math.ceil(chosen.wait_ms / 1000),
      })
    const claim = { subject: chosen.engine.subject, limit: chosen.engine.config.capacity }
    if (takeCounts(house.table, house.worker, [claim]) < 0) {
      call.claims.push(claim)
      return chosen
    }
    full.push(chosen)
  }
}
