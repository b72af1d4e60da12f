import { type Model, priceAt } from '../balance/catalogue.ts'
import { readInteger } from '../engines/json-value.ts'
import { Failure } from '../base/failure.ts'
import { usd } from '../base/money.ts'
import type { RateState } from '../quota/gcra.ts'
import type { LiveBudget } from '../quota/live-budget.ts'
import type { Call } from './call.ts'
import { worstNanodollars } from './charge.ts'
import { type Asked, answersMax } from './prompt-bound.ts'
import { rateHeaders } from './rate-headers.ts'

/**
 * Refusals of calls that are larger than a whole limit: no waiting makes them fit, so they are told to be at fault
 * (`field_invalid`, no Retry-After), what the limit is, and what would fit.
 */

/** What a call may use at most. */
export type Most = { readonly prompt: number; readonly tokens: number; readonly nanodollars: bigint }

type Known = Call & Asked & { readonly model: Model }

/** More tokens than a limit allows in a whole minute. */
export const overMinute = (call: Known, whose: string, { prompt, tokens }: Most, state: RateState): Failure => {
  const { how, param } = whatFits(call, (more) => state.limit - prompt - more)
  return new Failure('field_invalid', {
    says: `This call may use ${tokens} tokens, ${prompt} of them for its prompt, and the limit of this ${whose} is ${state.limit} tokens a minute: it never fits, however long it waits. ${how}`,
    param,
    headers: rateHeaders(call.rate, state),
  })
}

/** More money than a budget has in a whole window. */
export const overBudget = (call: Known, live: LiveBudget, limit: bigint, { prompt, nanodollars }: Most): Failure => {
  const request = worstNanodollars(priceAt(call.model, call.received_at_ms)!, 0, 0, 0)
  const { how, param } =
    request > limit
      ? { how: `No call of this model does: each costs ${usd(request)} USD beside its tokens.`, param: 'model' }
      : whatFits(call, (more) => tokensFor(call, prompt + more, limit))
  return new Failure('field_invalid', {
    says: `This call may cost ${usd(nanodollars)} USD, and the budget of ${live.whose} is ${usd(limit)} USD ${windowInWords(live)}: it never fits, however long it waits. ${how}`,
    param,
  })
}

/** `in all`, or how often and where a budget begins anew. */
export const windowInWords = ({ config: { per, timezone } }: LiveBudget): string =>
  per === 'total' ? 'in all' : `a ${per}, ${timezone}`

/** Completion tokens that a sum pays for beside the prompt; negative if it does not even pay for that. */
const tokensFor = ({ model, received_at_ms, images }: Known, prompt: number, limit: bigint): number => {
  const price = priceAt(model, received_at_ms)!
  const left = limit - worstNanodollars(price, prompt, 0, images)
  // What a thousand tokens cost in nanodollars, one costs in picodollars.
  const each = worstNanodollars(price, 0, 1_000, 0) - worstNanodollars(price, 0, 0, 0)
  return left < 0n || each === 0n ? -1 : Number((left * 1_000n) / each)
}

/** A member that the request does not have yet counts for its prompt, as all bytes do. */
const MEMBER_BYTES = '"max_tokens":1000000000000000,'.length

/** What makes a call fit, as a sentence, and the field to change. `room` is for its answers, beside so many more bytes. */
const whatFits = (asked: Asked, room: (more_bytes: number) => number): { how: string; param: string } => {
  const { body, arrival } = asked
  const answers = answersMax(asked)
  const bounds = BOUNDS.filter((name) => body.scan.values[name]?.type === 'number')
  // A number that bounds nothing, such as -1, has to become one that does.
  const bounded = body.tokens_max !== undefined
  const tokens = room(bounded ? 0 : MEMBER_BYTES)
  const each = answers === 0 ? 0 : Math.floor(tokens / answers)
  if (each >= 1) {
    const wrong = bounds.filter((name) => {
      const tokens_max = readInteger(body.bytes, body.scan.values[name]) ?? 0
      return tokens_max > each || (!bounded && tokens_max < 1)
    })
    const named = wrong.length === 0 ? ['max_tokens'] : wrong
    const of_each = answers === 1 ? '' : `, as each of its ${answers} answers may have so many`
    return { how: `Set ${named.join(' and ')} to ${each} at most${of_each}.`, param: named[0]! }
  }
  if (answers > 1 && tokens >= 1) {
    const param = Math.max(body.n, body.best_of) === 1 ? 'prompt' : body.best_of > body.n ? 'best_of' : 'n'
    return { how: `Its ${answers} answers may have ${tokens} tokens together: ask for fewer.`, param }
  }
  return { how: 'The prompt alone is too much: send less.', param: arrival.endpoint.prompt_field }
}

const BOUNDS = ['max_completion_tokens', 'max_tokens'] as const
