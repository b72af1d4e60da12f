import type { Target } from '../balance/catalogue.ts'
import { Failure } from '../base/failure.ts'
import type { Exchange } from '../engines/transport.ts'
import type { Call, Routed } from './call.ts'
import { countedHalf } from './counted-text.ts'
import type { Delivered } from './delivered.ts'
import { estimated } from './estimate.ts'
import type { House } from './house.ts'
import { promptTokens } from './intent.ts'
import { Miss } from './outcome.ts'
import { type End, endCall } from './settle.ts'
import { type Overdue, Vigil } from './vigil.ts'

/** Who relays a stream, as far as its flight must tell it something. */
export type Listener = {
  /** The client is due a sign of life. */
  ping(): void
  /** The client left. */
  gone(): void
  /** A deadline passed; the exchange is given up already. */
  overdue(): void
}

/** What one attempt needs of the flight that it belongs to. */
export type Leg = Pick<
  Flight,
  'vigil' | 'delivered' | 'half' | 'reached' | 'overdue' | 'first_token_tick_ms' | 'take' | 'cancel' | 'givenUp'
>

/** An exchange beside the flight's own. `close` lets go of its deadlines. */
export type Second = { cancel(): void; close(): void }

const NOBODY: Listener = { ping() {}, gone() {}, overdue() {} }

/**
 * A call in the air: its exchange with an engine, its deadlines, and its client, who may leave at any time. Ends the
 * call exactly once, whoever is first to know.
 */
export class Flight {
  readonly vigil: Vigil
  attempts = 0
  /** Targets that were asked and left. */
  readonly tried: Target[] = []
  /** What went out of a stream, kept while another engine could go on with it. */
  delivered: Delivered | undefined
  /** What came of the present engine's whole answer that broke off. */
  half: Uint8Array | undefined
  /** True once an engine may have seen a byte of the call. */
  reached = false
  /** Why the exchange was given up by us, if it was; `silence` is the present exchange's, the others stay. */
  overdue: Exclude<Overdue, 'ping'> | undefined
  /** When the first engine was asked, and when the first event or body was in. On the monotonic clock. */
  asked_tick_ms: number
  first_token_tick_ms = 0
  listener: Listener = NOBODY
  /** A second engine that was asked while the first is slow, or that answers in its place. */
  second: Second | undefined
  #exchange: Exchange | undefined
  readonly #total_tick_ms: number
  readonly #call: Routed
  readonly #house: House
  /** Hears that the client left; set once the call has lasted for a sweep, as most are over by then. */
  #left: (() => void) | undefined

  constructor(call: Routed, house: House) {
    this.#call = call
    this.#house = house
    this.asked_tick_ms = house.tick()
    const total_ms = call.model?.timeouts.total_ms
    this.#total_tick_ms = total_ms === undefined ? call.deadline_tick_ms : call.started_tick_ms + total_ms
    this.vigil = new Vigil(this.#total_tick_ms, this)
    house.watch.add(this.vigil)
  }

  /** Listens for the client's leaving, which may have been before: the signal tells that too. */
  lasts(): void {
    this.#left = () => this.clientLeft()
    const { signal } = this.#call.arrival.request
    signal.addEventListener('abort', this.#left, { once: true })
    if (signal.aborted) this.clientLeft()
  }

  /** Takes charge of an exchange that has just begun. Requires that the call is not given up. */
  take(exchange: Exchange): void {
    this.dropSecond()
    this.#exchange = exchange
    this.half = undefined
    if (this.overdue === 'silence') this.overdue = undefined
  }

  /** Gives the current exchange up; harmless after its end. */
  cancel(): void {
    this.#exchange?.cancel()
    this.second?.cancel()
  }

  /** Gives up the first of two exchanges, and what it was late for. */
  dropFirst(): void {
    this.#exchange?.cancel()
    this.#exchange = undefined
    this.vigil.awaitByte()
    this.vigil.awaitFirst()
    if (this.overdue === 'silence') this.overdue = undefined
  }

  /** Gives up the second of two exchanges, if there is one. */
  dropSecond(): void {
    this.second?.cancel()
    this.second?.close()
    this.second = undefined
  }

  /** The engine that answers has said nothing for too long; its exchange is given up. */
  silence(): void {
    this.overdue = 'silence'
    this.listener.overdue()
  }

  /** The engine answers to its end though the client left, because it bills the whole answer anyway. */
  get drains(): boolean {
    return this.#call.target?.engine.config.on_disconnect === 'drain'
  }

  /** Why no engine is to be asked any more; undefined while the call goes on. */
  givenUp(): Miss | undefined {
    const is_late = this.overdue === 'total' || this.#house.tick() >= this.#total_tick_ms
    const code = is_late
      ? 'deadline_passed'
      : this.overdue === 'draining'
        ? 'draining'
        : this.#abandoned()
          ? 'client_gone'
          : undefined
    return code && new Miss({ next: false, health: 'none', shown: 'as_is' }, new Failure(code), code)
  }

  /** The client is gone: the engine is told at once, unless it drains. */
  clientLeft(): void {
    const call: Call = this.#call
    if (call.client_gone || !call.open) return
    call.client_gone = true
    if (this.#abandoned()) this.cancel()
    this.listener.gone()
  }

  /** Resolves when the client is due a sign of life. */
  pingDue(): Promise<undefined> {
    const { promise, resolve } = Promise.withResolvers<undefined>()
    this.listener = { ...NOBODY, ping: () => resolve(undefined) }
    this.vigil.awaitPing(this.#house.tick() + this.#call.catalogue.config.server.ping_ms)
    return promise
  }

  /**
   * Ends a call that got no answer; hands the failure on for the refusal. A client that left is charged for the prompt
   * if an engine can have begun to read it, and for what came of the answer.
   */
  async end(failure: Failure): Promise<Failure> {
    const half = this.#call.client_gone && this.half ? await countedHalf(this.half, this.#call, this.#house) : 0
    const gone = this.#call.client_gone
    this.close({
      ending: gone ? 'cut_by_client' : 'refused',
      status: gone ? 499 : failure.status,
      failure: gone ? 'client_gone' : failure.code,
      ...(gone && this.reached && { usage: estimated(promptTokens(this.#call), half), usage_source: 'estimated' }),
    })
    return gone ? new Failure('client_gone') : failure
  }

  /** Ends the call, once. Answers the journal position to wait for. */
  close(end: End): number | undefined {
    this.#house.watch.remove(this.vigil)
    this.second?.close()
    if (this.#left) this.#call.arrival.request.signal.removeEventListener('abort', this.#left)
    this.listener = NOBODY
    if (!this.#call.open) return undefined
    const now = this.#house.tick()
    return endCall(this.#call, this.#house, {
      attempts: this.attempts,
      engine_ms: now - this.asked_tick_ms,
      first_token_ms: this.first_token_tick_ms === 0 ? 0 : this.first_token_tick_ms - this.#call.started_tick_ms,
      ...end,
    })
  }

  /** The client left, and nobody is to hear the rest. A call that has not reached an engine yet has no rest. */
  #abandoned(): boolean {
    return this.#call.client_gone && !(this.drains && (this.#exchange ?? this.second) !== undefined)
  }

  expired(overdue: Overdue): void {
    if (overdue === 'ping') return this.listener.ping()
    // A second engine may still be in time.
    if (overdue === 'silence') {
      this.#exchange?.cancel()
      return this.silence()
    }
    this.overdue = overdue
    this.cancel()
    this.listener.overdue()
  }
}
