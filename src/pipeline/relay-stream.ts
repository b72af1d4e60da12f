import { errorBody, Failure } from '../base/failure.ts'
import { turnEnd } from '../base/turn.ts'
import type { EndingKind } from '../journal/record.ts'
import { WORKER } from '../table/layout.ts'
import { workerI32 } from '../table/table.ts'
import { answerOf, streamHeaders } from './answer-headers.ts'
import type { Routed } from './call.ts'
import { judgeBroken } from './engine-record.ts'
import { DONE, eventOf, PING } from './event-bytes.ts'
import type { Flight, Listener } from './flight.ts'
import type { House } from './house.ts'
import { keepAnswer } from './idempotency.ts'
import type { Answer, StreamAnswer } from './outcome.ts'
import { giveBack, type Reading } from './reading.ts'
import { jsonError, onDisk, shownBytes } from './relay-whole.ts'
import type { Way } from './splice-stream.ts'
import type { StreamSource } from './stream-source.ts'
import { StreamAccount } from './stream-account.ts'
import { lateness, restMs, type StreamEnd, streamEnd } from './stream-end.ts'
import { takeOver } from './take-over.ts'

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
      cancel: () => relay.cancelled(),
    },
    { highWaterMark: 0 },
  )
  return answerOf(stream as unknown as BodyInit, streamHeaders(call))
}

class Relay implements Listener {
  readonly #call: Routed
  readonly #house: House
  readonly #flight: Flight
  readonly #account: StreamAccount
  #answer: Promise<Answer | Failure> | undefined
  #source: StreamSource | undefined
  #reading: Reading | undefined
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined
  /** The client waits for bytes. */
  #pulling = false
  /** Nobody is there to get bytes any more. */
  #deaf = false
  #ended = false
  /** How the answer broke first, if another engine went on with it. */
  #broke: StreamEnd | undefined

  constructor(call: Routed, house: House, flight: Flight, answer: StreamAnswer | Promise<Answer | Failure>) {
    this.#call = call
    this.#house = house
    this.#flight = flight
    this.#account = new StreamAccount(call, house)
    if (answer instanceof Promise) this.#answer = answer
    else this.#begin(answer)
  }

  start(controller: ReadableStreamDefaultController<Uint8Array>): void {
    this.#controller = controller
    this.#flight.listener = this
    // It may have left before there was anybody to tell.
    if (this.#call.client_gone) return this.gone()
    // A late answer's status goes out with the first byte, so there must be one.
    if (this.#answer !== undefined) this.#sendPing()
    this.#awaitPing()
  }

  /** Delivers at least one piece, or ends the stream. */
  async pull(): Promise<void> {
    this.#pulling = true
    try {
      if (this.#answer !== undefined) await this.#arrive(this.#answer)
      while (!this.#ended) {
        const source = this.#source!
        if (!source.has_output && source.state === 'open') {
          const reading = this.#reading!
          if (source.finished) reading.hurry(restMs(source))
          const piece = await reading.next()
          reading.arrived()
          if (this.#ended) return
          source.take(piece)
          await turnEnd()
          if (this.#ended) return
        }
        const output = source.output()
        if (output !== undefined) this.#send(output)
        if (source.state !== 'open') await this.#conclude(source)
        else if (output !== undefined) {
          const now = this.#house.tick()
          this.#account.note(now)
          this.#awaitPing(now)
          if (!this.#deaf) return
        }
      }
    } catch (cause) {
      this.#house.log('error', 'internal_error', { call_id: this.#call.id, stage: 'forward', cause })
      this.#deaf = true
      await this.#finish('cut_by_engine', 'internal')
      // The connection is reset: the one way left to tell that this is not the end.
      this.#controller!.error(cause)
    } finally {
      this.#pulling = false
    }
  }

  /** The stream of the response was cancelled: its client is gone. */
  cancelled(): void {
    this.#deaf = true
    this.#flight.clientLeft()
  }

  gone(): void {
    this.#deaf = true
    if (this.#ended) return
    if (!this.#flight.drains) void this.#finish('cut_by_client')
    // Nobody pulls any more, so the rest is read from here.
    else if (!this.#pulling) void this.pull()
  }

  ping(): void {
    // A client that does not read is not kept alive by more bytes.
    if (this.#pulling) this.#sendPing()
    this.#awaitPing()
  }

  overdue(): void {
    // While a read is waiting, its end tells; a client that does not read would never find out.
    if (!this.#pulling) void this.#fail(lateness(this.#flight.overdue ?? 'total'))
  }

  #begin(answer: StreamAnswer, way?: Way): void {
    this.#source = answer.source
    this.#account.begins(answer.source, way)
    this.#reading = answer.reading
  }

  /** The answer that the client was kept waiting for. */
  async #arrive(late: Promise<Answer | Failure>): Promise<void> {
    const answer = await late
    this.#answer = undefined
    if (this.#ended) return
    if (answer instanceof Failure) return this.#fail(answer)
    if (answer.kind === 'stream') {
      this.#begin(answer)
      // Its client left while an engine was asked that drains, and another answers, which does not.
      return this.#call.client_gone && !this.#flight.drains ? this.#finish('cut_by_client') : undefined
    }
    // A status was promised already, so an error or a plain body can only be an event.
    if (answer.kind === 'refusal') {
      this.#house.metrics.add('refused_by_engine', 1)
      this.#send(eventOf(jsonError(answer)))
      return this.#finish('refused', 'engine_refused')
    }
    this.#account.whole = answer
    this.#send(eventOf(shownBytes(answer, this.#call)))
    return this.#finish('whole')
  }

  /** The engine's stream is over: whole, or not, and the client is told which. */
  async #conclude(source: StreamSource): Promise<void> {
    if (this.#ended) return
    const { malformed_events: count } = source
    const { id: call_id, target } = this.#call
    if (count > 0) this.#house.log('warn', 'engine_events_malformed', { call_id, engine: target?.engine.name, count })
    const end = source.diverged ? this.#broke! : streamEnd(source, this.#flight.overdue)
    if (end.failure === undefined) return this.#finish('whole')
    if (!source.diverged && end.blame !== undefined) {
      judgeBroken(this.#call, this.#house, end.failure.code, end.blame)
      if (await this.#goOn(end.failure.code)) {
        this.#broke ??= end
        return
      }
    }
    return this.#fail(end.failure, end.error_json)
  }

  /** Has another engine go on with the answer; false if none can. */
  async #goOn(because: string): Promise<boolean> {
    const standing = this.#account.standing()
    const next = await takeOver(this.#call, this.#house, this.#flight, standing, because)
    if (next === undefined || this.#ended) return this.#ended
    this.#begin(next.answer, next.way)
    return true
  }

  /** One error event and no `[DONE]`: half an answer is never told to be a whole one. */
  #fail(failure: Failure, error_json?: Uint8Array): Promise<void> {
    if (this.#ended) return Promise.resolve()
    this.#house.metrics.failed(failure.code)
    this.#send(eventOf(error_json ?? Buffer.from(JSON.stringify(errorBody(failure)))))
    return this.#finish(this.#source?.begun ? 'cut_by_engine' : 'refused', failure.code)
  }

  /** Ends the call, then the stream. */
  async #finish(wanted: EndingKind, failure = ''): Promise<void> {
    if (this.#ended) return
    this.#ended = true
    // What the engine had been sent shows when its exchange, which is given up, has ended.
    if (wanted === 'cut_by_client') await this.#answer
    const done = wanted === 'whole' ? (this.#source?.done_bytes ?? DONE) : undefined
    if (done && this.#call.keeping) await keepAnswer(this.#call, this.#house, 200, streamHeaders(this.#call), done)
    const counting = this.#account.counted(this.#source, this.#flight)
    if (counting !== undefined) await counting
    const ending = this.#call.client_gone ? 'cut_by_client' : wanted
    if (done !== undefined && !this.#deaf) this.#account.sent(done)
    Atomics.sub(this.#house.table.i32, workerI32(this.#house.worker, WORKER.open_streams), 1)
    const why = ending === 'cut_by_client' ? 'client_gone' : failure
    const position = this.#flight.close(this.#account.end(ending, this.#source, why, this.#flight))
    if (this.#source?.state === 'done') void giveBack(this.#reading!, () => this.#flight.cancel())
    else this.#flight.cancel()
    // In strict mode the end of the answer waits for the disk; the client may leave meanwhile.
    const failed = position === undefined ? undefined : await onDisk(position, this.#call, this.#house)
    if (this.#deaf) return
    if (done !== undefined)
      this.#controller!.enqueue(failed === undefined ? done : eventOf(Buffer.from(JSON.stringify(errorBody(failed)))))
    this.#controller!.close()
  }

  #send(bytes: Uint8Array): void {
    this.#call.keeping?.add(bytes)
    if (this.#deaf) return
    this.#account.sent(bytes)
    this.#controller!.enqueue(bytes)
  }

  /** Only ever between events: what is sent is whole events. */
  #sendPing(): void {
    if (this.#deaf || this.#ended) return
    this.#house.metrics.add('pings', 1)
    this.#controller!.enqueue(PING)
  }

  #awaitPing(now_tick_ms: number = this.#house.tick()): void {
    this.#flight.vigil.awaitPing(now_tick_ms + this.#call.catalogue.config.server.ping_ms)
  }
}
