import type { Target } from '../balance/catalogue.ts'
import { noteTokens } from '../balance/decision.ts'
import { limits } from '../base/limits.ts'
import { aliasOf, attempt } from './attempt.ts'
import type { Routed } from './call.ts'
import { judge } from './engine-record.ts'
import type { Flight } from './flight.ts'
import type { House } from './house.ts'
import { recordAttempt } from './intent.ts'
import { goesOn, leave } from './leave.ts'
import { type Answer, Miss, type StreamAnswer } from './outcome.ts'
import { type Plan, planOf } from './resume.ts'
import { Splice, type Way } from './splice-stream.ts'
import { shownUsage, type Standing } from './spliced-usage.ts'

/** The rest of a broken answer, from another engine. */
export type Rest = { readonly way: Way; readonly answer: StreamAnswer }

/**
 * Has another engine go on with a stream that its engine broke off: with the text so far as its start where the engine
 * can, and by a replay where it cannot or refuses. Undefined if none does; no refusal of theirs is anybody's answer.
 * `standing` is what the client has. The place at the engine that is left is given back.
 */
export const takeOver = async (
  call: Routed,
  house: House,
  flight: Flight,
  standing: Standing,
  because: string,
): Promise<Rest | undefined> => {
  const { delivered } = flight
  noteTokens(call.decision, call.target?.engine.name, standing.tokens.completion_tokens)
  const plan = delivered && planOf(call, delivered, standing.tokens.completion_tokens)
  flight.cancel()
  if (plan === undefined) return undefined
  const over = { call, house, flight, standing, plan }
  let why = `${because}, ${standing.tokens.completion_tokens} tokens delivered`
  for (;;) {
    flight.tried.push(call.target!)
    const target = mayAsk(over) ? choose(over) : undefined
    if (target === undefined) return undefined
    recordAttempt(call, house, target, why)
    const { way, outcome } = await askInTurn(over, target)
    judge(call, house, target, outcome)
    if (!(outcome instanceof Miss) && outcome.kind === 'stream') {
      house.log('warn', 'stream_goes_on', { call_id: call.id, engine: target.engine.name, way })
      return { way, answer: outcome }
    }
    flight.cancel()
    why = outcome instanceof Miss ? outcome.because : 'no_stream'
  }
}

type Over = {
  readonly call: Routed
  readonly house: House
  readonly flight: Flight
  readonly standing: Standing
  readonly plan: Plan
}

/** Asks an engine for the rest, and for a replay if it refuses that; once more over a fresh connection if one was stale. */
const askInTurn = async (over: Over, target: Target): Promise<{ way: Way; outcome: Answer | Miss }> => {
  let way: Way = over.plan.prefix !== undefined && canPrefix(target) ? 'prefix' : 'replay'
  let outcome = await ask(over, target, way)
  if (outcome instanceof Miss && outcome.stale && mayAsk(over)) {
    recordAttempt(over.call, over.house, target, outcome.because)
    outcome = await ask(over, target, way)
  }
  if (way === 'prefix' && refuses(outcome) && mayAsk(over)) {
    over.flight.cancel()
    way = 'replay'
    recordAttempt(over.call, over.house, target, 'prefix_refused')
    outcome = await ask(over, target, way)
  }
  return { way, outcome }
}

const ask = ({ call, house, flight, standing, plan }: Over, target: Target, way: Way): Promise<Answer | Miss> => {
  flight.attempts++
  const usage = way === 'prefix' ? shownUsage(standing) : undefined
  const splice = new Splice(flight.delivered!, way, aliasOf(call), usage)
  const rewrite =
    way === 'prefix'
      ? { edits: plan.prefix!, had_tokens: standing.tokens.completion_tokens }
      : { edits: [], had_tokens: 0 }
  return attempt(call, house, flight, target, { ...rewrite, splice })
}

/** An engine that can take the text so far if there is one, else any. */
const choose = ({ call, house, flight, plan }: Over): Target | undefined => {
  const { targets } = call.model!
  const unable = plan.prefix === undefined ? [] : targets.filter((target) => !canPrefix(target))
  const some_can = targets.some((target) => !unable.includes(target) && !flight.tried.includes(target))
  const able =
    unable.length > 0 && some_can ? leave(call, house, call.target!, [...flight.tried, ...unable]) : undefined
  return able ?? leave(call, house, call.target!, flight.tried)
}

const canPrefix = ({ engine }: Target): boolean => engine.config.can.includes('prefix_continuation')

/** True if the engine, being well, said no to what it was asked. */
const refuses = (outcome: Answer | Miss): boolean =>
  outcome instanceof Miss ? !outcome.verdict.next && outcome.verdict.health === 'none' : outcome.kind === 'refusal'

const mayAsk = ({ call, flight }: Over): boolean => flight.attempts < limits.attempts_max && goesOn(call, flight)
