import type { Model, Target } from '../balance/catalogue.ts'
import { beginAttempt } from '../balance/decision.ts'
import { Failure } from '../base/failure.ts'
import { promptSize } from '../engines/prompt-size.ts'
import type { Progress } from '../journal/record.ts'
import type { Call, Routed } from './call.ts'
import type { House } from './house.ts'
import { streams } from './upstream-request.ts'

/** Writes the call down before an engine hears of it. Answers why that is impossible, if it is. */
export const recordIntent = (call: Routed, house: House): Failure | undefined => {
  const open: Call = call
  const position = house.journal.append({
    kind: 'intent',
    call_id: call.id,
    at_ms: call.received_at_ms,
    tenant: call.tenant.name,
    key_id: call.key.id,
    end_user: call.body.end_user,
    model: call.model === undefined ? '' : call.body.model,
    engine: call.target?.engine.name ?? 'weir',
    engine_model: call.target?.model ?? '',
    endpoint: call.arrival.endpoint.path,
    stream: streams(call),
    hold_nanodollars: Number(call.held?.nanodollars ?? 0n),
    prompt_tokens_estimate: call.ask?.prompt_tokens ?? promptTokens(call),
    price_version: 0,
    request_sha256: call.body.sha256,
    serves: servedBy(call.target, call.model),
    images: call.images,
  })
  if (position instanceof Failure) return position
  open.intended = true
  const { target, decision } = call
  if (target) beginAttempt(decision, target.engine.name, target.model, house.tick() - call.started_tick_ms)
  return undefined
}

/** Writes down that another engine is asked. A full journal does not stop a running call: its ending has its room. */
export const recordAttempt = (call: Call, house: House, target: Target, because: string): void => {
  beginAttempt(call.decision, target.engine.name, target.model, house.tick() - call.started_tick_ms, because)
  const record = {
    kind: 'attempt',
    call_id: call.id,
    at_ms: house.now(),
    engine: target.engine.name,
    engine_model: target.model,
    because,
    serves: servedBy(target, call.model),
  } as const
  if (house.journal.append(record) instanceof Failure) house.log('error', 'attempt_not_recorded', { call_id: call.id })
}

/** The engine that a call is answered by, as the journal has it. */
export const answeredBy = ({ target, model }: Call): Pick<Progress, 'engine' | 'engine_model' | 'serves'> => ({
  engine: target?.engine.name ?? '',
  engine_model: target?.model ?? '',
  serves: servedBy(target, model),
})

/** The model that a target serves, as the journal has it: empty for the one that was asked for. */
export const servedBy = (target: Target | undefined, asked: Model | undefined): string =>
  target === undefined || target.serves === asked?.name ? '' : target.serves

/** Prompt tokens as far as they can be told from bytes: a quarter of the text's, and every id that was given. */
export const promptTokens = (call: Pick<Routed, 'body' | 'arrival'>): number => {
  const range = call.body.scan.values[call.arrival.endpoint.prompt_field]
  if (range === undefined) return 0
  const size = promptSize(call.body.bytes, range)
  return Math.ceil(size.text_bytes / 4) + size.token_ids
}
