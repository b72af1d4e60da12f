import type { Watched } from './watch.ts'

/**
 * What a call's vigil can find overdue. `silence`: the engine sent nothing for too long; `total`: the call is too long;
 * `draining`: the worker stops and its grace is over.
 */
export type Overdue = 'total' | 'silence' | 'ping' | 'draining'

/** Whom a vigil tells. */
export type VigilOwner = {
  expired(overdue: Overdue): void
  /** The call lasts: see {@link Watched.lasts}. */
  lasts?(): void
}

const NEVER = Number.POSITIVE_INFINITY

/** The deadlines of one call: the whole call, the engine's next byte, and the next sign of life to the client. */
export class Vigil implements Watched {
  due_tick_ms = NEVER
  #total = NEVER
  #silence = NEVER
  #first = NEVER
  #ping = NEVER
  readonly #owner: VigilOwner

  constructor(total_tick_ms: number, owner: VigilOwner) {
    this.#total = this.due_tick_ms = total_tick_ms
    this.#owner = owner
  }

  /** Sets when the engine must have sent its next byte; NEVER (the default) to wait for ever. */
  awaitByte(tick_ms = NEVER): void {
    this.#silence = tick_ms
    this.#set()
  }

  /** Sets when the first event must be there, however many bytes of comments come before it. */
  awaitFirst(tick_ms = NEVER): void {
    this.#first = tick_ms
    this.#set()
  }

  /** Sets when the client is due a sign of life. */
  awaitPing(tick_ms = NEVER): void {
    this.#ping = tick_ms
    this.#set()
  }

  expire(now_tick_ms: number): void {
    if (this.#total <= now_tick_ms) {
      this.#total = NEVER
      this.#set()
      this.#owner.expired('total')
    } else if (this.#silence <= now_tick_ms || this.#first <= now_tick_ms) {
      this.#silence = this.#first = NEVER
      this.#set()
      this.#owner.expired('silence')
    } else {
      this.#ping = NEVER
      this.#set()
      this.#owner.expired('ping')
    }
  }

  lasts(): void {
    this.#owner.lasts?.()
  }

  cut(): void {
    this.#total = NEVER
    this.#set()
    this.#owner.expired('draining')
  }

  #set(): void {
    this.due_tick_ms = Math.min(this.#total, this.#silence, this.#first, this.#ping)
  }
}
