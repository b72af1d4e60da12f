import { Failure } from '../base/failure.ts'
import type { Usage } from './interim.ts'
import { answerHeaders, costUsd } from './answer-headers.ts'
import { sha256 } from './body.ts'
import type { Routed } from './call.ts'
import type { Flight } from './flight.ts'
import type { House } from './house.ts'
import { promptTokens } from './intent.ts'
import type { Refusal, WholeAnswer } from './outcome.ts'
import { renamed } from './rename.ts'

/** Sends a whole answer. In strict mode it waits until the ending is on disk. */
export const relayWhole = async (
  answer: WholeAnswer,
  call: Routed,
  house: House,
  flight: Flight,
): Promise<Response> => {
  const bytes = call.model!.config.rewrite_model ? renamed(answer.bytes, call.body.model) : answer.bytes
  const usage = answer.facts.usage ?? estimated(answer, call)
  const headers = answerHeaders(call, answer.content_type)
  const cost = costUsd(call, usage)
  if (cost !== undefined) headers.set('x-weir-cost-usd', cost)
  house.metrics.add('answers_2xx', 1)
  house.metrics.add('bytes_out', bytes.length)
  const position = flight.close({
    ending: call.client_gone ? 'cut_by_client' : 'whole',
    status: 200,
    finish_reason: answer.facts.finish_reason ?? '',
    usage,
    usage_source: answer.facts.usage === undefined ? 'estimated' : 'engine',
    response_sha256: sha256(bytes),
  })
  if (position !== undefined) await onDisk(position, call, house)
  return new Response(bytes as BodyInit, { headers })
}

/** Sends the engine's own error as the engine wrote it. */
export const relayRefusal = async (answer: Refusal, call: Routed, house: House, flight: Flight): Promise<Response> => {
  const shown = jsonError(answer)
  const headers = answerHeaders(call, 'application/json')
  if (answer.retry_after_s !== undefined) headers.set('retry-after', String(answer.retry_after_s))
  else if (answer.status === 429 || answer.status === 503) headers.set('retry-after', '2')
  house.metrics.add(answer.status >= 500 ? 'answers_5xx' : 'answers_4xx', 1)
  house.metrics.add('refused_by_engine', 1)
  flight.close({
    ending: call.client_gone ? 'cut_by_client' : 'refused',
    status: answer.status,
    failure: call.client_gone ? 'client_gone' : 'engine_refused',
    response_sha256: sha256(shown),
  })
  return new Response(shown as BodyInit, { status: answer.status, headers })
}

/** Waits for the disk; a disk that fails is told, and the answer, which was given, still goes out. */
export const onDisk = async (position: number, call: Routed, house: House): Promise<void> => {
  const failed = await house.journal.synced(position)
  if (failed instanceof Failure)
    house.log('error', 'ending_not_on_disk', { call_id: call.id, cause: failed.detail.cause })
}

/** Tokens of an answer whose engine did not say: a quarter of its text's bytes. */
const estimated = (answer: WholeAnswer, call: Routed): Usage => ({
  prompt_tokens: promptTokens(call),
  cached_tokens: 0,
  completion_tokens: Math.ceil(answer.facts.text_bytes / 4),
  reasoning_tokens: 0,
})

/** The engine's JSON untouched; anything else (a proxy's page) becomes the message of an OpenAI error. */
const jsonError = ({ bytes, content_type, status }: Refusal): Uint8Array => {
  if (content_type.includes('json') && bytes.length > 0) return bytes
  const text = Buffer.from(bytes.subarray(0, 1024)).toString('utf8').toWellFormed()
  const message = text.trim() === '' ? `The engine answered ${status}.` : text
  return Buffer.from(JSON.stringify({ error: { message, type: 'server_error', param: null, code: 'engine_failed' } }))
}
