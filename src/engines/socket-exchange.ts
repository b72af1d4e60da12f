import type { Timed } from './deadlines.ts'
import type { ResponseHead } from './http1-head.ts'
import type { ResponseSink } from './http1-response.ts'
import {
  type Exchange,
  TransportFailure,
  type TransportFailureKind,
  type UpstreamDeadlines,
  type UpstreamRequest,
  type UpstreamResponse,
} from './transport.ts'

/** Where a request goes: what a connection needs, and what stands in the head. */
export type Address = {
  /** Name or IP address, without brackets. */
  readonly hostname: string
  readonly port: number
  /** `host` header. Two addresses with the same one share connections. */
  readonly authority: string
  /** Path and query, for the request line. */
  readonly target: string
}

/** What the exchanges of one transport share. */
export type Lane = {
  /** Age at which an idle connection is closed; 0 keeps none. */
  idle_ms: number
}

/** What an exchange may ask of the connection or the queue that holds it. */
export type Holder = {
  pause(): void
  resume(): void
  /** The exchange is given up: what belongs to it is closed at once. */
  drop(exchange: SocketExchange): void
}

/** Body bytes held for a reader that is behind; beyond it the connection is not read (one read may overshoot it). */
const HELD_BYTES_MAX = 256 * 1024

/** One exchange over a socket: holds the body pieces that came and were not read, and how it ended. */
export class SocketExchange implements Exchange, ResponseSink, Timed {
  readonly head: Promise<UpstreamResponse | TransportFailure>
  readonly request: UpstreamRequest
  readonly deadlines: UpstreamDeadlines
  readonly lane: Lane
  readonly address: Address
  /** The request's head, latin1. */
  readonly head_text: string
  /** When it joined the queue, counted up; for fairness between origins. */
  turn = 0
  due_tick_ms = 0
  slot = -1
  /** Who holds the exchange; undefined once nothing is to come any more. */
  holder: Holder | undefined
  /** A byte of the request may have left. */
  sent = false
  /** It runs on a connection that had served another exchange before. */
  reused = false
  /** Which deadline runs. */
  waits_for: 'connect' | 'first_byte' = 'connect'
  #settleHead!: (result: UpstreamResponse | TransportFailure) => void
  #head_in = false
  #pieces: Uint8Array[] = []
  #held_bytes = 0
  #paused = false
  /** null: the body is whole. */
  #end: null | TransportFailure | undefined
  #reader: ((result: Uint8Array | null | TransportFailure) => void) | undefined

  constructor(request: UpstreamRequest, deadlines: UpstreamDeadlines, lane: Lane, address: Address, head_text: string) {
    this.request = request
    this.deadlines = deadlines
    this.lane = lane
    this.address = address
    this.head_text = head_text
    this.head = new Promise((resolve) => (this.#settleHead = resolve))
  }

  get head_in(): boolean {
    return this.#head_in
  }

  cancel(): void {
    this.giveUp('cancelled')
  }

  /** Its deadline passed. */
  expire(): void {
    this.giveUp(this.waits_for === 'connect' ? 'connect_timeout' : 'first_byte_timeout')
  }

  /** Ends the exchange with a failure of our own making and closes its connection. Harmless after the end. */
  giveUp(kind: TransportFailureKind, cause?: unknown): void {
    const holder = this.holder
    // A whole body that was not read yet is still readable: giving it up then only means not to want it.
    if (holder === undefined) return
    this.#pieces = []
    this.fail(kind, cause)
    holder.drop(this)
  }

  /** Ends the exchange with a failure. What came before it can still be read. */
  fail(kind: TransportFailureKind, cause?: unknown): void {
    this.#finish(new TransportFailure(kind, this.sent, cause, this.reused))
  }

  /** The body is whole. */
  complete(): void {
    this.#finish(null)
  }

  onHead(head: ResponseHead): void {
    this.#head_in = true
    this.#settleHead(new SocketResponse(this, head))
  }

  onBody(bytes: Uint8Array): void {
    const reader = this.#reader
    if (reader) {
      this.#reader = undefined
      reader(bytes)
      return
    }
    this.#pieces.push(bytes)
    this.#held_bytes += bytes.length
    if (this.#held_bytes >= HELD_BYTES_MAX && !this.#paused) {
      this.#paused = true
      this.holder?.pause()
    }
  }

  read(): Promise<Uint8Array | null | TransportFailure> {
    const piece = this.inHand()
    return piece === undefined ? new Promise((resolve) => (this.#reader = resolve)) : Promise.resolve(piece)
  }

  inHand(): Uint8Array | null | TransportFailure | undefined {
    const piece = this.#pieces.shift()
    if (piece === undefined) return this.#end
    this.#held_bytes -= piece.length
    if (this.#paused && this.#held_bytes < HELD_BYTES_MAX / 2) {
      this.#paused = false
      this.holder?.resume()
    }
    return piece
  }

  #finish(end: null | TransportFailure): void {
    if (this.#end !== undefined) return
    this.#end = end
    this.holder = undefined
    if (end !== null && !this.#head_in) this.#settleHead(end)
    const reader = this.#reader
    this.#reader = undefined
    reader?.(end)
  }
}

class SocketResponse implements UpstreamResponse {
  readonly status: number
  readonly close_delimited: boolean
  readonly #exchange: SocketExchange
  readonly #head: ResponseHead

  constructor(exchange: SocketExchange, head: ResponseHead) {
    this.#exchange = exchange
    this.#head = head
    this.status = head.status
    this.close_delimited = head.close_delimited
  }

  header(name: string): string | undefined {
    return this.#head.header(name)
  }

  read(): Promise<Uint8Array | null | TransportFailure> {
    return this.#exchange.read()
  }

  inHand(): Uint8Array | null | TransportFailure | undefined {
    return this.#exchange.inHand()
  }
}
