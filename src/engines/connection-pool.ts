import { tickMs } from '../base/clock.ts'
import { Connection, type ConnectionOwner } from './connection.ts'
import { Deadlines } from './deadlines.ts'
import type { Holder, SocketExchange } from './socket-exchange.ts'

/** Bounds of a pool. */
export type PoolOptions = {
  /** Age at which an idle connection is closed; 0 keeps none. */
  readonly idle_ms: number
  /** Connections at most, dials included, to all origins together. */
  readonly sockets_max: number
  /** Exchanges that may wait for a connection; the next one fails at once. */
  readonly waiting_max: number
}

/** Dials to one origin that outlived their deadline: the runtime cannot take a dial back, so no more are begun. */
const STALE_DIALS_MAX = 32

/** Connections to one host and port, and the exchanges that wait for one. */
type Origin = {
  readonly hostname: string
  readonly port: number
  /** The most recently used one last. */
  readonly idle: Connection[]
  /** In order of arrival. */
  readonly waiting: Set<SocketExchange>
  /** Dials that are on time. */
  dialing: number
  stale: number
  /** Connections and dials. */
  open: number
}

/**
 * Keep-alive connections per origin. An exchange takes the idle connection that was used last, or waits: first come, first
 * served, for a dial of its own or for whatever connection is free before. At `sockets_max` idle connections to other
 * origins make room, and the exchange that has waited longest of all is next. An exchange in the queue obeys its connect
 * deadline and `cancel`.
 */
export class ConnectionPool implements ConnectionOwner, Holder {
  readonly deadlines = new Deadlines()
  readonly #options: PoolOptions
  readonly #origins = new Map<string, Origin>()
  #open = 0
  #waiting = 0
  #closed = false

  constructor(options: PoolOptions) {
    this.#options = options
  }

  /** Puts the exchange on a connection, now or later. */
  run(exchange: SocketExchange): void {
    const origin = this.#originOf(exchange)
    for (let idle = origin.idle.pop(); idle !== undefined; idle = origin.idle.pop()) {
      this.deadlines.clear(idle)
      // The timer may be late, and the engine may close at any moment from here on.
      if (idle.due_tick_ms > tickMs() && idle.start(exchange)) return
      idle.destroy()
    }
    this.#enqueue(exchange, origin)
  }

  /** Closes idle connections, now and from now on. */
  close(): void {
    this.#closed = true
    for (const origin of this.#origins.values()) this.#closeIdle(origin, Infinity)
  }

  /** How many connections and dials there are, and how many exchanges wait. */
  get size(): { readonly open: number; readonly waiting: number } {
    return { open: this.#open, waiting: this.#waiting }
  }

  #originOf({ address }: SocketExchange): Origin {
    let origin = this.#origins.get(address.authority)
    if (origin === undefined) {
      const { hostname, port } = address
      origin = { hostname, port, idle: [], waiting: new Set(), dialing: 0, stale: 0, open: 0 }
      this.#origins.set(address.authority, origin)
    }
    return origin
  }

  #enqueue(exchange: SocketExchange, origin: Origin): void {
    if (this.#waiting >= this.#options.waiting_max) {
      exchange.fail('connect', new Error(`${this.#waiting} exchanges wait for a connection already`))
      return
    }
    exchange.holder = this
    exchange.waits_for = 'connect'
    if (exchange.slot < 0) this.deadlines.set(exchange, exchange.deadlines.connect_ms)
    origin.waiting.add(exchange)
    this.#waiting += 1
    this.#dialFor(origin)
  }

  /** Takes the exchange that has waited longest out of the queue. */
  #next(origin: Origin): SocketExchange | undefined {
    if (origin.waiting.size === 0) return undefined
    const [exchange] = origin.waiting
    origin.waiting.delete(exchange!)
    this.#waiting -= 1
    return exchange
  }

  /** Begins as many dials as there are exchanges without one, as far as the bounds allow. */
  #dialFor(origin: Origin): void {
    while (origin.dialing < origin.waiting.size && origin.stale < STALE_DIALS_MAX) {
      if (this.#open >= this.#options.sockets_max && !this.#evict()) return
      this.#dial(origin)
    }
  }

  #dial(origin: Origin): void {
    const [first] = origin.waiting
    const connection = new Connection(this, first!.address.authority)
    origin.dialing += 1
    origin.open += 1
    this.#open += 1
    this.deadlines.set(connection, first!.deadlines.connect_ms)
    const { hostname, port } = origin
    const socket = Connection.handlers
    // A failure is reported through `connectError` as well; here it only must not count as unhandled.
    Bun.connect<Connection>({ hostname, port, data: connection, socket }).catch(() => undefined)
  }

  /** Closes the connection that has been idle longest; false if none is idle. */
  #evict(): boolean {
    let oldest: Connection | undefined
    for (const { idle } of this.#origins.values()) {
      const first = idle[0]
      if (first && (oldest === undefined || first.due_tick_ms < oldest.due_tick_ms)) oldest = first
    }
    oldest?.destroy()
    return oldest !== undefined
  }

  /** A place is free: dials for the exchange that has waited longest of those for whom no dial runs. */
  #serveOthers(): void {
    if (this.#waiting === 0) return
    let longest: Origin | undefined
    let turn = Infinity
    for (const origin of this.#origins.values()) {
      if (origin.waiting.size <= origin.dialing || origin.stale >= STALE_DIALS_MAX) continue
      const [first] = origin.waiting
      if (first!.turn < turn) {
        turn = first!.turn
        longest = origin
      }
    }
    if (longest) this.#dialFor(longest)
  }

  #closeIdle(origin: Origin, due_tick_ms: number): void {
    while (origin.idle[0] && origin.idle[0].due_tick_ms <= due_tick_ms) origin.idle[0].destroy()
  }

  // What connections tell.

  opened(connection: Connection): void {
    const origin = this.#origins.get(connection.authority)!
    this.#dialOver(connection, origin)
    this.free(connection)
  }

  free(connection: Connection): void {
    const origin = this.#origins.get(connection.authority)!
    const next = this.#next(origin)
    if (next) {
      if (connection.start(next)) return
      connection.destroy()
      this.run(next)
      return
    }
    // At the cap, the place goes to whoever waits for another origin.
    const wanted = this.#waiting > 0 && this.#open >= this.#options.sockets_max
    if (this.#closed || wanted || this.#options.idle_ms === 0) {
      connection.destroy()
      return
    }
    origin.idle.push(connection)
    this.deadlines.set(connection, this.#options.idle_ms)
  }

  gone(connection: Connection): void {
    const origin = this.#origins.get(connection.authority)!
    this.deadlines.clear(connection)
    const at = origin.idle.indexOf(connection)
    if (at >= 0) origin.idle.splice(at, 1)
    this.#left(connection, origin)
  }

  failed(connection: Connection, error: Error): void {
    const origin = this.#origins.get(connection.authority)!
    const { stale } = connection
    this.#dialOver(connection, origin)
    const exchange = stale ? undefined : this.#next(origin)
    if (exchange) {
      this.deadlines.clear(exchange)
      exchange.fail('connect', error)
    }
    this.#left(connection, origin)
  }

  unsent(exchange: SocketExchange): void {
    this.run(exchange)
  }

  overdue(connection: Connection): void {
    const origin = this.#origins.get(connection.authority)!
    if (origin.idle.includes(connection)) {
      connection.destroy()
      return
    }
    connection.stale = true
    origin.dialing -= 1
    origin.stale += 1
    this.#dialFor(origin)
  }

  #dialOver(connection: Connection, origin: Origin): void {
    this.deadlines.clear(connection)
    if (connection.stale) origin.stale -= 1
    else origin.dialing -= 1
  }

  #left(connection: Connection, origin: Origin): void {
    this.#open -= 1
    origin.open -= 1
    if (origin.open === 0 && origin.waiting.size === 0) this.#origins.delete(connection.authority)
    this.#dialFor(origin)
    this.#serveOthers()
  }

  // What an exchange in the queue asks.

  pause(): void {}

  resume(): void {}

  drop(exchange: SocketExchange): void {
    this.deadlines.clear(exchange)
    const origin = this.#origins.get(exchange.address.authority)
    if (origin?.waiting.delete(exchange)) this.#waiting -= 1
  }
}
