import type { Target } from '../../src/balance/catalogue.ts'
import type { NoTarget } from '../../src/balance/choose.ts'
import type { Call, Enriched } from '../../src/pipeline/call.ts'
import { leaveAll, takePlace } from '../../src/pipeline/place.ts'
import { waitForPlace } from '../../src/pipeline/waiting.ts'
import { arrival, type unitHouse } from './unit-house.ts'

/** A model whose one engine takes so many calls. */
export const configOf = (capacity: number) => ({
  engines: [{ name: 'e', url: 'http://127.0.0.1:9/v1', capacity }],
  models: [{ name: 'm1', targets: [{ engine: 'e' }], free: true, queue: { size: 100, wait_ms: 60_000 } }],
})

/** A call that waits for a place; `leave` gives it back. */
export const waiting = (unit: Awaited<ReturnType<typeof unitHouse>>) => {
  const { house } = unit
  const model = house.catalogue.models.get('m1')!
  const call = {
    arrival: arrival(),
    headers: new Headers(),
    catalogue: house.catalogue,
    claims: [],
    deadline_tick_ms: 1e9,
    tenant: { name: 'acme', config: {} },
    key: {},
    ask: { key: 0, prompt_tokens: 10, answer_tokens: 10, margin: 1.25 },
  } as unknown as Enriched
  let got: unknown
  const tryPlace = (): Target | NoTarget => {
    const target = model.targets[0]!
    return takePlace(call as Call, house, target, 1) ? target : { why: 'full', wait_ms: 10 }
  }
  void waitForPlace(call, house, model, tryPlace).then((found) => (got = found))
  return { got: () => got, leave: () => leaveAll(call as Call, house) }
}
