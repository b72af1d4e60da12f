/** A target that was passed over. */
export type Skip = {
  readonly engine: string
  readonly why: 'tried' | 'context' | 'cooling' | 'full'
  /** Until it may be chosen; 0 if time does not help. */
  readonly wait_ms: number
}

/** One choice of a target. */
export type Pick = {
  readonly engine: string
  readonly model: string
  /** The strategy, or `trial` for the one call that tries an engine after its bench. */
  readonly why: string
  /** Candidates with their calls in flight and predicted cost. */
  readonly seen: readonly { readonly engine: string; readonly calls: number; readonly cost: number }[]
  readonly skips: readonly Skip[]
}

/** One request to an engine. Times are milliseconds since the call came in. */
export type Attempted = {
  readonly engine: string
  readonly model: string
  readonly started_ms: number
  /** 0 while it runs. */
  ended_ms: number
  /** `answered`, or why it gave no (whole) answer: a failure code, the engine's status, or how the call ended. Empty while it runs. */
  outcome: string
  /** As the engine or the gateway counted them; absent where nothing came, and `prompt_tokens` unless it answered. */
  prompt_tokens?: number
  completion_tokens?: number
}

/** How a call came to its engine, kept while it runs. */
export type Decision = {
  readonly model: string
  readonly picks: Pick[]
  readonly attempts: Attempted[]
  /** Waited for a place, and how many waited before it. */
  queue_ms: number
  queued_behind: number
  /** The retry budget of the model said no. */
  over_budget: boolean
  /** Fallbacks that were not asked, as the budgets do not have what they may cost. */
  readonly unpaid: string[]
  /** Fallbacks that were not asked, as limits of their own are used up. */
  readonly limited: string[]
}

export const DECISION_BYTES_MAX = 2_048

/** The outcome of an attempt whose answer is the call's. */
export const ANSWERED = 'answered'

/** An engine is asked. One that is asked again, has ended its attempt before with `because`. */
export const beginAttempt = (
  decision: Decision | undefined,
  engine: string,
  model: string,
  at_ms: number,
  because = '',
): void => {
  if (decision === undefined) return
  endAttempt(decision, engine, because, at_ms)
  decision.attempts.push({ engine, model, started_ms: at_ms, ended_ms: 0, outcome: '' })
}

/** An engine's attempt is over, if it was not before. */
export const endAttempt = (decision: Decision | undefined, engine: string, outcome: string, at_ms: number): void => {
  const running = decision?.attempts.find((attempt) => attempt.engine === engine && attempt.outcome === '')
  if (running === undefined) return
  running.outcome = outcome
  running.ended_ms = at_ms
}

/** So many tokens of the answer are there: what the attempts before did not give, the last one of the engine did. */
export const noteTokens = (
  decision: Decision | undefined,
  engine: string | undefined,
  completion_tokens: number,
  prompt_tokens?: number,
): void => {
  const last = decision?.attempts.findLast((attempt) => attempt.engine === engine)
  if (decision === undefined || last === undefined) return
  const before = decision.attempts.reduce((sum, one) => sum + (one === last ? 0 : (one.completion_tokens ?? 0)), 0)
  last.completion_tokens = Math.max(0, completion_tokens - before)
  if (prompt_tokens !== undefined) last.prompt_tokens = prompt_tokens
}

export const newDecision = (model: string): Decision => ({
  model,
  picks: [],
  attempts: [],
  queue_ms: 0,
  queued_behind: 0,
  over_budget: false,
  unpaid: [],
  limited: [],
})

/** True if there was anything to decide: more than one candidate, a refusal, a wait or a retry. */
export const worthKeeping = ({ picks, attempts, queue_ms, unpaid, limited }: Decision): boolean =>
  picks.length > 1 ||
  attempts.length > 1 ||
  attempts.some(({ outcome }) => outcome !== '' && outcome !== ANSWERED) ||
  queue_ms > 0 ||
  unpaid.length + limited.length > 0 ||
  picks.some(({ seen, skips }) => seen.length > 1 || skips.length > 0)

/** The decision as JSON text of at most {@link DECISION_BYTES_MAX}; what is too much is left out from the end of each pick. */
export const encodeDecision = (decision: Decision): string => {
  for (const told of [8, 4, 2, 0]) {
    const text = JSON.stringify({
      ...decision,
      picks: decision.picks.slice(0, 8).map((pick) => ({
        ...pick,
        seen: pick.seen.slice(0, told).map((one) => ({ ...one, cost: Number(one.cost.toPrecision(4)) })),
        skips: pick.skips.slice(0, told).map((skip) => ({ ...skip, wait_ms: Math.round(skip.wait_ms) })),
      })),
      unpaid: decision.unpaid.slice(0, 4),
      limited: decision.limited.slice(0, 4),
      attempts: decision.attempts.slice(0, 8).map((attempt) => ({
        ...attempt,
        started_ms: Math.round(attempt.started_ms),
        ended_ms: Math.round(attempt.ended_ms),
      })),
      queue_ms: Math.round(decision.queue_ms),
    })
    if (Buffer.byteLength(text) <= DECISION_BYTES_MAX) return text
  }
  return JSON.stringify({ ...newDecision(decision.model), cut: true })
}

/** The reverse of {@link encodeDecision}; undefined if the text is not one. */
export const decodeDecision = (text: string): Decision | undefined => {
  try {
    return JSON.parse(text) as Decision
  } catch {
    return undefined // Cut short by the journal: what is left says nothing.
  }
}

/** A decision in sentences, in the order of what happened. */
export const inWords = (decision: Decision): string[] => {
  const words: string[] = []
  if (decision.queue_ms > 0)
    words.push(
      `Every engine of ${decision.model} was full: the call waited ${decision.queue_ms} ms, behind ${decision.queued_behind} others.`,
    )
  const told = new Set<Attempted>()
  for (const pick of decision.picks) {
    words.push(pickInWords(pick))
    // Over a connection that had died, or for a replay, an engine is asked again without another choice.
    for (const attempt of decision.attempts) {
      if (attempt.engine !== pick.engine || told.has(attempt)) continue
      told.add(attempt)
      words.push(attemptInWords(attempt))
    }
  }
  for (const model of decision.unpaid ?? [])
    words.push(`${model} was not asked: the budgets do not have what its answer may cost.`)
  for (const model of decision.limited ?? []) words.push(`${model} was not asked: it has no room under its own limits.`)
  if (decision.over_budget) words.push('No further engine was tried: the retry budget of the model was used up.')
  return words
}

const attemptInWords = ({ engine, started_ms, ended_ms, outcome, completion_tokens }: Attempted): string => {
  const tokens = completion_tokens === undefined ? '' : `, ${completion_tokens} tokens`
  const what = outcome === ANSWERED ? 'answered' : completion_tokens ? 'broke off' : 'gave no answer'
  const why = outcome === ANSWERED ? '' : `: ${outcome}`
  return `${engine} was asked at ${started_ms} ms and ${what} at ${ended_ms} ms${tokens}${why}.`
}

const SKIPPED = {
  tried: () => 'had been tried',
  context: () => 'takes no prompt of this length',
  cooling: (wait_ms: number) => `was benched for another ${wait_ms} ms`,
  full: () => 'had no place left',
} as const

const WHY: Readonly<Record<string, string>> = {
  trial: 'its bench was over and this call is its trial',
  least_loaded: 'it had the lowest predicted cost of those compared',
  weighted: 'drawn by weight',
  lowest_latency: 'its first token comes soonest',
  cheapest: 'it costs least',
  prefix_affinity: 'it has the conversation, or hashing gave it a new one',
  session_affinity: 'it has the session, or hashing gave it a new one',
  tenant_affinity: 'hashing gives it the tenant',
}

const pickInWords = ({ engine, model, why, seen, skips }: Pick): string => {
  const others = seen.map((one) => `${one.engine} (${one.calls} in flight, cost ${one.cost})`).join(', ')
  const left_out = skips.map((skip) => `${skip.engine} ${SKIPPED[skip.why](skip.wait_ms)}`).join(', ')
  return (
    `${engine} was chosen as ${model} (${why}: ${WHY[why] ?? why})` +
    (seen.length > 1 ? ` among ${others}` : '') +
    (left_out === '' ? '.' : `; ${left_out}.`)
  )
}
