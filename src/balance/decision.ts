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

/** An attempt that failed. */
export type Missed = { readonly engine: string; readonly because: string; readonly after_ms: number }

/** How a call came to its engine, kept while it runs. */
export type Decision = {
  readonly model: string
  readonly picks: Pick[]
  readonly misses: Missed[]
  /** Waited for a place, and how many waited before it. */
  queue_ms: number
  queued_behind: number
  /** The retry budget of the model said no. */
  over_budget: boolean
  /** Fallbacks that were not asked, as the budgets do not have what they may cost. */
  readonly unpaid: string[]
}

export const DECISION_BYTES_MAX = 2_048

export const newDecision = (model: string): Decision => ({
  model,
  picks: [],
  misses: [],
  queue_ms: 0,
  queued_behind: 0,
  over_budget: false,
  unpaid: [],
})

/** True if there was anything to decide: more than one candidate, a refusal, a wait or a retry. */
export const worthKeeping = ({ picks, misses, queue_ms, unpaid }: Decision): boolean =>
  picks.length > 1 ||
  misses.length > 0 ||
  queue_ms > 0 ||
  unpaid.length > 0 ||
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
      misses: decision.misses.slice(0, 8).map((miss) => ({ ...miss, after_ms: Math.round(miss.after_ms) })),
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
  decision.picks.forEach((pick, nth) => {
    words.push(pickInWords(pick))
    const miss = decision.misses[nth]
    if (miss) words.push(`${miss.engine} gave no answer after ${miss.after_ms} ms: ${miss.because}.`)
  })
  for (const model of decision.unpaid ?? [])
    words.push(`${model} was not asked: the budgets do not have what its answer may cost.`)
  if (decision.over_budget) words.push('No further engine was tried: the retry budget of the model was used up.')
  return words
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
