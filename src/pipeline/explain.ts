import { decodeDecision, encodeDecision, endAttempt, noteTokens, worthKeeping } from '../balance/decision.ts'
import { errorBody, Failure } from '../base/failure.ts'
import { keepRefused } from '../table/refused-ring.ts'
import type { Call } from './call.ts'
import type { Tokens } from './estimate.ts'
import type { House } from './house.ts'

/**
 * Writes down how the call came to its engine and what each attempt gave, if there was anything to decide; `outcome` is
 * that of the last one. An explanation is no reason to fail a call, and takes no room that endings are to have.
 */
export const recordDecision = (call: Call, house: House, outcome: string, usage: Tokens | undefined): void => {
  const { decision, target } = call
  if (decision === undefined) return
  if (target !== undefined) endAttempt(decision, target.engine.name, outcome, house.tick() - call.started_tick_ms)
  if (!worthKeeping(decision) || !house.journal.has_room()) return
  if (usage !== undefined) noteTokens(decision, target?.engine.name, usage.completion_tokens, usage.prompt_tokens)
  const record = { kind: 'decision', call_id: call.id, at_ms: house.now(), text: encodeDecision(decision) } as const
  if (house.journal.append(record) instanceof Failure) house.log('warn', 'decision_not_recorded', { call_id: call.id })
}

const SAYS_CHARACTERS_MAX = 512

/** Remembers for a while why a call of a known key was refused before any engine heard of it: it has no row. */
export const rememberRefusal = (failure: Failure, call: Call, house: House): void => {
  if (call.key === undefined || call.intended) return
  const refused = {
    id: call.id,
    at_ms: Math.floor(house.now()),
    tenant: call.key.tenant,
    key: call.key.id,
    model: call.body?.model.slice(0, 256) ?? '',
    passed: call.at,
    status: failure.status,
    code: failure.code,
    says: errorBody(failure).error.message.slice(0, SAYS_CHARACTERS_MAX),
  }
  const decision = call.decision && decodeDecision(encodeDecision(call.decision))
  if (!keepRefused(house.table, JSON.stringify({ ...refused, decision: decision ?? null })))
    keepRefused(house.table, JSON.stringify({ ...refused, decision: null }))
}
