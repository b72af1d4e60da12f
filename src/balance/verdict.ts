/**
 * What an engine's answer means for the call and for the engine: the one table of CASES C24. `next`: may another engine
 * answer instead. `health`: what the engine's record gets. `shown`: what the client gets when nobody answers.
 */
export type Verdict = {
  readonly next: boolean
  readonly health: 'good' | 'fail' | 'none'
  /** `as_is`: the engine's status and body. `credential`: our key is wrong, which is none of the client's business. */
  readonly shown: 'as_is' | 'credential'
}

const good: Verdict = { next: false, health: 'good', shown: 'as_is' }
const fault_of_request: Verdict = { next: false, health: 'none', shown: 'as_is' }
const fault_of_engine: Verdict = { next: true, health: 'fail', shown: 'as_is' }

const BY_STATUS: Readonly<Record<number, Verdict>> = {
  401: { next: true, health: 'fail', shown: 'credential' },
  403: { next: true, health: 'fail', shown: 'credential' },
  404: { next: true, health: 'none', shown: 'as_is' },
  408: { next: true, health: 'none', shown: 'as_is' },
  429: fault_of_engine,
}

/** The verdict on a status. Redirects are not followed and count as a fault of the engine. */
export const verdictOf = (status: number): Verdict =>
  BY_STATUS[status] ?? (status < 300 ? good : status < 400 || status >= 500 ? fault_of_engine : fault_of_request)
