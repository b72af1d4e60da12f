import { coolMs } from '../balance/health.ts'
import { Failure } from '../base/failure.ts'
import { formatRetryAfter } from '../engines/retry-after.ts'
import { type AnswerHeaders, answerHeaders, answerOf, costUsd } from './answer-headers.ts'
import { sha256 } from './body.ts'
import { countedWhole } from './counted-text.ts'
import type { Routed } from './call.ts'
import type { Tokens } from './estimate.ts'
import type { Flight } from './flight.ts'
import type { House } from './house.ts'
import { keepAnswer, mayChange } from './idempotency.ts'
import type { Refusal, WholeAnswer } from './outcome.ts'
import { renamed } from './rename.ts'

/** Sends a whole answer. In strict mode it waits until the ending is on disk, and fails if that cannot be. */
export const relayWhole = (
  answer: WholeAnswer,
  call: Routed,
  house: House,
  flight: Flight,
): Response | Promise<Response | Failure> => {
  const { usage } = answer.facts
  const send = (tokens: Tokens) => sendCounted(answer, tokens, call, house, flight)
  return usage ? send(usage) : countedWhole(answer, call, house).then(send)
}

const sendCounted = (
  answer: WholeAnswer,
  usage: Tokens,
  call: Routed,
  house: House,
  flight: Flight,
): Response | Promise<Response | Failure> => {
  const bytes = shownBytes(answer, call)
  const headers = answerHeaders(call, answer.content_type)
  const cost = costUsd(call, usage)
  if (cost !== undefined) headers['x-weir-cost-usd'] = cost
  house.metrics.add('answers_2xx', 1)
  house.metrics.add('bytes_out', bytes.length)
  const send = () => sendWhole({ answer, bytes, usage, headers }, call, house, flight)
  return call.keeping ? keepAnswer(call, house, 200, headers, bytes).then(send) : send()
}

type Sending = {
  readonly answer: WholeAnswer
  readonly bytes: Uint8Array
  readonly usage: Tokens
  readonly headers: AnswerHeaders
}

const sendWhole = (
  { answer, bytes, usage, headers }: Sending,
  call: Routed,
  house: House,
  flight: Flight,
): Response | Promise<Response | Failure> => {
  const position = flight.close({
    ending: call.client_gone ? 'cut_by_client' : 'whole',
    status: 200,
    failure: call.client_gone ? 'client_gone' : '',
    finish_reason: answer.facts.finishes[0]?.reason ?? '',
    usage,
    usage_source: answer.facts.usage === undefined ? 'estimated' : 'engine',
    response_sha256: sha256(bytes),
  })
  const response = answerOf(bytes as BodyInit, headers)
  const on_disk = position === undefined ? undefined : onDisk(position, call, house)
  return on_disk ? on_disk.then((failed) => failed ?? response) : response
}

/** Sends the engine's own error as the engine wrote it. */
export const relayRefusal = async (answer: Refusal, call: Routed, house: House, flight: Flight): Promise<Response> => {
  const shown = jsonError(answer)
  const headers = answerHeaders(call, 'application/json')
  const retry_after_s =
    answer.retry_after_s ?? (answer.status === 429 || answer.status === 503 ? benchS(call, house) : undefined)
  if (retry_after_s !== undefined) headers['retry-after'] = formatRetryAfter(retry_after_s)
  house.metrics.add(answer.status >= 500 ? 'answers_5xx' : 'answers_4xx', 1)
  house.metrics.add('refused_by_engine', 1)
  if (call.keeping && !mayChange(answer.status)) await keepAnswer(call, house, answer.status, headers, shown)
  flight.close({
    ending: call.client_gone ? 'cut_by_client' : 'refused',
    status: answer.status,
    failure: call.client_gone ? 'client_gone' : 'engine_refused',
    response_sha256: sha256(shown),
  })
  return answerOf(shown as BodyInit, headers, answer.status)
}

/** Seconds until the gateway would try the engine again: the advice where the engine gave none. */
const benchS = (call: Routed, house: House): number =>
  call.target === undefined ? 1 : coolMs(house.table, call.target.engine.subject, house.now()) / 1000

/** How long the end of an answer waits for a disk that fails, and how often it is tried. */
const DISK_MS = 3_000
const DISK_AGAIN_MS = 200

/**
 * Waits for the disk, undefined if there is no need to: in strict mode nobody is told of a whole answer before its ending survives the loss of power. A disk
 * that fails is tried again for a while; then the failure is answered, and the end of the answer must not go out.
 * The intent stands before the ending in the same journal and so is on the disk as well. The engine does not wait for it:
 * of what the power takes before that nobody was told, and it is on the disk within `ledger.sync_ms` in any case.
 */
export const onDisk = (position: number, call: Routed, house: House): Promise<Failure | undefined> | undefined => {
  const syncing = house.journal.synced(position)
  return syncing && untilSynced(syncing, position, call, house)
}

const untilSynced = async (
  first: Promise<Failure | undefined>,
  position: number,
  call: Routed,
  house: House,
): Promise<Failure | undefined> => {
  const until_ms = house.tick() + DISK_MS
  for (let syncing: Promise<Failure | undefined> | undefined = first; ; syncing = house.journal.synced(position)) {
    const failed = await syncing
    if (failed === undefined) return undefined
    if (house.tick() < until_ms && !call.client_gone) {
      await Bun.sleep(DISK_AGAIN_MS)
      continue
    }
    house.log('error', 'ending_not_on_disk', { call_id: call.id, cause: failed.detail.cause })
    return new Failure('journal_full', {
      says: 'The answer was made and is charged, but its record could not be brought to the disk.',
      cause: failed.detail.cause,
    })
  }
}

/** A whole answer as its client gets it: under the engine's name for the model or, if set so, the client's own. */
export const shownBytes = ({ bytes, facts }: WholeAnswer, call: Routed): Uint8Array =>
  call.model!.config.rewrite_model
    ? renamed(bytes, facts.model_start, facts.model_end, Buffer.from(JSON.stringify(call.body.model)))
    : bytes

/** The engine's JSON untouched; anything else (a proxy's page) becomes the message of an OpenAI error. */
export const jsonError = ({ bytes, content_type, status }: Refusal): Uint8Array => {
  if (content_type.includes('json') && bytes.length > 0) return bytes
  const text = Buffer.from(bytes.subarray(0, 1024)).toString('utf8').toWellFormed()
  const message = text.trim() === '' ? `The engine answered ${status}.` : text
  return Buffer.from(JSON.stringify({ error: { message, type: 'server_error', param: null, code: 'engine_failed' } }))
}
