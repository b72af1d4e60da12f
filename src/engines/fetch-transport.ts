import { Deadlines, type Timed } from './deadlines.ts'
import { assertHeaders } from './request-head.ts'
import {
  type Exchange,
  type Transport,
  type TransportFailureKind,
  type UpstreamDeadlines,
  type UpstreamRequest,
  type UpstreamResponse,
  TransportFailure,
} from './transport.ts'

/** How a transport over `fetch` keeps its connections. */
export type FetchTransportOptions = {
  /** Age at which an idle connection is closed; 0 closes each after its answer. */
  readonly idle_ms: number
  /** Idle connections kept at most. */
  readonly sockets_max: number
  /** Certificates in PEM that the engine's is checked by; the machine's if absent. */
  readonly ca?: string
}

/**
 * The transport for `https://` engines, over Bun's `fetch` with a pool of its own. What `fetch` hides, it cannot promise:
 *
 * - It does not tell a connection from a first byte: one deadline of `connect_ms` + `first_byte_ms` runs to the head and
 *   ends in `first_byte_timeout`. `sent` is true unless the failure is one of connecting.
 * - A GET or DELETE that meets a reset on a reused connection is sent again by the runtime; a POST is not.
 * - The runtime holds at most BUN_CONFIG_MAX_HTTP_REQUESTS exchanges in flight (256 unless the launcher raises it); the
 *   next ones wait inside `fetch`, under the same deadline and obeying `cancel`.
 * - Its pool rounds idle times up to steps of 4 s and takes up to two more. So connections are also closed once the
 *   whole transport has been quiet for `idle_ms`; under steady traffic a single one may idle up to 8 s longer.
 */
export const openFetchTransport = (options: FetchTransportOptions): Transport => {
  const lane = new Lane(options)
  return {
    send: (request, deadlines) => new FetchExchange(lane, request, deadlines),
    close: () => lane.session.close(),
  }
}

/** What the exchanges of one transport share. */
class Lane {
  readonly session: Bun.FetchSession
  readonly deadlines = new Deadlines()
  readonly tls: { readonly ca: string } | undefined
  readonly #idle_ms: number
  readonly #quiet: Timed
  #in_flight = 0

  constructor(options: FetchTransportOptions) {
    const session = new Bun.FetchSession({
      keepAlive:
        options.idle_ms === 0
          ? false
          : { idleTimeout: Math.ceil(options.idle_ms / 1000), maxIdleSockets: options.sockets_max },
    })
    this.session = session
    this.#idle_ms = options.idle_ms
    this.tls = options.ca === undefined ? undefined : { ca: options.ca }
    this.#quiet = { due_tick_ms: 0, slot: -1, expire: () => session.close() }
  }

  enter(): void {
    this.#in_flight += 1
    this.deadlines.clear(this.#quiet)
  }

  leave(): void {
    this.#in_flight -= 1
    if (this.#in_flight === 0 && this.#idle_ms > 0) this.deadlines.set(this.#quiet, this.#idle_ms)
  }
}

type HeadResult = UpstreamResponse | TransportFailure

class FetchExchange implements Exchange, Timed {
  readonly head: Promise<HeadResult>
  due_tick_ms = 0
  slot = -1
  readonly #lane: Lane
  readonly #abort = new AbortController()
  /** Why the exchange was given up; the first reason stays. */
  #reason: TransportFailureKind | undefined
  #over = false

  constructor(lane: Lane, request: UpstreamRequest, deadlines: UpstreamDeadlines) {
    this.#lane = lane
    assertHeaders(request.headers)
    lane.enter()
    lane.deadlines.set(this, deadlines.connect_ms + deadlines.first_byte_ms)
    const body = bodyOf(request.body)
    this.head = lane.session
      .fetch(request.url, {
        method: request.method,
        headers: request.headers as [string, string][],
        ...(body && { body }),
        ...(lane.tls && { tls: lane.tls }),
        redirect: 'manual',
        decompress: false,
        timeout: false,
        signal: this.#abort.signal,
      } as BunFetchRequestInit)
      .then(this.#answered, this.#failedBeforeHead)
  }

  cancel(): void {
    this.#giveUp('cancelled')
  }

  expire(): void {
    this.#giveUp('first_byte_timeout')
  }

  /** The exchange holds nothing any more. */
  end(): void {
    if (this.#over) return
    this.#over = true
    this.#lane.deadlines.clear(this)
    this.#lane.leave()
  }

  failure(kind: TransportFailureKind, error: unknown): TransportFailure {
    this.end()
    const why = this.#reason ?? kind
    return new TransportFailure(why, why !== 'connect', error)
  }

  #giveUp(reason: TransportFailureKind): void {
    if (this.#over) return
    this.#reason ??= reason
    this.end()
    this.#abort.abort()
  }

  readonly #answered = (response: Response): HeadResult => {
    if (this.#reason) return this.failure(this.#reason, undefined)
    this.#lane.deadlines.clear(this)
    return new FetchResponse(this, response)
  }

  readonly #failedBeforeHead = (error: unknown): TransportFailure => {
    const code = codeOf(error)
    if (!this.#reason && (code === '' || code.startsWith('ERR_'))) {
      // The caller's bug, such as a URL that is none or a GET with a body.
      this.end()
      throw error
    }
    return this.failure(NOT_CONNECTED.test(code) ? 'connect' : RESET.test(code) ? 'reset' : 'invalid', error)
  }
}

class FetchResponse implements UpstreamResponse {
  readonly status: number
  readonly close_delimited: boolean
  readonly #exchange: FetchExchange
  readonly #headers: Headers
  readonly #reader: ReadableStreamDefaultReader<Uint8Array> | undefined
  #end: null | TransportFailure | undefined

  constructor(exchange: FetchExchange, response: Response) {
    this.#exchange = exchange
    this.#headers = response.headers
    this.status = response.status
    const body = response.body
    this.#reader = body?.getReader() as ReadableStreamDefaultReader<Uint8Array> | undefined
    this.close_delimited =
      body !== null && !this.#headers.has('content-length') && !this.#headers.has('transfer-encoding')
    if (body === null) this.#finish(null)
  }

  header(name: string): string | undefined {
    return this.#headers.get(name) ?? undefined
  }

  async read(): Promise<Uint8Array | null | TransportFailure> {
    while (this.#end === undefined) {
      try {
        const { done, value } = await this.#reader!.read()
        if (done) this.#finish(null)
        else if (value.length > 0) return value
      } catch (error) {
        this.#finish(this.#exchange.failure(RESET.test(codeOf(error)) ? 'cut' : 'invalid', error))
      }
    }
    return this.#end
  }

  inHand(): null | TransportFailure | undefined {
    return this.#end
  }

  #finish(end: null | TransportFailure): void {
    this.#end = end
    this.#exchange.end()
  }
}

/** Codes of the runtime that mean that no connection came about, so that no byte of the request was sent. */
const NOT_CONNECTED =
  /^(ECONNREFUSED|ConnectionRefused|FailedToOpenSocket|ENOTFOUND|EAI_\w+|E(NET|HOST)UNREACH|EADDRNOTAVAIL|EMFILE|ENFILE|.*(CERT|TLS|SSL).*|UNABLE_TO_\w+)$/i
const RESET = /^(ECONNRESET|EPIPE|ConnectionClosed|ETIMEDOUT)$/

const codeOf = (error: unknown): string => {
  const code = (error as { code?: unknown } | undefined)?.code
  return typeof code === 'string' ? code : ''
}

const bodyOf = (pieces: readonly Uint8Array[]): Uint8Array | undefined =>
  pieces.length <= 1 ? pieces[0] : Buffer.concat(pieces)
