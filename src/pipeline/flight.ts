import { Failure } from '../base/failure.ts'
import type { Exchange } from '../engines/transport.ts'
import type { Call, Routed } from './call.ts'
import type { House } from './house.ts'
import { type End, endCall } from './settle.ts'
import { type Overdue, Vigil } from './vigil.ts'

/**
 * A call in the air: its exchange with an engine, its deadlines, and its client, who may leave at any time. Ends the
 * call exactly once, whoever is first to know.
 */
export class Flight {
  readonly vigil: Vigil
  attempts = 0
  /** Why the exchange was given up by us, if it was. */
  overdue: 'total' | 'silence' | undefined
  /** When the first engine was asked, and when the first event or body was in. On the monotonic clock. */
  asked_tick_ms = 0
  first_token_tick_ms = 0
  /** Told when the client is due a sign of life; the stream's relay takes it over. */
  onPing: () => void = () => undefined
  /** Told when the client left; the stream's relay takes it over. */
  onGone: () => void = () => undefined
  #exchange: Exchange | undefined
  readonly #call: Call
  readonly #house: House
  readonly #left: () => void

  constructor(call: Routed, house: House) {
    this.#call = call
    this.#house = house
    this.asked_tick_ms = house.tick()
    this.vigil = new Vigil(call.deadline_tick_ms, (overdue) => this.#expired(overdue))
    house.watch.add(this.vigil)
    this.#left = () => this.clientLeft()
    const { signal } = call.arrival.request
    signal.addEventListener('abort', this.#left, { once: true })
    if (signal.aborted) this.clientLeft()
  }

  /** Takes charge of an exchange; gives it up at once if the client is gone already. */
  take(exchange: Exchange): void {
    this.#exchange = exchange
    this.overdue = this.overdue === 'total' ? 'total' : undefined
    if (this.overdue !== undefined || (this.#call.client_gone && !this.#drains())) exchange.cancel()
  }

  /** Gives the current exchange up. */
  cancel(): void {
    this.#exchange?.cancel()
  }

  /** The client is gone: the engine is told at once, unless it is one that bills the whole answer anyway. */
  clientLeft(): void {
    if (this.#call.client_gone || !this.#call.open) return
    this.#call.client_gone = true
    if (!this.#drains()) this.cancel()
    this.onGone()
  }

  /** Resolves (with undefined) when the client is due a sign of life. */
  pingDue(): Promise<undefined> {
    const { promise, resolve } = Promise.withResolvers<undefined>()
    this.onPing = () => resolve(undefined)
    this.vigil.awaitPing(this.#house.tick() + this.#call.catalogue.config.server.ping_ms)
    return promise
  }

  /** Ends a call that got no answer; hands the failure on for the refusal. */
  end(failure: Failure): Failure {
    this.close({
      ending: this.#call.client_gone ? 'cut_by_client' : 'refused',
      status: failure.status,
      failure: this.#call.client_gone ? 'client_gone' : failure.code,
    })
    return failure
  }

  /** Ends the call, once. Answers the journal position to wait for. */
  close(end: End): number | undefined {
    this.#house.watch.remove(this.vigil)
    this.#call.arrival.request.signal.removeEventListener('abort', this.#left)
    if (!this.#call.open) return undefined
    const now = this.#house.tick()
    return endCall(this.#call, this.#house, {
      attempts: this.attempts,
      engine_ms: now - this.asked_tick_ms,
      first_token_ms: this.first_token_tick_ms === 0 ? 0 : this.first_token_tick_ms - this.#call.started_tick_ms,
      ...end,
    })
  }

  #drains(): boolean {
    return this.#call.target?.engine.config.on_disconnect === 'drain'
  }

  #expired(overdue: Overdue): void {
    if (overdue === 'ping') return this.onPing()
    this.overdue = overdue
    this.cancel()
  }
}
