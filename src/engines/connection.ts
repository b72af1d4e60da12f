import type { Socket, SocketHandler } from 'bun'
import type { Deadlines, Timed } from './deadlines.ts'
import { Http1Response, type ResponseState } from './http1-response.ts'
import { REQUEST_HEAD_BYTES_MAX } from './request-head.ts'
import type { Holder, Lane, SocketExchange } from './socket-exchange.ts'
import type { TransportFailureKind } from './transport.ts'

/** Connections to one host and port, and the exchanges that wait for one. The pool keeps it. */
export type Origin = {
  readonly hostname: string
  readonly port: number
  /** The most recently used one last. */
  readonly idle: Connection[]
  /** In order of arrival. */
  readonly waiting: Set<SocketExchange>
  /** Dials that are on time. */
  dialing: number
  /** Dials that are not: see {@link Connection.stale}. */
  stale: number
  /** Connections and dials. */
  open: number
}

/** What a connection tells the pool that owns it. */
export type ConnectionOwner = {
  readonly deadlines: Deadlines
  /** The dial worked. */
  opened(connection: Connection): void
  /** The dial failed; the connection is no more. */
  failed(connection: Connection, error: Error): void
  /** An exchange is over and the connection can take another. */
  free(connection: Connection): void
  /** An open connection is no more. */
  gone(connection: Connection): void
  /** The connection turned out to be dead before a byte of the exchange left. */
  unsent(exchange: SocketExchange): void
  /** Its own deadline passed: a dial took too long, or an idle connection reached its age. */
  overdue(connection: Connection): void
}

/** Requests are put together here, so that head and body leave in one write. Only used synchronously. */
const scratch = Buffer.allocUnsafe(REQUEST_HEAD_BYTES_MAX)

/** One TCP connection to an engine, with at most one exchange on it. */
export class Connection implements Holder, Timed {
  readonly origin: Origin
  /** Of the exchange that ran on it last, or for which it was dialled. */
  lane: Lane
  due_tick_ms = 0
  slot = -1
  /** A dial that took longer than its first exchange could wait. The runtime cannot take it back. */
  stale = false
  readonly #owner: ConnectionOwner
  #socket: Socket<Connection> | undefined
  #exchange: SocketExchange | undefined
  #parser: Http1Response | undefined
  #paused = false
  #used = false
  /** What of the request is still to be written: the end of the first write, then pieces from an index and an offset. */
  #rest: Uint8Array | undefined
  #piece = 0
  #piece_at = 0
  #written = true

  constructor(owner: ConnectionOwner, origin: Origin, lane: Lane) {
    this.#owner = owner
    this.origin = origin
    this.lane = lane
  }

  /** Puts an exchange on the connection; false if the connection is dead, and then no byte left. */
  start(exchange: SocketExchange): boolean {
    const socket = this.#socket
    if (socket === undefined) return false
    const filled = this.#compose(exchange)
    const wrote = socket.write(scratch, 0, filled)
    if (wrote < 0) return false
    this.#exchange = exchange
    this.lane = exchange.lane
    exchange.holder = this
    exchange.reused = this.#used
    exchange.sent = wrote > 0
    this.#used = true
    if (this.#parser) this.#parser.reset(exchange)
    else this.#parser = new Http1Response(exchange)
    exchange.waits_for = 'first_byte'
    this.#owner.deadlines.set(exchange, exchange.deadlines.first_byte_ms)
    this.#written = false
    this.#rest = wrote < filled ? Buffer.from(scratch.subarray(wrote, filled)) : undefined
    if (wrote === filled) this.#write(socket, exchange)
    return true
  }

  pause(): void {
    this.#paused = true
    this.#socket?.pause()
  }

  resume(): void {
    this.#paused = false
    this.#socket?.resume()
  }

  drop(exchange: SocketExchange): void {
    this.#owner.deadlines.clear(exchange)
    this.#exchange = undefined
    this.destroy()
  }

  expire(): void {
    this.#owner.overdue(this)
  }

  /** Closes the connection in order: nothing is under way on it. Harmless when it is closed. */
  retire(): void {
    const socket = this.#socket
    if (socket === undefined) return
    this.#socket = undefined
    socket.end()
    this.#owner.gone(this)
  }

  /** Resets the connection, whatever is under way on it. Harmless when it is closed. */
  destroy(): void {
    const socket = this.#socket
    if (socket === undefined) return
    this.#socket = undefined
    socket.terminate()
    this.#owner.gone(this)
  }

  /** Fills `scratch` with the head and as much of the body as fits; how many bytes that is. */
  #compose({ request, head_text }: SocketExchange): number {
    const pieces = request.body
    let filled = scratch.write(head_text, 0, 'latin1')
    this.#piece = 0
    this.#piece_at = 0
    while (this.#piece < pieces.length && filled < scratch.length) {
      const piece = pieces[this.#piece]!
      const took = Math.min(piece.length, scratch.length - filled)
      scratch.set(took === piece.length ? piece : piece.subarray(0, took), filled)
      filled += took
      if (took === piece.length) this.#piece += 1
      else this.#piece_at = took
    }
    return filled
  }

  /** Writes what is left of the request until the kernel takes no more. */
  #write(socket: Socket<Connection>, exchange: SocketExchange): void {
    if (this.#rest) {
      const wrote = Math.max(socket.write(this.#rest), 0)
      this.#rest = wrote < this.#rest.length ? this.#rest.subarray(wrote) : undefined
      if (wrote > 0) exchange.sent = true
      if (this.#rest) return
    }
    const pieces = exchange.request.body
    while (this.#piece < pieces.length) {
      const piece = pieces[this.#piece]!
      const left = piece.length - this.#piece_at
      const wrote = left === 0 ? 0 : Math.max(socket.write(piece, this.#piece_at, left), 0)
      if (wrote < left) {
        this.#piece_at += wrote
        return
      }
      this.#piece += 1
      this.#piece_at = 0
    }
    this.#written = true
  }

  /** The engine took bytes: the deadline for its answer starts anew, since it counts from the last byte written. */
  #drained(): void {
    const exchange = this.#exchange
    const socket = this.#socket
    if (this.#written || exchange === undefined || socket === undefined) return
    if (!exchange.head_in) this.#owner.deadlines.set(exchange, exchange.deadlines.first_byte_ms)
    this.#write(socket, exchange)
  }

  #arrived(bytes: Uint8Array): void {
    const exchange = this.#exchange
    // Bytes that nobody asked for, on an idle connection.
    if (exchange === undefined) return this.destroy()
    const state = this.#parser!.feed(bytes)
    if (exchange.slot >= 0 && exchange.head_in) this.#owner.deadlines.clear(exchange)
    if (state === 'invalid') this.#fail(exchange, 'invalid')
    else if (state !== 'head' && state !== 'body') this.#complete(exchange, state)
  }

  #complete(exchange: SocketExchange, state: ResponseState): void {
    this.#exchange = undefined
    exchange.complete()
    // An answer to half a request, or with bytes after its end, leaves the two sides out of step.
    if (state === 'surplus' || !this.#written) return this.destroy()
    if (!this.#parser!.keeps_alive) return this.retire()
    if (this.#paused) this.resume()
    this.#owner.free(this)
  }

  #fail(exchange: SocketExchange, kind: TransportFailureKind, error?: Error): void {
    this.#owner.deadlines.clear(exchange)
    this.#exchange = undefined
    exchange.fail(kind, error)
    this.destroy()
  }

  /** A handler threw: a bug, which costs the exchange it happened in, or the process if there is none to tell of it. */
  #broken(error: Error): void {
    const exchange = this.#exchange
    if (exchange === undefined) throw error
    this.#fail(exchange, 'invalid', error)
  }

  /** The socket is closed: by the engine, in order or not. */
  #closed(error: Error | undefined): void {
    if (this.#socket === undefined) return
    this.#socket = undefined
    const exchange = this.#exchange
    if (exchange === undefined) return this.#owner.gone(this)
    this.#exchange = undefined
    this.#owner.deadlines.clear(exchange)
    const whole = error === undefined && this.#parser!.ended()
    const replay = exchange.reused && !exchange.sent
    if (whole) exchange.complete()
    else if (!replay) exchange.fail(exchange.head_in ? 'cut' : 'reset', error)
    this.#owner.gone(this)
    if (replay) this.#owner.unsent(exchange)
  }

  /** The handlers of every connection. */
  static readonly handlers: SocketHandler<Connection> = {
    open: (socket) => {
      socket.setNoDelay(true)
      socket.data.#socket = socket
      socket.data.#owner.opened(socket.data)
    },
    data: (socket, bytes) => socket.data.#arrived(bytes),
    drain: (socket) => socket.data.#drained(),
    close: (socket, error) => socket.data.#closed(error),
    error: (socket, error) => socket.data.#broken(error),
    connectError: (socket, error) => socket.data.#owner.failed(socket.data, error),
  }
}
