import type { Failure } from '../base/failure.ts'
import type { Catalogue, Model, Target, Tenant } from '../balance/catalogue.ts'
import type { Decision } from '../balance/decision.ts'
import type { Ask } from '../balance/field.ts'
import type { RateState } from '../quota/gcra.ts'
import type { Claim } from '../table/counts.ts'
import type { KeyRecord } from '../table/key-file.ts'
import type { Body } from './body.ts'
import type { Endpoint } from './endpoints.ts'
import type { Held } from './held.ts'
import type { AnswerKeeper } from './idempotency-store.ts'

/** What the HTTP layer hands in. */
export type Arrival = {
  readonly request: Request
  readonly endpoint: Endpoint
  /** Switches the server's idle timer off for this request. */
  readonly keepOpen: () => void
  /** The request was counted against its limits when it was accepted as a job. */
  readonly counted?: boolean
}

/**
 * A call on its way. One object from admit to its end; each stage fills in its part and hands it on under a narrower
 * type, which is the key to the next stage: a stage left out or two swapped do not compile.
 */
export type Call = {
  readonly id: string
  readonly arrival: Arrival
  readonly headers: Headers
  readonly catalogue: Catalogue
  /** Wall clock; the instant that decides the windows of budgets, here and in the ledger. */
  received_at_ms: number
  /** On the monotonic clock. */
  readonly started_tick_ms: number
  readonly deadline_tick_ms: number
  /** The last stage passed. */
  at: StageName
  key: KeyRecord | undefined
  tenant: Tenant | undefined
  body: Body | undefined
  model: Model | undefined
  target: Target | undefined
  /** How the engine was chosen, once there was a choice. */
  decision: Decision | undefined
  /** What the choice goes by. */
  ask: Ask | undefined
  /** Time in the model's queue. */
  queue_ms: number
  /** Counts to give back at the end. */
  claims: Claim[]
  /** Room taken for its body, to give back at the end. */
  body_held_bytes: number
  /** Where the answer of a call with an Idempotency-Key goes, for its repeats. */
  keeping: AnswerKeeper | undefined
  /** The tightest request limit, for the headers. */
  rate: RateState | undefined
  /** The tightest token limit, for the headers. */
  token_rate: RateState | undefined
  /** Pictures in its prompt, as far as they have a price. */
  images: number
  /** What it holds of budgets and token limits. */
  held: Held | undefined
  /** True once an intent is in the journal: an ending must follow. */
  intended: boolean
  /** True until the call is settled. */
  open: boolean
  client_gone: boolean
}

export type StageName = 'admit' | 'frame' | 'identify' | 'limit' | 'screen' | 'enrich' | 'route' | 'forward'

type At<Stage extends StageName, Known> = Call & { readonly at: Stage } & Known
type Who = { readonly key: KeyRecord; readonly tenant: Tenant }
type What = Who & { readonly body: Body; readonly model: Model | undefined }

export type Admitted = At<'admit', unknown>
export type Framed = At<'frame', unknown>
export type Identified = At<'identify', Who>
export type Limited = At<'limit', What>
export type Screened = At<'screen', What>
export type Enriched = At<'enrich', What>
/** `target` is absent only for an address that Weir answers itself. */
export type Routed = At<'route', What & { readonly target: Target | undefined }>

/** Hands a call on under the type of the next stage. The caller has filled in what that type says is known. */
export const pass = <Out extends Call>(call: Call, at: Out['at']): Out => {
  call.at = at
  return call as Out
}

/** A stage: takes what the stage before it made. It may answer at once or later. */
export type Stage<In, Out, House> = (call: In, house: House) => Out | Failure | Promise<Out | Failure>
