/**
 * What the journal says: of each call, and of the calls that were refused before. An *intent* is appended before an engine is called, one *attempt* for each further
 * engine, *progress* while a long answer runs, and an *ending* exactly once at its real end. The accountant folds them
 * into one row of the ledger. Strings are at most `limits.text_bytes_max` long; money is integer nanodollars.
 */

/** The address that the gateway answers itself: no engine, no model, no tokens, and so no charge. */
export const ECHO_ENDPOINT = '/data'

/** How a call ended. `recovered` is written only by the accountant, for an intent whose process died. */
export type EndingKind = 'whole' | 'cut_by_client' | 'cut_by_engine' | 'refused' | 'recovered'

/** Where token counts come from: the engine said so, or Weir counted. */
export type UsageSource = 'engine' | 'estimated'

export type Intent = {
  readonly kind: 'intent'
  readonly call_id: string
  readonly at_ms: number
  readonly tenant: string
  readonly key_id: string
  readonly end_user: string
  /** The name that the client asked for. */
  readonly model: string
  readonly engine: string
  /** The name that the engine was asked for. */
  readonly engine_model: string
  /** The address, e.g. `/v1/chat/completions`. */
  readonly endpoint: string
  readonly stream: boolean
  /** Worst-case cost that was taken before the call. */
  readonly hold_nanodollars: number
  /** Prompt tokens as the gateway estimates them; bills a call whose engine never said. */
  readonly prompt_tokens_estimate: number
  readonly price_version: number
  /** SHA-256 of the client's body, 32 bytes. */
  readonly request_sha256: Uint8Array
  /** The configured model that the engine serves: `model`, or a fallback of it. Empty, as in the others, says `model`. */
  readonly serves: string
  /** Pictures in the prompt, if the model or a fallback has a price for them; else 0. */
  readonly images: number
}

export type Attempt = {
  readonly kind: 'attempt'
  readonly call_id: string
  readonly at_ms: number
  readonly engine: string
  readonly engine_model: string
  /** Why the engine before it was left: a failure code. */
  readonly because: string
  readonly serves: string
}

/** What a stream has delivered. One without tokens says only which of two engines it is from. */
export type Progress = {
  readonly kind: 'progress'
  readonly call_id: string
  readonly at_ms: number
  readonly prompt_tokens: number
  readonly completion_tokens: number
  readonly usage_source: UsageSource
  /** The engine that gives the answer: where two were asked at once it need not be the last one. Empty in older records. */
  readonly engine: string
  readonly engine_model: string
  readonly serves: string
}

export type Ending = {
  readonly kind: 'ending'
  readonly call_id: string
  readonly at_ms: number
  readonly ending: EndingKind
  /** The status that the client got. */
  readonly status: number
  readonly finish_reason: string
  /** The engine that gave the answer, or the last one tried. */
  readonly engine: string
  readonly engine_model: string
  readonly prompt_tokens: number
  readonly cached_tokens: number
  readonly completion_tokens: number
  readonly reasoning_tokens: number
  readonly usage_source: UsageSource
  readonly attempts: number
  readonly queue_ms: number
  readonly engine_ms: number
  readonly first_token_ms: number
  readonly total_ms: number
  /**
   * SHA-256 of the body that the client was sent, 32 bytes. Of a stream: of every byte but the gateway's own pings
   * (`: ping` LF), so that it proves the answer whatever its timing was; take those lines out to compute it again.
   */
  readonly response_sha256: Uint8Array
  /** A failure code, or empty. */
  readonly failure: string
  /** Sound, of the prompt's tokens and of the completion's. */
  readonly audio_input_tokens: number
  readonly audio_output_tokens: number
  /** The configured model that gave the answer, or the last one tried: its price is charged. */
  readonly serves: string
}

/** How often one worker refused a key for one reason in one minute. Nothing else is written of a refused call. */
export type Refusals = {
  readonly kind: 'refusals'
  /** The minute's beginning. */
  readonly at_ms: number
  /** Empty for callers without a known key. */
  readonly key_id: string
  readonly tenant: string
  /** A failure code. */
  readonly failure: string
  readonly count: number
}

/** How a call came to its engine: what `/admin/calls/{id}/explain` tells. Written before the ending, for calls with anything to tell. */
export type DecisionRecord = {
  readonly kind: 'decision'
  readonly call_id: string
  readonly at_ms: number
  /** JSON of `balance/decision.ts`. */
  readonly text: string
}

/** A record of one call. */
export type CallRecord = Intent | Attempt | Progress | Ending

export type JournalRecord = CallRecord | DecisionRecord | Refusals

/** The call that a record speaks of; empty if it speaks of none. */
export const callIdOf = (record: JournalRecord): string => (record.kind === 'refusals' ? '' : record.call_id)
