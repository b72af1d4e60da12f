/** How Weir talks to an engine: one interface, a contract suite, and two implementations (`fetch`, pooled sockets). */

export type UpstreamRequest = {
  readonly method: 'GET' | 'POST' | 'DELETE'
  /** Absolute, built by `joinUrl`. */
  readonly url: string
  /**
   * From an allow-list; `host`, `content-length` and `connection` are the transport's own. Names in lower case. A name
   * or value that RFC 9110 §5 does not allow is a bug of the caller: `send` throws a TypeError.
   */
  readonly headers: readonly (readonly [name: string, value: string])[]
  /** Pieces sent one after the other; empty for no body. They must not change until the exchange is over. */
  readonly body: readonly Uint8Array[]
}

export type UpstreamDeadlines = {
  /** Until the connection is up. */
  readonly connect_ms: number
  /** From the moment the request is written until the response head is in. */
  readonly first_byte_ms: number
}

/** Why an exchange failed. Nothing else ever comes out of a transport: it rejects only for bugs. */
export type TransportFailureKind =
  | 'connect' // refused, unreachable, DNS, TLS
  | 'connect_timeout'
  | 'first_byte_timeout'
  | 'reset' // closed or reset before the response head was whole
  | 'invalid' // an answer that is not HTTP/1.1, can be read in two ways, or exceeds a bound
  | 'cut' // closed or reset after the head, before the declared end of the body
  | 'cancelled' // by us

export class TransportFailure {
  readonly kind: TransportFailureKind
  /** True if a byte of the request may have reached the engine: a retry can then run the call twice. */
  readonly sent: boolean
  /** For the log, never for the client. */
  readonly cause: unknown
  /**
   * True if the exchange ran on a connection that had served another before: a `reset` there most often means that the
   * engine had closed it while it was idle. False where the transport cannot know.
   */
  readonly reused: boolean
  constructor(kind: TransportFailureKind, sent: boolean, cause?: unknown, reused = false) {
    this.kind = kind
    this.sent = sent
    this.cause = cause
    this.reused = reused
  }
}

export type UpstreamResponse = {
  readonly status: number
  /** Value of a header, by lower-case name; several lines are joined with ", ". */
  header(name: string): string | undefined
  /**
   * The next piece of the body, `null` at its declared end, a failure if it was cut. One call at a time; what is not
   * read is not pulled from the engine (backpressure). The bytes are the caller's to keep. A body that is not read to
   * its end must be cancelled, or its connection stays taken.
   */
  read(): Promise<Uint8Array | null | TransportFailure>
  /** What `read` would give without a wait; undefined if it would wait. Not while a `read` is under way. */
  inHand(): Uint8Array | null | TransportFailure | undefined
  /** True when the end of the body is the end of the connection, so a cut cannot be told from an end. */
  readonly close_delimited: boolean
}

export type Exchange = {
  readonly head: Promise<UpstreamResponse | TransportFailure>
  /** Gives the exchange up at once: the engine sees the connection close. Idempotent; harmless after the end. */
  cancel(): void
}

export type Transport = {
  /** Starts an exchange. Redirects are not followed, bodies are not decompressed, nothing is retried. */
  send(request: UpstreamRequest, deadlines: UpstreamDeadlines): Exchange
  /** Closes idle connections; exchanges under way go on. */
  close(): void
}
