import { errorBody, Failure } from '../base/failure.ts'
import type { Usage } from './interim.ts'
import type { EndingKind } from '../journal/record.ts'
import { WORKER } from '../table/layout.ts'
import { workerI32 } from '../table/table.ts'
import { streamHeaders } from './answer-headers.ts'
import type { Routed } from './call.ts'
import type { Flight } from './flight.ts'
import type { House } from './house.ts'
import { promptTokens } from './intent.ts'
import type { Answer, StreamAnswer } from './outcome.ts'
import { onDisk } from './relay-whole.ts'
import type { StreamSource } from './stream-source.ts'

/** A comment with one newline: no client takes it for an event, not even one that has seen an `id:`. */
const PING = Buffer.from(': ping\n')
const DONE = Buffer.from('data: [DONE]\n\n')
/** After the last finish reason: how long usage and `[DONE]` may still take. */
const AFTER_FINISH_MS = 3_000
/** A long stream is written down so often, so that a crash bills what was delivered. */
const PROGRESS_MS = 2_000

/** Relays an event stream: pulled as fast as the client reads, never faster. The answer may still be on its way. */
export const relayStream = (
  call: Routed,
  house: House,
  flight: Flight,
  answer: StreamAnswer | Promise<Answer | Failure>,
): Response => {
  const relay = new Relay(call, house, flight, answer)
  call.arrival.keepOpen()
  house.metrics.add('answers_2xx', 1)
  house.metrics.add('streams', 1)
  Atomics.add(house.table.i32, workerI32(house.worker, WORKER.open_streams), 1)
  const stream = new ReadableStream<Uint8Array>(
    {
      start: (controller) => relay.start(controller),
      pull: () => relay.pull(),
      cancel: () => flight.clientLeft(),
    },
    { highWaterMark: 0 },
  )
  return new Response(stream as unknown as BodyInit, { headers: streamHeaders(call) })
}

class Relay {
  readonly #call: Routed
  readonly #house: House
  readonly #flight: Flight
  readonly #hash = new Bun.CryptoHasher('sha256')
  #answer: Promise<Answer | Failure> | undefined
  #source: StreamSource | undefined
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined
  #progress_tick_ms: number
  #ended = false
  #bytes = 0

  constructor(call: Routed, house: House, flight: Flight, answer: StreamAnswer | Promise<Answer | Failure>) {
    this.#call = call
    this.#house = house
    this.#flight = flight
    if (answer instanceof Promise) this.#answer = answer
    else this.#source = answer.source
    this.#progress_tick_ms = house.tick()
    flight.onPing = () => this.#ping()
    flight.onGone = () => void this.#finish('cut_by_client')
  }

  start(controller: ReadableStreamDefaultController<Uint8Array>): void {
    this.#controller = controller
    // A late answer's status goes out with the first byte, so there must be one.
    if (this.#answer !== undefined) this.#ping()
    else this.#awaitPing()
  }

  /** Delivers at least one piece, or ends the stream. */
  async pull(): Promise<void> {
    if (this.#answer !== undefined) await this.#arrive(this.#answer)
    while (!this.#ended) {
      const source = this.#source!
      const events = await source.next()
      if (this.#ended) return
      for (const event of events) this.#send(event)
      if (source.state !== 'open') return this.#conclude(source)
      if (source.finished) this.#flight.vigil.awaitFirst(this.#finishDue())
      if (events.length > 0) return this.#note(source)
    }
  }

  #finish_due = 0
  #finishDue(): number {
    this.#finish_due ||= this.#house.tick() + AFTER_FINISH_MS
    return this.#finish_due
  }

  /** The answer that the client was kept waiting for. */
  async #arrive(late: Promise<Answer | Failure>): Promise<void> {
    const answer = await late
    this.#answer = undefined
    if (this.#ended) return
    if (!(answer instanceof Failure) && answer.kind === 'stream') {
      this.#source = answer.source
      return
    }
    if (answer instanceof Failure) return this.#fail(answer)
    // A status was promised already, so an error or a plain body can only be an event.
    this.#send(
      Buffer.concat([
        Buffer.from('data: '),
        Buffer.from(JSON.stringify(JSON.parse(Buffer.from(answer.bytes).toString('utf8')))),
        Buffer.from('\n\n'),
      ]),
    )
    if (answer.kind === 'refusal') return this.#finish('refused', 'engine_refused')
    return this.#finish('whole')
  }

  /** The engine's stream is over: whole, or not, and the client is told which. */
  async #conclude(source: StreamSource): Promise<void> {
    const whole = source.state === 'done' || source.finished
    if (whole) return this.#finish('whole')
    if (source.state === 'error') {
      this.#send(Buffer.concat([Buffer.from('data: '), source.error!.bytes, Buffer.from('\n\n')]))
      return this.#finish('cut_by_engine', 'engine_failed')
    }
    const { overdue } = this.#flight
    return this.#fail(
      new Failure(overdue === 'total' ? 'deadline_passed' : overdue === 'silence' ? 'engine_timeout' : 'engine_cut'),
    )
  }

  /** One error event and no `[DONE]`: half an answer is never told to be a whole one. */
  #fail(failure: Failure): Promise<void> {
    this.#house.metrics.failed(failure.code)
    this.#send(Buffer.from(`data: ${JSON.stringify(errorBody(failure))}\n\n`))
    return this.#finish(this.#source === undefined ? 'refused' : 'cut_by_engine', failure.code)
  }

  async #finish(ending: EndingKind, failure = ''): Promise<void> {
    if (this.#ended) return
    this.#ended = true
    const whole = ending === 'whole'
    if (whole) this.#hash.update(DONE)
    Atomics.sub(this.#house.table.i32, workerI32(this.#house.worker, WORKER.open_streams), 1)
    this.#house.metrics.add('bytes_out', this.#bytes)
    const source = this.#source
    const usage = source?.usage ?? this.#estimated()
    const position = this.#flight.close({
      ending,
      status: 200,
      failure: ending === 'cut_by_client' ? 'client_gone' : failure,
      finish_reason: source?.finish_reason ?? '',
      ...(usage && { usage }),
      usage_source: source?.usage === undefined ? 'estimated' : 'engine',
      response_sha256: new Uint8Array(this.#hash.digest()),
    })
    if (source?.state === 'done') void this.#giveBack(source)
    else if (ending !== 'cut_by_client') this.#flight.cancel()
    if (position !== undefined) await onDisk(position, this.#call, this.#house)
    if (ending === 'cut_by_client') return
    if (whole) this.#controller!.enqueue(DONE)
    this.#controller!.close()
  }

  /** Reads to the end of the body, so that the connection can serve another call. */
  async #giveBack(source: StreamSource): Promise<void> {
    if (!(await source.exhausted())) this.#flight.cancel()
  }

  #send(bytes: Uint8Array): void {
    this.#hash.update(bytes)
    this.#bytes += bytes.length
    this.#controller!.enqueue(bytes)
  }

  #ping(): void {
    if (this.#ended) return
    this.#house.metrics.add('pings', 1)
    this.#send(PING)
    this.#awaitPing()
  }

  #awaitPing(): void {
    this.#flight.vigil.awaitPing(this.#house.tick() + this.#call.catalogue.config.server.ping_ms)
  }

  /** After a delivery: the client has its sign of life, and a long answer is written down now and then. */
  #note(source: StreamSource): void {
    this.#awaitPing()
    const now = this.#house.tick()
    if (now - this.#progress_tick_ms < PROGRESS_MS) return
    this.#progress_tick_ms = now
    const usage = source.usage ?? this.#estimated()
    this.#house.journal.append({
      kind: 'progress',
      call_id: this.#call.id,
      at_ms: this.#house.now(),
      prompt_tokens: usage?.prompt_tokens ?? 0,
      completion_tokens: usage?.completion_tokens ?? 0,
      usage_source: source.usage === undefined ? 'estimated' : 'engine',
    })
  }

  /** Tokens that were delivered, when the engine did not say: an event with content is a token. */
  #estimated(): Usage | undefined {
    if (this.#source === undefined) return undefined
    return {
      prompt_tokens: promptTokens(this.#call),
      cached_tokens: 0,
      completion_tokens: this.#source.content_events,
      reasoning_tokens: 0,
    }
  }
}
