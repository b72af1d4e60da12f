import type { Socket } from 'bun'

/** How the other side (or this one) ended a connection. `fin` is an orderly close, `rst` a reset. */
export type Gone = { readonly by: 'peer' | 'us'; readonly how: 'fin' | 'rst'; readonly at_ms: number }

/** One side of a raw TCP connection: bytes in with their times, bytes out with backpressure, and how it ended. */
export class Wire {
  readonly opened_at_ms = performance.now()
  /** Set once, by whoever left first. After a `fin` of the peer this side can still write. */
  gone: Gone | undefined
  /** True once the socket is closed: nothing can be read or written any more. */
  dead = false
  /** Each arrival: when, and how many bytes had come in all by then. */
  readonly arrivals: { readonly at_ms: number; readonly bytes_total: number }[] = []
  readonly #socket: Socket<unknown>
  readonly #wakers = new Set<() => void>()
  #buffer = Buffer.allocUnsafe(4096)
  #start = 0
  #end = 0
  #consumed = 0

  constructor(socket: Socket<unknown>) {
    this.#socket = socket
  }

  /** The bytes that came in and were not consumed. Valid until the next await. */
  get view(): Buffer {
    return this.#buffer.subarray(this.#start, this.#end)
  }

  /** How many bytes were consumed since the connection opened. */
  get consumed(): number {
    return this.#consumed
  }

  /** Takes the first `bytes` of {@link view} away and returns a copy of them. */
  take(bytes: number): Buffer {
    const taken = Buffer.from(this.view.subarray(0, bytes))
    this.#start += taken.length
    this.#consumed += taken.length
    if (this.#start === this.#end) this.#start = this.#end = 0
    return taken
  }

  /** Waits until something happens on the wire or `within_ms` passed; false if time ran out. */
  changed(within_ms: number): Promise<boolean> {
    return new Promise((resolve) => {
      const settle = (came: boolean) => {
        clearTimeout(timer)
        this.#wakers.delete(wake)
        resolve(came)
      }
      const wake = () => settle(true)
      const timer = setTimeout(() => settle(false), within_ms)
      this.#wakers.add(wake)
    })
  }

  /** Waits until `ready` returns something other than undefined; undefined if time ran out first. */
  async until<T>(ready: () => T | undefined, within_ms: number): Promise<T | undefined> {
    const deadline_ms = performance.now() + within_ms
    for (;;) {
      const found = ready()
      if (found !== undefined) return found
      const left_ms = deadline_ms - performance.now()
      if (left_ms <= 0 || !(await this.changed(left_ms))) return ready()
    }
  }

  /** Writes all of it, waiting for the peer to read where it must; false if the connection died first. */
  async send(bytes: Uint8Array): Promise<boolean> {
    let at = 0
    while (at < bytes.length) {
      if (this.dead) return false
      const wrote = this.#socket.write(bytes.subarray(at))
      if (wrote < 0) return false
      at += wrote
      if (at < bytes.length) await this.changed(60_000)
    }
    return !this.dead
  }

  /** Sends a FIN and goes on reading. */
  halfClose(): void {
    if (!this.dead) this.#socket.shutdown()
  }

  /** Closes in both directions, in order. */
  close(): void {
    this.#leave('fin')
    if (!this.dead) this.#socket.end()
  }

  /** Sends a RST. */
  reset(): void {
    this.#leave('rst')
    if (!this.dead) this.#socket.terminate()
  }

  /** Stops reading from the socket, so that the peer meets backpressure. */
  pause(): void {
    if (!this.dead) this.#socket.pause()
  }

  resume(): void {
    if (!this.dead) this.#socket.resume()
  }

  /** For the socket handlers only. */
  arrived(bytes: Uint8Array): void {
    const held = this.#end - this.#start
    if (this.#end + bytes.length > this.#buffer.length) {
      const roomy = Buffer.allocUnsafe(Math.max(this.#buffer.length, 2 * (held + bytes.length)))
      this.#buffer.copy(roomy, 0, this.#start, this.#end)
      this.#buffer = roomy
      this.#start = 0
      this.#end = held
    }
    this.#buffer.set(bytes, this.#end)
    this.#end += bytes.length
    this.arrivals.push({ at_ms: performance.now(), bytes_total: this.#consumed + held + bytes.length })
    this.wake()
  }

  /** For the socket handlers only. */
  ended(how: Gone['how']): void {
    this.gone ??= { by: 'peer', how, at_ms: performance.now() }
    this.wake()
  }

  wake(): void {
    for (const waker of this.#wakers) waker()
  }

  #leave(how: Gone['how']): void {
    this.gone ??= { by: 'us', how, at_ms: performance.now() }
    this.wake()
  }
}

/** Socket handlers that keep a {@link Wire} for each connection. Use with `allowHalfOpen: true`. */
export const wireHandlers = (opened: (wire: Wire) => void, closed: (wire: Wire) => void = () => {}) => ({
  open(socket: Socket<Wire>) {
    socket.data = new Wire(socket)
    opened(socket.data)
  },
  data(socket: Socket<Wire>, bytes: Uint8Array) {
    socket.data.arrived(bytes)
  },
  drain(socket: Socket<Wire>) {
    socket.data.wake()
  },
  end(socket: Socket<Wire>) {
    socket.data.ended('fin')
  },
  close(socket: Socket<Wire>, error?: Error) {
    socket.data.dead = true
    socket.data.ended(error ? 'rst' : 'fin')
    closed(socket.data)
  },
  error(socket: Socket<Wire>) {
    // A TLS handshake can fail before there is a connection.
    ;(socket.data as Wire | undefined)?.ended('rst')
  },
})
