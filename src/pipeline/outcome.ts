import type { Verdict } from '../balance/verdict.ts'
import type { Failure } from '../base/failure.ts'
import type { AnswerFacts } from '../engines/openai-events.ts'
import type { Reading } from './reading.ts'
import type { StreamSource } from './stream-source.ts'

/** An answer that goes to the client. */
export type Answer = WholeAnswer | StreamAnswer | Refusal

/** A good body that is no stream, read to its end. */
export type WholeAnswer = {
  readonly kind: 'whole'
  readonly bytes: Uint8Array
  readonly content_type: string
  readonly facts: AnswerFacts
  readonly first_byte_ms: number
}

/** A stream whose first event is in hand. */
export type StreamAnswer = {
  readonly kind: 'stream'
  readonly source: StreamSource
  readonly reading: Reading
  /** Until the first event. */
  readonly first_byte_ms: number
}

/** The engine's own error, for the client as the engine wrote it. */
export type Refusal = {
  readonly kind: 'refusal'
  readonly status: number
  readonly bytes: Uint8Array
  readonly content_type: string
  readonly retry_after_s: number | undefined
}

/** An attempt that got no answer. */
export class Miss {
  readonly verdict: Verdict
  /** What the client gets if nobody else answers. */
  readonly shown: Refusal | Failure
  /** A failure code or the engine's status, for the journal and the log. */
  readonly because: string
  /** The engine's wish, bounded. */
  readonly retry_after_ms: number | undefined
  /** For the log. */
  readonly cause: unknown
  /** The connection had died of idleness: the same engine may be asked once more, over a fresh one. */
  readonly stale: boolean
  constructor(
    verdict: Verdict,
    shown: Refusal | Failure,
    because: string,
    more: { readonly retry_after_ms?: number | undefined; readonly cause?: unknown; readonly stale?: boolean } = {},
  ) {
    this.verdict = verdict
    this.shown = shown
    this.because = because
    this.retry_after_ms = more.retry_after_ms
    this.cause = more.cause
    this.stale = more.stale ?? false
  }
}
