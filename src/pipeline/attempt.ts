import type { Target } from '../balance/catalogue.ts'
import { HEALTH } from '../balance/health.ts'
import { type Verdict, verdictOf } from '../balance/verdict.ts'
import { Failure, type FailureCode } from '../base/failure.ts'
import { limits } from '../base/limits.ts'
import { wholeFacts } from './interim.ts'
import { retryAfterMs } from './interim.ts'
import { TransportFailure, type TransportFailureKind, type UpstreamResponse } from '../engines/transport.ts'
import type { Routed } from './call.ts'
import type { Flight } from './flight.ts'
import type { House } from './house.ts'
import { type Answer, Miss, type Refusal } from './outcome.ts'
import { StreamSource } from './stream-source.ts'
import { upstreamRequest } from './upstream-request.ts'

/** Asks one engine. Answers what the client may get, or why this engine gave nothing. */
export const attempt = async (call: Routed, house: House, flight: Flight, target: Target): Promise<Answer | Miss> => {
  const request = upstreamRequest(call, target)
  if (request instanceof Failure) return new Miss(AT_FAULT, request, request.code)
  const { timeouts } = call.model!
  const exchange = target.engine.transport.send(request, timeouts)
  flight.take(exchange)
  const started = house.tick()
  const head = await exchange.head
  if (head instanceof TransportFailure) return missed(head, flight)
  const first_byte_ms = house.tick() - started
  const watchedRead = reader(head, flight, house, timeouts.between_tokens_ms)
  if (head.status >= 300) return refused(head, watchedRead, house)
  if (call.body.stream && (head.header('content-type') ?? '').startsWith('text/event-stream')) {
    const source = new StreamSource(call, target, watchedRead, () => flight.cancel())
    const opened = await firstEvent(source, house, flight, timeouts.first_token_ms)
    return opened ?? { kind: 'stream', source, first_byte_ms }
  }
  return whole(head, watchedRead, house, flight, first_byte_ms)
}

/** Reads one piece of an answer; every piece restarts the clock of silence. */
export type Read = () => Promise<Uint8Array | null | TransportFailure>

const reader =
  (head: UpstreamResponse, flight: Flight, house: House, between_ms: number): Read =>
  async () => {
    flight.vigil.awaitByte(house.tick() + between_ms)
    const piece = await head.read()
    flight.vigil.awaitByte()
    return piece
  }

const AT_FAULT: Verdict = { next: false, health: 'none', shown: 'as_is' }
const ENGINE_FAULT: Verdict = { next: true, health: 'fail', shown: 'as_is' }

const CODES: Readonly<Record<TransportFailureKind, FailureCode>> = {
  connect: 'engine_unreachable',
  connect_timeout: 'engine_unreachable',
  first_byte_timeout: 'engine_timeout',
  reset: 'engine_failed',
  invalid: 'engine_invalid',
  cut: 'engine_cut',
  cancelled: 'engine_timeout',
}

/** What a failure of the transport means. A cancel of our own is a deadline, or the client's leaving. */
export const missed = (failure: TransportFailure, flight: Flight): Miss => {
  if (failure.kind !== 'cancelled') {
    const code = CODES[failure.kind]
    return new Miss(ENGINE_FAULT, new Failure(code), code, undefined, `${failure.kind}: ${String(failure.cause ?? '')}`)
  }
  if (flight.overdue === 'total') return new Miss(AT_FAULT, new Failure('deadline_passed'), 'deadline_passed')
  if (flight.overdue === 'silence')
    return new Miss(ENGINE_FAULT, new Failure('engine_timeout'), 'engine_timeout', undefined, 'silence')
  return new Miss(AT_FAULT, new Failure('client_gone'), 'client_gone')
}

const refused = async (head: UpstreamResponse, read: Read, house: House): Promise<Answer | Miss> => {
  const verdict = verdictOf(head.status)
  const bytes = await readAll(read)
  const retry_after_ms = retryAfterMs(head.header('retry-after'), house.now(), HEALTH.retry_after_ms_max)
  const shown: Refusal | Failure =
    verdict.shown === 'credential'
      ? new Failure('engine_credential')
      : bytes instanceof Uint8Array && head.status >= 400
        ? {
            kind: 'refusal',
            status: head.status,
            bytes,
            content_type: head.header('content-type') ?? '',
            retry_after_s: retry_after_ms === undefined ? undefined : Math.max(1, Math.ceil(retry_after_ms / 1000)),
          }
        : new Failure('engine_failed', { says: `The engine answered ${head.status}.` })
  if (!verdict.next && !(shown instanceof Failure)) return shown
  return new Miss(verdict, shown, String(head.status), retry_after_ms, `status ${head.status}`)
}

const whole = async (
  head: UpstreamResponse,
  read: Read,
  house: House,
  flight: Flight,
  first_byte_ms: number,
): Promise<Answer | Miss> => {
  const bytes = await readAll(read)
  if (bytes instanceof TransportFailure) return missed(bytes, flight)
  if (bytes === 'too_large')
    return new Miss(
      ENGINE_FAULT,
      new Failure('engine_invalid', { says: 'The engine’s answer is too large.' }),
      'engine_invalid',
    )
  const content_type = head.header('content-type') ?? 'application/json'
  const facts = wholeFacts(bytes)
  if (facts === undefined)
    return new Miss(ENGINE_FAULT, new Failure('engine_invalid'), 'engine_invalid', undefined, 'the body is not JSON')
  if (facts.error !== undefined) return errorInAnswer(facts.error, bytes)
  flight.first_token_tick_ms = house.tick()
  return { kind: 'whole', bytes, content_type, facts, first_byte_ms }
}

/** An error that comes with a good status: it has the status that its own code says, or is the engine's failure. */
export const errorInAnswer = (error: { readonly status: number | undefined }, bytes: Uint8Array): Miss => {
  const status = error.status ?? 502
  const shown: Refusal = { kind: 'refusal', status, bytes, content_type: 'application/json', retry_after_s: undefined }
  return new Miss(verdictOf(status), shown, `error in a 200: ${status}`, undefined, `error object, status ${status}`)
}

/** Waits for the first event. Undefined if it is in hand and good. */
const firstEvent = async (
  source: StreamSource,
  house: House,
  flight: Flight,
  first_token_ms: number,
): Promise<Miss | undefined> => {
  const first = await source.open(first_token_ms + house.tick(), flight.vigil)
  if (first instanceof TransportFailure) return missed(first, flight)
  if (first === 'empty')
    return new Miss(
      ENGINE_FAULT,
      new Failure('engine_cut'),
      'engine_cut',
      undefined,
      'the stream ended without an event',
    )
  if (first === 'invalid')
    return new Miss(ENGINE_FAULT, new Failure('engine_invalid'), 'engine_invalid', undefined, 'no event stream')
  if (first !== 'good') return errorInAnswer(first.error, first.bytes)
  flight.first_token_tick_ms = house.tick()
  return undefined
}

const readAll = async (read: Read): Promise<Uint8Array | TransportFailure | 'too_large'> => {
  const pieces: Uint8Array[] = []
  let size = 0
  for (;;) {
    const piece = await read()
    if (piece === null) return pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces, size)
    if (piece instanceof TransportFailure) return piece
    size += piece.length
    if (size > limits.answer_bytes_max) return 'too_large'
    pieces.push(piece)
  }
}
