import { encodeDecision, worthKeeping } from '../balance/decision.ts'
import { Failure } from '../base/failure.ts'
import type { Call } from './call.ts'
import type { House } from './house.ts'

/** Writes down how the call came to its engine, if there was anything to decide. An explanation is no reason to fail a call. */
export const recordDecision = (call: Call, house: House): void => {
  const { decision } = call
  if (decision === undefined || !worthKeeping(decision)) return
  const record = { kind: 'decision', call_id: call.id, at_ms: house.now(), text: encodeDecision(decision) } as const
  if (house.journal.append(record) instanceof Failure) house.log('warn', 'decision_not_recorded', { call_id: call.id })
}
