import type { Target } from '../../src/balance/catalogue.ts'
import type { NoTarget } from '../../src/balance/choose.ts'
import type { Failure } from '../../src/base/failure.ts'
import type { Call, Enriched } from '../../src/pipeline/call.ts'
import type { House } from '../../src/pipeline/house.ts'
import { leaveAll, takePlace } from '../../src/pipeline/place.ts'
import { waitForPlace } from '../../src/pipeline/waiting.ts'
import { arrival } from './unit-house.ts'

/** A model whose one engine takes so many calls. */
export const configOf = (capacity: number, size = 100) => ({
  engines: [{ name: 'e', url: 'http://127.0.0.1:9/v1', capacity }],
  models: [{ name: 'm1', targets: [{ engine: 'e' }], free: true, queue: { size, wait_ms: 60_000 } }],
})

export type WaitSettings = {
  readonly tenant?: string
  readonly priority?: string
  readonly tokens?: number
  readonly signal?: AbortSignal
}

/** A call that waits for a place; `leave` gives it back. */
export const waiting = ({ house }: { readonly house: House }, settings: WaitSettings = {}) => {
  const { tenant = 'acme', priority = 'normal', tokens = 10, signal } = settings
  const model = house.catalogue.models.get('m1')!
  const call = {
    arrival: arrival(signal && { signal }),
    headers: new Headers({ 'x-weir-priority': priority }),
    catalogue: house.catalogue,
    claims: [],
    deadline_tick_ms: 1e9,
    tenant: { name: tenant, config: { priority_max: 'high' } },
    key: {},
    ask: { key: 0, prompt_tokens: 10, answer_tokens: tokens, margin: 1.25 },
  } as unknown as Enriched
  let got: Target | Failure | undefined
  const tryPlace = (): Target | NoTarget => {
    const target = model.targets[0]!
    return takePlace(call as Call, house, target, 1) ? target : { why: 'full', wait_ms: 10 }
  }
  void waitForPlace(call, house, model, tryPlace).then((found) => (got = found))
  return { got: () => got, leave: () => leaveAll(call as Call, house) }
}
