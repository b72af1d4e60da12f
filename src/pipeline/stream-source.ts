import type { Target } from '../balance/catalogue.ts'
import { Failure } from '../base/failure.ts'
import { readEvent, SseScanner } from './interim.ts'
import { TransportFailure } from '../engines/transport.ts'
import type { Usage } from './interim.ts'
import type { Read } from './attempt.ts'
import type { Routed } from './call.ts'
import { renamed } from './rename.ts'
import type { Vigil } from './vigil.ts'

/** How a stream stands after a read. `done`: `[DONE]` came. `ended`: the body ended without it. */
export type SourceState = 'open' | 'done' | 'ended' | 'cut' | 'error'

/**
 * One engine's event stream, read as whole events: what a client must not see (comments, empty records, the usage chunk
 * it did not ask for) is left out, what the gateway must know (usage, finish reasons, errors) is kept. Bytes of events
 * that go on are the engine's own.
 */
export class StreamSource {
  state: SourceState = 'open'
  usage: Usage | undefined
  finish_reason = ''
  /** Events that carried content, and its bytes. */
  content_events = 0
  text_bytes = 0
  /** Why the stream was cut, if the transport said so. */
  failure: TransportFailure | undefined
  readonly cancel: () => void
  readonly #scanner = new SseScanner()
  readonly #read: Read
  readonly #wants_usage: boolean
  readonly #alias: string | undefined
  readonly #open_choices = new Set<number>()
  #usage_events = 0
  #waiting: Uint8Array[] = []

  constructor(call: Routed, _target: Target, read: Read, cancel: () => void) {
    this.#read = read
    this.cancel = cancel
    this.#wants_usage = call.body.wants_usage
    this.#alias = call.model!.config.rewrite_model ? call.body.model : undefined
  }

  /** True once every choice that began has its finish reason. */
  get finished(): boolean {
    return this.finish_reason !== '' && this.#open_choices.size === 0
  }

  /** Reads until the first event is in hand; it stays for `next`. */
  async open(
    due_tick_ms: number,
    vigil: Vigil,
  ): Promise<
    'good' | 'empty' | 'invalid' | TransportFailure | { error: { status: number | undefined }; bytes: Uint8Array }
  > {
    for (;;) {
      vigil.awaitFirst(due_tick_ms)
      const got = await this.next()
      vigil.awaitFirst()
      if (this.error !== undefined) return { error: this.error, bytes: this.error.bytes }
      if (got.length > 0 || this.state === 'done' || this.finish_reason !== '') {
        this.#waiting = got
        return 'good'
      }
      if (this.state === 'cut') return this.failure ?? 'invalid'
      if (this.state === 'ended') return 'empty'
    }
  }

  /** The error event, once there was one; the state is `error` then. */
  error: { readonly status: number | undefined; readonly bytes: Uint8Array } | undefined

  /** The next events for the client: none is possible while the state is `open`. `[DONE]` is never among them. */
  async next(): Promise<Uint8Array[]> {
    if (this.#waiting.length > 0) {
      const waiting = this.#waiting
      this.#waiting = []
      return waiting
    }
    if (this.state !== 'open') return []
    const piece = await this.#read()
    if (piece instanceof TransportFailure) {
      this.state = 'cut'
      this.failure = piece
      return []
    }
    if (piece === null) {
      const out = this.#events(this.#scanner.end())
      if (this.state === 'open') this.state = 'ended'
      return out
    }
    return this.#events(this.#scanner.feed(piece))
  }

  /** After `[DONE]`: true if the body ends within a moment, so that its connection is free. */
  async exhausted(): Promise<boolean> {
    const late = Bun.sleep(REST_MS).then(() => undefined)
    for (;;) {
      const piece = await Promise.race([this.#read(), late])
      if (piece === null) return true
      if (piece === undefined || piece instanceof TransportFailure) return false
    }
  }

  #events(events: ReturnType<SseScanner['feed']>): Uint8Array[] {
    if (events instanceof Failure) {
      this.state = 'cut'
      this.cancel()
      return []
    }
    const out: Uint8Array[] = []
    for (const event of events) {
      if (this.state !== 'open') break
      if (event.data !== undefined && this.#passes(event.data))
        out.push(this.#alias === undefined ? event.bytes : this.#withAlias(event.data))
    }
    return out
  }

  /** Takes note of an event; false if the client must not see it. */
  #passes(data: Uint8Array): boolean {
    const event = readEvent(data)
    if (event.kind === 'done') {
      this.state = 'done'
      return false
    }
    // One bad event is the engine's slip; the rest of the answer is still good.
    if (event.kind === 'malformed') return false
    if (event.error !== undefined) {
      this.state = 'error'
      this.error = { status: event.error.status, bytes: data }
      return false
    }
    if (event.usage !== undefined) this.usage = event.usage
    for (const index of event.begun) this.#open_choices.add(index)
    for (const [index, reason] of event.finishes) {
      this.#open_choices.delete(index)
      this.finish_reason = reason
    }
    if (event.text_bytes > 0) {
      this.content_events++
      this.text_bytes += event.text_bytes
    }
    return !event.usage_only || (this.#wants_usage && this.#usage_events++ === 0)
  }

  #withAlias(data: Uint8Array): Uint8Array {
    return Buffer.concat([DATA, renamed(data, this.#alias!), END])
  }
}

/** How long the end of a body may come after its `[DONE]`. */
const REST_MS = 250
const DATA = Buffer.from('data: ')
const END = Buffer.from('\n\n')
