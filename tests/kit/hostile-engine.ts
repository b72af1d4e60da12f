import { testCertificate } from './certificate.ts'
import { play } from './player.ts'
import { json, type Script } from './script.ts'
import { readBody, readHead, type RequestHead } from './request-reader.ts'
import { Wire, wireHandlers, type Gone } from './wire.ts'
import { eventually } from './wait.ts'

/** A request as it came, byte for byte. Times are `performance.now()`. */
export type Seen = RequestHead & {
  readonly index: number
  /** Number of its connection, from 0. */
  readonly connection: number
  /** When its head was complete. */
  readonly arrived_at_ms: number
  /** Without transfer coding. Empty until it is `whole`. */
  body: Buffer
  whole: boolean
  /** `answering` until the script's end was sent, `cut` by the engine, or the client left first. */
  state: 'answering' | 'answered' | 'cut' | 'client_left'
  /** Bytes of the answer given to the socket so far, heads and framing included. */
  answer_bytes: number
  /** How the client left while the answer was not over. */
  hang_up: (Gone & { readonly after_ms: number }) | undefined
  text(): string
  json(): any
}

export type Connection = {
  readonly number: number
  readonly opened_at_ms: number
  requests: number
  /** How it ended, by whom, and when. */
  readonly closed: Gone | undefined
}

export type HostileOptions = {
  /**
   * Played in turn, the last one again and again; or chosen by the request. Starts once the request is whole, or for
   * an `early` engine once its head is in.
   */
  readonly answers: readonly Script[] | ((request: Seen) => Script)
  readonly early?: boolean
  readonly port?: number
  /** GET requests (probes, scrapes) are answered with an empty list by themselves and kept apart in `probes`, unless true. */
  readonly script_gets?: boolean
  /** Closes a connection that has been idle so long. */
  readonly idle_close_ms?: number
  /** Played as soon as a connection opens. */
  readonly on_connect?: Script
  /** A FIN of the client does not stop the script (by default it does, as in uvicorn). */
  readonly half_open?: boolean
  /** Speaks TLS under the kit's own certificate, at an `https://` address. */
  readonly tls?: boolean
}

export type HostileEngine = AsyncDisposable & {
  readonly port: number
  readonly origin: string
  /** `origin` + `/v1`. */
  readonly url: string
  /** Everything but probes, in order of arrival. */
  readonly requests: Seen[]
  readonly probes: Seen[]
  readonly connections: readonly Connection[]
  /** Calls under way now, and the most there were at once. Probes do not count. */
  readonly calls: { now: number; max: number }
  /** Replaces the scripts; the turn starts again. */
  play(answers: HostileOptions['answers']): void
  /** Waits for the request to arrive whole (its head, of an `early` engine). */
  request(index: number, within_ms?: number): Promise<Seen>
  /** Waits until the client left during the answer; an error if the answer came to its end or time ran out. */
  hangUp(index: number, within_ms?: number): Promise<NonNullable<Seen['hang_up']>>
  stop(): Promise<void>
}

/** A scripted engine over raw TCP on 127.0.0.1, with full control of the bytes. */
export const startHostileEngine = (options: HostileOptions): HostileEngine => {
  let answers = options.answers
  let turn = 0
  const wires = new Set<Wire>()
  const engine = {
    requests: [] as Seen[],
    probes: [] as Seen[],
    connections: [] as Connection[],
    calls: { now: 0, max: 0 },
  }
  const scriptFor = (request: Seen): Script => {
    if (request.method === 'GET' && !options.script_gets) return json(200, { object: 'list', data: [] })
    if (typeof answers === 'function') return answers(request)
    return answers[Math.min(turn++, answers.length - 1)] ?? []
  }
  const listener = Bun.listen<Wire>({
    hostname: '127.0.0.1',
    port: options.port ?? 0,
    allowHalfOpen: true,
    ...(options.tls && { tls: testCertificate() }),
    socket: wireHandlers(
      (wire) => {
        wires.add(wire)
        const connection = connectionOf(wire, engine.connections.length)
        engine.connections.push(connection)
        void serve(wire, connection)
      },
      (wire) => wires.delete(wire),
    ),
  })

  const serve = async (wire: Wire, connection: Connection): Promise<void> => {
    if (options.on_connect) await play(wire, options.on_connect, undefined, options.half_open)
    while (!wire.dead) {
      const found = await readHead(wire, options.idle_close_ms ?? 3_600_000)
      if (found === undefined) return wire.close()
      const probe = found.method === 'GET' && !options.script_gets
      const list = probe ? engine.probes : engine.requests
      const request = seen(found, list.length, connection.number)
      list.push(request)
      connection.requests++
      if (!probe) engine.calls.max = Math.max(engine.calls.max, ++engine.calls.now)
      const whole = readBody(wire, found).then((body) => {
        if (body) request.body = body
        return (request.whole = body !== undefined)
      })
      if (options.early || (await whole)) await play(wire, scriptFor(request), request, options.half_open)
      settle(wire, request)
      if (!probe) engine.calls.now--
      if (request.state !== 'answered' || !(await whole)) return wire.close()
    }
  }

  const origin = `${options.tls ? 'https' : 'http'}://127.0.0.1:${listener.port}`
  const stop = async () => {
    listener.stop(false)
    for (const wire of wires) wire.reset()
  }
  return {
    ...engine,
    port: listener.port,
    origin,
    url: `${origin}/v1`,
    play(next) {
      answers = next
      turn = 0
    },
    request: (index, within_ms = 2_000) =>
      eventually(() => {
        const request = engine.requests[index]
        if (request && (request.whole || options.early)) return request
        throw new Error(`request ${index} did not arrive ${request ? 'whole' : `; ${engine.requests.length} did`}`)
      }, within_ms),
    hangUp: async (index, within_ms = 2_000) => {
      const found = await eventually(() => {
        const request = engine.requests[index]
        if (request?.hang_up || request?.state === 'answered' || request?.state === 'cut') return request
        throw new Error(`the client of request ${index} did not hang up (${request?.state ?? 'no such request'})`)
      }, within_ms)
      if (!found.hang_up) throw new Error(`the client of request ${index} did not hang up: ${found.state}`)
      return found.hang_up
    },
    stop,
    [Symbol.asyncDispose]: stop,
  }
}

const connectionOf = (wire: Wire, number: number): Connection => ({
  number,
  opened_at_ms: wire.opened_at_ms,
  requests: 0,
  get closed() {
    return wire.gone
  },
})

const seen = (head: RequestHead, index: number, connection: number): Seen => ({
  ...head,
  index,
  connection,
  arrived_at_ms: performance.now(),
  body: Buffer.alloc(0),
  whole: false,
  state: 'answering',
  answer_bytes: 0,
  hang_up: undefined,
  text() {
    return this.body.toString()
  },
  json() {
    return JSON.parse(this.text())
  },
})

const settle = (wire: Wire, request: Seen): void => {
  if (request.state !== 'answering') return
  if (wire.gone?.by === 'peer') {
    request.state = 'client_left'
    request.hang_up = { ...wire.gone, after_ms: wire.gone.at_ms - request.arrived_at_ms }
  } else request.state = 'cut'
}
