import { ECHO_ENDPOINT, type Ending, type Intent, type Refusals } from '../journal/record.ts'
import { lastSeenMs, type OpenCall } from './open-call.ts'
import { charge, type PriceList, type Usage } from './pricing.ts'
import type { NewRefusal } from './refusal-tables.ts'
import type { CallRow, NewEntry } from './tables.ts'

/** Most tokens believed of one call; a larger figure is an engine's mistake and must not overflow a sum. */
const TOKENS_MAX = 1_000_000_000
/** Most pictures of one call. */
const IMAGES_MAX = 1_000_000
/** The last millisecond that a date can name. */
const TIME_MAX_MS = 8.64e15
/** Most money in one call, for the same reason. */
const CHARGE_MAX = BigInt(Number.MAX_SAFE_INTEGER)

/**
 * The intent and the ending that a call is posted by. Without an ending it is `recovered`: its usage is that of the last
 * progress record, or none if no token was delivered. Without an intent (a damaged journal) tenant and model are empty.
 */
export const endOf = (call: OpenCall): { intent: Intent; ending: Ending } => {
  const intent = call.intent ?? missingIntent(call)
  return { intent, ending: call.ending ?? recoveredEnding(call, intent) }
}

/** The ledger row of a call as posting knows it: no leaf, no salt, and the hashes of the bodies as they are. */
export const callRow = (intent: Intent, ending: Ending, prices: PriceList, series: string): CallRow => {
  const prompt_tokens = count(ending.prompt_tokens, TOKENS_MAX)
  const completion_tokens = count(ending.completion_tokens, TOKENS_MAX)
  const cached_tokens = count(ending.cached_tokens, prompt_tokens)
  const reasoning_tokens = count(ending.reasoning_tokens, completion_tokens)
  const audio_input_tokens = count(ending.audio_input_tokens, prompt_tokens - cached_tokens)
  const audio_output_tokens = count(ending.audio_output_tokens, completion_tokens - reasoning_tokens)
  const images = count(intent.images, IMAGES_MAX)
  const usage = {
    prompt_tokens,
    cached_tokens,
    completion_tokens,
    reasoning_tokens,
    audio_input_tokens,
    audio_output_tokens,
    images,
  }
  const priced = priceOf(intent, ending, usage, prices)
  return {
    id: intent.call_id,
    at_ms: count(intent.at_ms, TIME_MAX_MS),
    tenant: intent.tenant,
    key_id: intent.key_id,
    end_user: intent.end_user,
    model: ending.serves || intent.model,
    asked_model: intent.model,
    engine: ending.engine || intent.engine,
    engine_model: ending.engine_model || intent.engine_model,
    endpoint: intent.endpoint,
    stream: intent.stream,
    status: count(ending.status),
    finish_reason: ending.finish_reason,
    ending: ending.ending,
    failure: ending.failure,
    prompt_tokens,
    cached_tokens,
    completion_tokens,
    reasoning_tokens,
    audio_input_tokens,
    audio_output_tokens,
    images,
    usage_source: ending.usage_source,
    attempts: count(ending.attempts),
    hold_nanodollars: BigInt(count(intent.hold_nanodollars)),
    charge_nanodollars: priced.charge_nanodollars,
    price_version: priced.price_version,
    queue_ms: count(ending.queue_ms),
    engine_ms: count(ending.engine_ms),
    first_token_ms: count(ending.first_token_ms),
    total_ms: count(ending.total_ms),
    series,
    request_sha256: intent.request_sha256,
    response_sha256: ending.response_sha256,
    salt: null,
    log_index: null,
  }
}

/** The transfer that an intent makes: the hold leaves the tenant. None if nothing is held. */
export const entriesAtIntent = (intent: Intent): NewEntry[] => {
  const amount = BigInt(count(intent.hold_nanodollars))
  if (amount === 0n) return []
  return [entry(intent.call_id, intent.at_ms, 'hold', tenant(intent.tenant), held(intent.tenant), amount)]
}

/**
 * The transfers that an ending makes: the charge is captured from the hold, the rest of the hold released, and what the
 * hold did not cover captured from the tenant. They leave nothing of this call in the held account.
 */
export const entriesAtEnd = (row: CallRow, at_ms: number): NewEntry[] => {
  const owed = row.charge_nanodollars ?? 0n
  const covered = owed < row.hold_nanodollars ? owed : row.hold_nanodollars
  const rest = row.hold_nanodollars - covered
  const transfers: NewEntry[] = []
  if (covered > 0n) transfers.push(entry(row.id, at_ms, 'capture', held(row.tenant), REVENUE, covered))
  if (rest > 0n) transfers.push(entry(row.id, at_ms, 'release', held(row.tenant), tenant(row.tenant), rest))
  if (owed > covered) transfers.push(entry(row.id, at_ms, 'capture', tenant(row.tenant), REVENUE, owed - covered))
  return transfers
}

/** The transfer of a call whose hold was never an entry, as its intent and ending came together: its charge, if any. */
export const entriesAtOnce = (row: CallRow, at_ms: number): NewEntry[] => {
  const owed = row.charge_nanodollars ?? 0n
  return owed > 0n ? [entry(row.id, at_ms, 'capture', tenant(row.tenant), REVENUE, owed)] : []
}

/** Refused calls as the ledger has them. */
export const refusalRow = ({ at_ms, key_id, tenant: name, failure, count: times }: Refusals): NewRefusal => ({
  at_ms: count(at_ms, TIME_MAX_MS),
  key_id,
  tenant: name,
  failure,
  count: count(times),
})

/** The account of what a tenant may still spend; below zero if it was granted less than it spent. */
export const tenant = (name: string): string => `tenant:${name}`
/** The account of what a tenant's running calls hold. */
export const held = (name: string): string => `held:${name}`
/** The account of what was earned. */
export const REVENUE = 'revenue'
/** The account that grants come from; below zero by what was granted. */
export const GRANTS = 'grants'

const entry = (
  call_id: string,
  at_ms: number,
  kind: NewEntry['kind'],
  debit: string,
  credit: string,
  amount_nanodollars: bigint,
): NewEntry => ({ call_id, at_ms: count(at_ms, TIME_MAX_MS), kind, debit, credit, amount_nanodollars, reason: '' })

// What the gateway answered itself costs nothing, whatever model its body names. A call that got nothing is released whole, the price for a request included, unless its answer was whole and has no tokens.
const priceOf = (intent: Intent, ending: Ending, usage: Usage, prices: PriceList) => {
  if (intent.endpoint === ECHO_ENDPOINT) return { charge_nanodollars: 0n, price_version: 0 }
  const model = ending.serves || intent.model
  const version = model === intent.model ? intent.price_version : 0
  const price = prices.version(model, version) ?? prices.at(model, intent.at_ms)
  const nothing = usage.prompt_tokens + usage.completion_tokens === 0 && ending.ending !== 'whole'
  if (nothing) return { charge_nanodollars: 0n, price_version: price?.version ?? 0 }
  if (price === undefined) return { charge_nanodollars: null, price_version: 0 }
  const owed = charge(price, usage)
  return { charge_nanodollars: owed < CHARGE_MAX ? owed : CHARGE_MAX, price_version: price.version }
}

// Never throws and never yields what a column would refuse: one odd figure must not stop the books.
const count = (figure: number, max = Number.MAX_SAFE_INTEGER): number =>
  figure > 0 ? Math.min(Math.round(figure), max) : 0

const recoveredEnding = (call: OpenCall, intent: Intent): Ending => {
  const answering = answeringOf(call, intent)
  const progress = call.progress !== null && call.progress.completion_tokens > 0 ? call.progress : null
  return {
    kind: 'ending',
    call_id: call.call_id,
    at_ms: lastSeenMs(call),
    ending: 'recovered',
    status: 0,
    finish_reason: '',
    engine: answering.engine,
    engine_model: answering.engine_model,
    prompt_tokens: progress === null ? 0 : progress.prompt_tokens || intent.prompt_tokens_estimate,
    cached_tokens: 0,
    completion_tokens: progress?.completion_tokens ?? 0,
    reasoning_tokens: 0,
    usage_source: 'estimated',
    attempts: call.attempts.length + 1,
    queue_ms: 0,
    engine_ms: lastSeenMs(call) - intent.at_ms,
    first_token_ms: 0,
    total_ms: lastSeenMs(call) - intent.at_ms,
    response_sha256: new Uint8Array(0),
    failure: '',
    audio_input_tokens: 0,
    audio_output_tokens: 0,
    serves: answering.serves,
  }
}

/** The engine that gave what was delivered; the last one that was asked if nothing was, unless it had lost by then. */
const answeringOf = (call: OpenCall, intent: Intent): Pick<Ending, 'engine' | 'engine_model' | 'serves'> => {
  const last = call.attempts.at(-1) ?? intent
  const { progress } = call
  if (!progress?.engine) return last
  return progress.completion_tokens > 0 || progress.at_ms >= last.at_ms ? progress : last
}

const missingIntent = (call: OpenCall): Intent => ({
  kind: 'intent',
  call_id: call.call_id,
  at_ms: lastSeenMs(call),
  tenant: '',
  key_id: '',
  end_user: '',
  model: '',
  engine: call.attempts[0]?.engine ?? '',
  engine_model: call.attempts[0]?.engine_model ?? '',
  endpoint: '',
  stream: false,
  hold_nanodollars: 0,
  prompt_tokens_estimate: 0,
  price_version: 0,
  request_sha256: new Uint8Array(0),
  images: 0,
  serves: call.attempts[0]?.serves ?? '',
})
