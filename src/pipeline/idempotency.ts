import { Failure } from '../base/failure.ts'
import type { AnswerHeaders } from './answer-headers.ts'
import { rateHeaders } from './rate-headers.ts'
import type { Call } from './call.ts'
import type { Body } from './body.ts'
import type { House } from './house.ts'
import { type Found, findOrClaim, Keeping, type KeptAnswer, type Shelf } from './idempotency-store.ts'
import { endCall } from './settle.ts'

/** The longest Idempotency-Key. */
const KEY_CHARACTERS_MAX = 255

/**
 * What a call with an `Idempotency-Key` comes to (draft-ietf-httpapi-idempotency-key-header): the answer that the same
 * API key got before for the same key, address and body, byte for byte; a refusal, if that call runs still (409), was
 * another request (422) or had an answer that was not kept (410); or undefined, and the call goes on as the first of its
 * name, its answer being kept in `call.keeping`. Only whole answers and an engine's own refusals are kept; a call that
 * fails, is limited or is cut gives its name back, so a repeat runs. A call without the header costs one look-up.
 */
export const replay = (call: Call, body: Body, house: House): Promise<Response | Failure | undefined> | undefined => {
  const key = call.headers.get('idempotency-key')
  return key === null || house.shelf === undefined ? undefined : replayed(call, body, house, key, house.shelf)
}

const replayed = async (
  call: Call,
  body: Body,
  house: House,
  key: string,
  shelf: Shelf,
): Promise<Response | Failure | undefined> => {
  if (key === '' || key.length > KEY_CHARACTERS_MAX)
    return new Failure('header_invalid', {
      says: `Idempotency-Key must have 1 to ${KEY_CHARACTERS_MAX} characters; it has ${key.length}.`,
      param: 'idempotency-key',
    })
  const name = hex(`${call.key!.id}\n${key}`)
  const fingerprint = hex(`${call.arrival.endpoint.path}\n${body.sha256.toHex()}`)
  let found: Found
  try {
    found = await findOrClaim(shelf, name, fingerprint, call.id)
  } catch (cause) {
    // The client relies on it that nothing runs twice, so without the store nothing runs.
    house.log('error', 'idempotency_not_readable', { call_id: call.id, cause })
    return new Failure('journal_full', { says: 'Idempotency-Key cannot be honoured now.', retry_after_s: 5, cause })
  }
  if (found === 'mine') {
    const { answer_bytes_max } = call.catalogue.config.idempotency
    call.keeping = new Keeping(shelf, name, { fingerprint, call_id: call.id }, answer_bytes_max)
    return undefined
  }
  return typeof found === 'string' ? refusal(found) : again(call, found, house)
}

const hex = (text: string): string => Bun.SHA256.hash(text, 'hex')

const refusal = (found: 'in_progress' | 'other_request' | 'not_kept'): Failure =>
  new Failure(
    ({ in_progress: 'conflict', other_request: 'idempotency_mismatch', not_kept: 'answer_not_kept' } as const)[found],
    {
      param: 'idempotency-key',
      ...(found === 'in_progress' && { retry_after_s: 1 }),
    },
  )

/** The first answer once more. The call ends here: it reached no engine, so it is in no ledger and costs nothing. */
const again = (call: Call, kept: KeptAnswer, house: House): Response => {
  const headers: AnswerHeaders = {
    ...kept.headers,
    'x-weir-call-id': kept.call_id,
    'x-weir-replayed': 'true',
    ...(call.rate && rateHeaders(call.rate)),
  }
  house.metrics.add(kept.status < 400 ? 'answers_2xx' : 'answers_4xx', 1)
  house.metrics.add('bytes_out', kept.body.length)
  endCall(call, house, { ending: 'whole', status: kept.status })
  return new Response(kept.body as BodyInit, { status: kept.status, headers })
}

/** Headers of an answer that a repeat gets too; the others are of their moment. */
const KEPT_HEADERS = [
  'content-type',
  'cache-control',
  'location',
  'x-accel-buffering',
  'x-weir-model',
  'x-weir-engine',
  'x-weir-cost-usd',
] as const

/**
 * Keeps an answer that is whole, before its ending is written down and its last byte leaves. So a process that is killed
 * in between leaves an answer that a repeat gets, and never a charge that a repeat adds to. `bytes` is what was not
 * added before; ask only where there is a `call.keeping`. The client may have left already: its repeat is what the key is for.
 */
export const keepAnswer = async (
  call: Call,
  house: House,
  status: number,
  headers: AnswerHeaders,
  bytes?: Uint8Array,
): Promise<void> => {
  const { keeping } = call
  if (keeping === undefined) return
  if (bytes !== undefined) keeping.add(bytes)
  const kept = KEPT_HEADERS.flatMap((name) => {
    const value = headers[name]
    return value === undefined ? [] : [[name, value] as const]
  })
  await keeping.complete(status, Object.fromEntries(kept))
  if (keeping.trouble !== undefined) house.log('error', 'answer_not_kept', { call_id: call.id, cause: keeping.trouble })
}

/** Statuses that may differ the next time: their answers are not kept. */
export const mayChange = (status: number): boolean => status >= 500 || [401, 403, 408, 409, 425, 429].includes(status)
