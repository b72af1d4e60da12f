import type { Target } from '../balance/catalogue.ts'
import { noteTokenTime } from '../balance/averages.ts'
import { endAttempt } from '../balance/decision.ts'
import { benchKindOf, markFailed, markGood, releaseProbe } from '../balance/health.ts'
import type { Call } from './call.ts'
import type { House } from './house.ts'
import { type Answer, Miss } from './outcome.ts'
import { promptDone } from './place.ts'

/** Tokens for which the time to the first one counts: else an answer of one token would look like a slow engine. */
const BEFORE_FIRST_TOKENS = 16

const SAYS_CREDENTIAL = 'set the key of this engine in the configuration, then send SIGHUP'

/** Writes what an attempt gave into the engine's record. What the client left, or was at fault itself, proves nothing. */
export const judge = (call: Call, house: House, target: Target, outcome: Answer | Miss): void => {
  const { subject, name } = target.engine
  if (!(outcome instanceof Miss)) {
    promptDone(call, house, target)
    if (outcome.kind === 'refusal') {
      endAttempt(call.decision, name, String(outcome.status), house.tick() - call.started_tick_ms)
      releaseProbe(house.table, subject)
    } else markGood(house.table, subject, outcome.kind === 'stream' ? outcome.first_byte_ms : undefined, house.now())
    if (outcome.kind === 'whole') {
      // The head of a whole answer comes with its end: what it took is so much for each token.
      const tokens = BEFORE_FIRST_TOKENS + (outcome.facts.usage?.completion_tokens ?? 0)
      noteTokenTime(house.table, subject, outcome.first_byte_ms / tokens, house.now())
    }
    return
  }
  endAttempt(call.decision, name, outcome.because, house.tick() - call.started_tick_ms)
  if (outcome.verdict.health === 'none') releaseProbe(house.table, subject)
  else markFailed(house.table, subject, house.now(), outcome.retry_after_ms, benchKindOf(outcome.because))
  if (!outcome.verdict.next) return
  house.log('warn', 'engine_failed', { call_id: call.id, engine: name, because: outcome.because, cause: outcome.cause })
  if (outcome.verdict.shown === 'credential')
    house.log('error', 'engine_refuses_our_credential', { engine: name, says: SAYS_CREDENTIAL })
}

/** Writes down that an engine broke off an answer that had begun. */
export const judgeBroken = (call: Call, house: House, because: string, cause: unknown): void => {
  const { engine } = call.target!
  endAttempt(call.decision, engine.name, because, house.tick() - call.started_tick_ms)
  markFailed(house.table, engine.subject, house.now())
  house.log('warn', 'engine_broke_off', { call_id: call.id, engine: engine.name, because, cause })
}
