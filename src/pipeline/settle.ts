import { priceAt } from '../balance/catalogue.ts'
import { ANSWERED } from '../balance/decision.ts'
import { Failure } from '../base/failure.ts'
import type { EndingKind, UsageSource } from '../journal/record.ts'
import { WORKER } from '../table/layout.ts'
import { workerI32 } from '../table/table.ts'
import type { Call } from './call.ts'
import { chargeNanodollars, servingModel } from './charge.ts'
import { estimated, type Tokens } from './estimate.ts'
import { settleHold } from './hold.ts'
import { recordDecision } from './explain.ts'
import type { House } from './house.ts'
import { servedBy } from './intent.ts'
import { leaveAll } from './place.ts'

/** How a call ended, as its last owner knows it; what is left out was not there. */
export type End = {
  readonly ending: EndingKind
  readonly status: number
  readonly failure?: string
  readonly finish_reason?: string
  readonly usage?: Tokens
  readonly usage_source?: UsageSource
  readonly attempts?: number
  readonly engine_ms?: number
  readonly first_token_ms?: number
  readonly response_sha256?: Uint8Array
}

const NO_HASH = new Uint8Array(32)
const NO_USAGE: Tokens = estimated(0, 0)

/**
 * Ends a call, exactly once: the ending goes to the journal if an intent did, and everything it held goes back. Answers
 * the journal position to wait for in strict mode, undefined if nothing was written.
 */
export const endCall = (call: Call, house: House, end: End): number | undefined => {
  if (!call.open) throw new Error(`call ${call.id} ended twice`)
  call.open = false
  const total_ms = house.tick() - call.started_tick_ms
  const position = call.intended ? appendEnding(call, house, end, total_ms) : undefined
  if (call.held)
    settleHold(
      call,
      house,
      chargeOf(call, end),
      end.usage ? end.usage.prompt_tokens + end.usage.completion_tokens : 0,
      servingModel(call)?.name,
    )
  call.keeping?.release()
  leaveAll(call, house)
  house.bodies.give(call)
  Atomics.sub(house.table.i32, workerI32(house.worker, WORKER.in_flight), 1)
  count(house, end, total_ms)
  return position
}

/** The ledger's rule: what got no tokens and is not whole costs nothing, not even the price of a request. */
const chargeOf = (call: Call, { ending, usage = NO_USAGE }: End): bigint => {
  const model = servingModel(call)
  const price = model && priceAt(model, call.received_at_ms)
  if (price === undefined || !call.intended) return 0n
  if (usage.prompt_tokens + usage.completion_tokens === 0 && ending !== 'whole') return 0n
  return chargeNanodollars(price, usage, call.images)
}

const appendEnding = (call: Call, house: House, end: End, total_ms: number): number | undefined => {
  const usage = end.usage ?? NO_USAGE
  recordDecision(call, house, end.ending === 'whole' ? ANSWERED : end.failure || end.ending, end.usage && usage)
  const position = house.journal.append({
    kind: 'ending',
    call_id: call.id,
    at_ms: house.now(),
    ending: end.ending,
    status: end.status,
    finish_reason: end.finish_reason ?? '',
    engine: call.target?.engine.name ?? 'weir',
    engine_model: call.target?.model ?? '',
    prompt_tokens: usage.prompt_tokens,
    cached_tokens: usage.cached_tokens,
    completion_tokens: usage.completion_tokens,
    reasoning_tokens: usage.reasoning_tokens,
    usage_source: end.usage_source ?? 'engine',
    attempts: end.attempts ?? 1,
    queue_ms: call.queue_ms,
    engine_ms: end.engine_ms ?? 0,
    first_token_ms: end.first_token_ms ?? 0,
    total_ms,
    response_sha256: end.response_sha256 ?? NO_HASH,
    failure: end.failure ?? '',
    audio_input_tokens: usage.audio_input_tokens,
    audio_output_tokens: usage.audio_output_tokens,
    serves: servedBy(call.target, call.model),
  })
  if (!(position instanceof Failure)) return position
  // Room for endings is reserved before a call begins; without it the accountant settles the intent as recovered.
  house.log('error', 'ending_not_recorded', { call_id: call.id })
  return undefined
}

const count = (house: House, end: End, total_ms: number): void => {
  const { metrics } = house
  metrics.add('requests', 1)
  metrics.observe('total_ms', total_ms)
  if (end.first_token_ms) metrics.observe('first_token_ms', end.first_token_ms)
  if (end.engine_ms) {
    metrics.observe('engine_ms', end.engine_ms)
    metrics.observe('overhead_ms', Math.max(0, total_ms - end.engine_ms))
  }
  if (end.ending === 'whole') metrics.add('whole', 1)
  else if (end.ending === 'cut_by_client') metrics.add('cut_by_client', 1)
  else if (end.ending === 'cut_by_engine') metrics.add('cut_by_engine', 1)
  if (end.usage) {
    metrics.add('prompt_tokens', end.usage.prompt_tokens)
    metrics.add('cached_tokens', end.usage.cached_tokens)
    metrics.add('completion_tokens', end.usage.completion_tokens)
  }
  if (end.usage_source === 'estimated') metrics.add('estimated_calls', 1)
  if ((end.attempts ?? 1) > 1) metrics.add('retries', (end.attempts ?? 1) - 1)
}
