import { tickMs } from '../base/clock.ts'
import { Connection, type ConnectionOwner, type Origin } from './connection.ts'
import { Deadlines } from './deadlines.ts'
import type { DescriptorReserve } from './descriptor-reserve.ts'
import type { Holder, Lane, SocketExchange } from './socket-exchange.ts'

/** Bounds of a pool. */
export type PoolOptions = {
  /** Connections at most, dials included, to all origins together. */
  readonly sockets_max: number
  /** Exchanges that may wait for a connection, 16,384 unless given; the next one fails at once. */
  readonly waiting_max?: number
  /** Lends each connection its descriptor. */
  readonly reserve?: DescriptorReserve | undefined
}

/** Engines are few; origins beyond this that hold nothing are forgotten. */
const ORIGINS_MAX = 1_024
const WAITING_MAX = 16_384

/**
 * Keep-alive connections per origin. An exchange takes the idle connection that was used last, or waits: first come, first
 * served, for a dial of its own or for whatever connection is free before. At `sockets_max` idle connections to other
 * origins make room, and the exchange that has waited longest of all is next. An exchange in the queue obeys its connect
 * deadline and `cancel`. Dials to one origin take at most a quarter of the places, so that an engine which never accepts
 * leaves the others theirs: the runtime cannot take a dial back, and the kernel goes on with it for minutes.
 */
export class ConnectionPool implements ConnectionOwner, Holder {
  readonly deadlines = new Deadlines()
  readonly #sockets_max: number
  readonly #waiting_max: number
  readonly #reserve: DescriptorReserve | undefined
  readonly #origins = new Map<string, Origin>()
  #open = 0
  #waiting = 0
  #turns = 0
  #dials = false

  constructor(options: PoolOptions) {
    this.#sockets_max = options.sockets_max
    this.#waiting_max = options.waiting_max ?? WAITING_MAX
    this.#reserve = options.reserve
  }

  /** Puts the exchange on a connection, now or later. */
  run(exchange: SocketExchange): void {
    const origin = this.#originOf(exchange)
    for (let idle = origin.idle.pop(); idle !== undefined; idle = origin.idle.pop()) {
      this.deadlines.clear(idle)
      // The timer may be late, and the engine may close at any moment from here on.
      if (idle.due_tick_ms > tickMs() && idle.start(exchange)) return
      idle.retire()
    }
    this.#enqueue(exchange, origin)
  }

  /** Closes the idle connections of a lane. */
  close(lane: Lane): void {
    for (const { idle } of this.#origins.values())
      for (const connection of idle.filter((one) => one.lane === lane)) connection.retire()
  }

  /** How many connections and dials there are, and how many exchanges wait. */
  get size(): { readonly open: number; readonly waiting: number } {
    return { open: this.#open, waiting: this.#waiting }
  }

  #originOf({ address }: SocketExchange): Origin {
    let origin = this.#origins.get(address.authority)
    if (origin === undefined) {
      if (this.#origins.size >= ORIGINS_MAX) this.#forget()
      const { hostname, port } = address
      origin = { hostname, port, idle: [], waiting: new Set(), dialing: 0, stale: 0, open: 0 }
      this.#origins.set(address.authority, origin)
    }
    return origin
  }

  #forget(): void {
    for (const [authority, { open, waiting }] of this.#origins)
      if (open === 0 && waiting.size === 0) this.#origins.delete(authority)
  }

  #enqueue(exchange: SocketExchange, origin: Origin): void {
    if (this.#waiting >= this.#waiting_max) {
      this.deadlines.clear(exchange)
      exchange.fail('connect', new Error(`${this.#waiting} exchanges wait for a connection already`))
      return
    }
    exchange.holder = this
    exchange.waits_for = 'connect'
    exchange.turn = this.#turns++
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
    // A dial can fail, and an eviction ends, before the call returns: the loop goes on, instead of one within it.
    if (this.#dials) return
    this.#dials = true
    while (this.#wantsDial(origin) && (this.#open < this.#sockets_max || this.#evict())) this.#dial(origin)
    this.#dials = false
  }

  #wantsDial({ dialing, stale, waiting }: Origin): boolean {
    return dialing < waiting.size && dialing + stale < Math.ceil(this.#sockets_max / 4)
  }

  #dial(origin: Origin): void {
    const [first] = origin.waiting
    const connection = new Connection(this, origin, first!.lane)
    origin.dialing += 1
    origin.open += 1
    this.#open += 1
    this.deadlines.set(connection, first!.deadlines.connect_ms)
    const { hostname, port } = origin
    const socket = Connection.handlers
    this.#reserve?.lend()
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
    oldest?.retire()
    return oldest !== undefined
  }

  /** The origin of the exchange that has waited longest, of those for whom a dial could begin. */
  #longestWaiting(): Origin | undefined {
    let longest: Origin | undefined
    let turn = Infinity
    if (this.#waiting === 0) return undefined
    for (const origin of this.#origins.values()) {
      if (!this.#wantsDial(origin)) continue
      const [first] = origin.waiting
      if (first!.turn >= turn) continue
      turn = first!.turn
      longest = origin
    }
    return longest
  }

  // What connections tell.

  opened(connection: Connection): void {
    const { origin } = connection
    this.#dialOver(connection)
    this.free(connection)
    this.#dialFor(origin)
  }

  free(connection: Connection): void {
    const { origin } = connection
    const next = this.#next(origin)
    if (next) {
      if (connection.start(next)) return
      connection.retire()
      this.run(next)
      return
    }
    // At the cap, the place goes to whoever waits for another origin.
    const wanted = this.#open >= this.#sockets_max && this.#longestWaiting() !== undefined
    if (wanted || connection.lane.idle_ms === 0) {
      connection.retire()
      return
    }
    origin.idle.push(connection)
    this.deadlines.set(connection, connection.lane.idle_ms)
  }

  gone(connection: Connection): void {
    const { origin } = connection
    this.deadlines.clear(connection)
    const at = origin.idle.indexOf(connection)
    if (at >= 0) origin.idle.splice(at, 1)
    this.#left(origin)
  }

  failed(connection: Connection, error: Error): void {
    const { origin } = connection
    this.#dialOver(connection)
    const exchange = connection.stale ? undefined : this.#next(origin)
    if (exchange) {
      this.deadlines.clear(exchange)
      exchange.fail('connect', error)
    }
    this.#left(origin)
  }

  unsent(exchange: SocketExchange): void {
    this.run(exchange)
  }

  overdue(connection: Connection): void {
    const { origin } = connection
    if (origin.idle.includes(connection)) return connection.retire()
    connection.stale = true
    origin.dialing -= 1
    origin.stale += 1
    this.#dialFor(origin)
  }

  #dialOver(connection: Connection): void {
    this.deadlines.clear(connection)
    if (connection.stale) connection.origin.stale -= 1
    else connection.origin.dialing -= 1
  }

  /** A place is free. */
  #left(origin: Origin): void {
    origin.open -= 1
    this.#open -= 1
    this.#reserve?.giveBack()
    const longest = this.#longestWaiting()
    if (longest) this.#dialFor(longest)
  }

  // What an exchange in the queue asks.

  /** Nothing is read for an exchange that waits. */
  pause(): void {}

  resume(): void {}

  drop(exchange: SocketExchange): void {
    this.deadlines.clear(exchange)
    const origin = this.#origins.get(exchange.address.authority)
    if (origin?.waiting.delete(exchange)) this.#waiting -= 1
  }
}
