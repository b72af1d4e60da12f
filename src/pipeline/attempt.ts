import type { Target } from '../balance/catalogue.ts'
import { type Verdict, verdictOf } from '../balance/verdict.ts'
import { Failure, type FailureCode } from '../base/failure.ts'
import { limits } from '../base/limits.ts'
import type { AnswerError } from '../engines/answer-error.ts'
import { readAnswer } from '../engines/openai-events.ts'
import { parseRetryAfter } from '../engines/retry-after.ts'
import { TransportFailure, type TransportFailureKind, type UpstreamResponse } from '../engines/transport.ts'
import type { Routed } from './call.ts'
import { errorJson, errorStatus } from './engine-error.ts'
import type { Leg } from './flight.ts'
import type { House } from './house.ts'
import { type Answer, Miss, type Refusal } from './outcome.ts'
import { Reading, type Rest } from './reading.ts'
import type { Splice } from './splice-stream.ts'
import { StreamSource } from './stream-source.ts'
import { asksContinuous, type Rewrite, streams, upstreamRequest } from './upstream-request.ts'

/** How long the body of an error may take: the status says enough to go on without it. */
const ERROR_BODY_MS = 2_000
const ERROR_BYTES_MAX = 1024 * 1024
const NO_BYTES = new Uint8Array(0)

/** What an engine is asked for instead of the whole answer, and what becomes of its events. */
export type Resume = Rewrite & { readonly splice: Splice }

/** Asks one engine. Answers what the client may get, or why this engine gave nothing. */
export const attempt = async (
  call: Routed,
  house: House,
  flight: Leg,
  target: Target,
  resume?: Resume,
): Promise<Answer | Miss> => {
  const request = upstreamRequest(call, target, resume)
  if (request instanceof Failure) return new Miss(AT_FAULT, request, request.code)
  const { timeouts } = call.model!
  const exchange = target.engine.transport.send(request, timeouts)
  flight.take(exchange)
  const started = house.tick()
  const head = await exchange.head
  flight.reached ||= !(head instanceof TransportFailure) || head.sent
  if (head instanceof TransportFailure) return missed(head, flight)
  const first_byte_ms = house.tick() - started
  const reading = new Reading(head, flight.vigil, house.tick, timeouts.between_tokens_ms)
  if (head.status < 200 || head.status >= 300) return refused(head, reading, house, flight)
  const encoding = head.header('content-encoding')
  if (encoding !== undefined && encoding !== '' && encoding.toLowerCase() !== 'identity')
    return invalid(`content-encoding ${encoding.slice(0, 32)}, which was not asked for`)
  const content_type = head.header('content-type') ?? 'application/json'
  if (streams(call) && content_type.toLowerCase().startsWith('text/event-stream')) {
    const source = new StreamSource({
      usage: call.body.wants_usage,
      hides_usage: asksContinuous(call, target) && !call.body.wants_continuous_usage,
      choices: call.body.n,
      alias: aliasOf(call),
      delivered: flight.delivered,
      splice: resume?.splice,
    })
    const miss = await firstEvent(source, reading, house, flight, timeouts.first_token_ms)
    return miss ?? { kind: 'stream', source, reading, first_byte_ms: house.tick() - started }
  }
  const reads = reading.all(limits.answer_bytes_max)
  const rest = reads instanceof Promise ? await reads : reads
  flight.half = reading.half
  return whole(content_type, rest, house, flight, first_byte_ms)
}

/** The model's name that the client is to see; undefined for the engine's own. */
export const aliasOf = (call: Routed): string | undefined =>
  call.model!.config.rewrite_model ? call.body.model : undefined

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

/** The engine's fault, and another engine's turn. */
const faulty = (code: FailureCode, cause: unknown, stale = false): Miss =>
  new Miss(ENGINE_FAULT, new Failure(code), code, { cause, stale })

const invalid = (cause: string): Miss => faulty('engine_invalid', cause)

/** What a failure of the transport means. A cancel of our own is a deadline, or the client's leaving. */
const missed = (failure: TransportFailure, flight: Leg): Miss => {
  const { kind } = failure
  if (kind === 'cancelled' && flight.overdue === 'silence') return faulty('engine_timeout', 'silence')
  // A deadline of the transport can be the last to pass of several: then the call's own word counts.
  const given_up = kind === 'cancelled' || kind.endsWith('_timeout') ? flight.givenUp() : undefined
  return given_up ?? faulty(CODES[kind], `${kind}: ${String(failure.cause ?? '')}`, kind === 'reset' && failure.reused)
}

/** An answer that is not a 2xx. */
const refused = async (head: UpstreamResponse, reading: Reading, house: House, flight: Leg): Promise<Answer | Miss> => {
  flight.vigil.awaitFirst(house.tick() + ERROR_BODY_MS)
  const body = await reading.all(ERROR_BYTES_MAX)
  flight.vigil.awaitFirst()
  const given_up = flight.givenUp()
  if (given_up) return given_up
  const verdict = verdictOf(head.status)
  const retry_after_s = parseRetryAfter(head.header('retry-after'), house.now)
  const shown: Refusal | Failure =
    verdict.shown === 'credential'
      ? new Failure('engine_credential')
      : head.status >= 400 && head.status <= 599
        ? {
            kind: 'refusal',
            status: head.status,
            bytes: body instanceof Uint8Array ? body : NO_BYTES,
            content_type: head.header('content-type') ?? '',
            retry_after_s,
          }
        : new Failure('engine_failed', { says: `The engine answered ${head.status}.` })
  if (!verdict.next && !(shown instanceof Failure)) {
    flight.cancel()
    return shown
  }
  return new Miss(verdict, shown, String(head.status), {
    retry_after_ms: retry_after_s === undefined ? undefined : retry_after_s * 1000,
    cause: `status ${head.status}`,
  })
}

/** A good answer that is no stream: it must be whole and JSON before anything of it goes out. */
const whole = (content_type: string, bytes: Rest, house: House, flight: Leg, first_byte_ms: number): Answer | Miss => {
  if (bytes instanceof TransportFailure) return missed(bytes, flight)
  if (bytes === 'too_large') return invalid(`more than ${limits.answer_bytes_max} bytes`)
  const facts = readAnswer(bytes)
  if (facts.malformed || facts.done) return invalid('the body is not a JSON object')
  if (facts.error !== undefined) return errorInAnswer(facts.error, bytes)
  flight.first_token_tick_ms = house.tick()
  return { kind: 'whole', bytes, content_type, facts, first_byte_ms }
}

/** An error that comes with a good status: it counts as the status that its own words stand for. */
const errorInAnswer = (error: AnswerError, bytes: Uint8Array | undefined): Miss => {
  const status = errorStatus(error)
  const verdict = verdictOf(status)
  const shown: Refusal | Failure =
    verdict.shown === 'credential'
      ? new Failure('engine_credential')
      : {
          kind: 'refusal',
          status,
          bytes: errorJson(bytes, error),
          content_type: 'application/json',
          retry_after_s: undefined,
        }
  return new Miss(verdict, shown, String(status), { cause: `an error inside a 200, counted as ${status}` })
}

/** Waits for the first event of a stream. Undefined if it is in hand and good; it stays in the source. */
const firstEvent = async (
  source: StreamSource,
  reading: Reading,
  house: House,
  flight: Leg,
  first_token_ms: number,
): Promise<Miss | undefined> => {
  flight.vigil.awaitFirst(house.tick() + first_token_ms)
  while (source.state === 'open' && !source.begun) {
    const piece = await reading.next()
    reading.arrived()
    source.take(piece)
  }
  flight.vigil.awaitFirst()
  if (!source.begun && source.state !== 'done') {
    if (source.error !== undefined) return errorInAnswer(source.error, source.error_bytes)
    const { failure } = source
    if (failure instanceof TransportFailure) return missed(failure, flight)
    if (failure !== undefined || source.malformed_events > 0) return invalid('an event stream that is none')
    return faulty('engine_cut', 'the stream ended without an event')
  }
  flight.first_token_tick_ms ||= house.tick()
  return undefined
}
