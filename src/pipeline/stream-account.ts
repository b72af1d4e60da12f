import { Failure } from '../base/failure.ts'
import type { EndingKind } from '../journal/record.ts'
import type { Routed } from './call.ts'
import { estimated, streamTokens } from './estimate.ts'
import type { House } from './house.ts'
import { promptTokens } from './intent.ts'
import type { WholeAnswer } from './outcome.ts'
import { wholeTokens } from './relay-whole.ts'
import type { End } from './settle.ts'
import type { Way } from './splice-stream.ts'
import { type Standing, splicedUsage } from './spliced-usage.ts'
import type { StreamSource } from './stream-source.ts'

/** A long stream is written down so often, so that a crash bills what was delivered. */
const PROGRESS_MS = 2_000

/** What a stream delivered, and what it cost so far. */
export class StreamAccount {
  /** Set when a plain answer was sent as an event. */
  whole: WholeAnswer | undefined
  readonly #call: Routed
  readonly #house: House
  readonly #hash = new Bun.CryptoHasher('sha256')
  #progress_tick_ms: number
  #prompt_tokens: number | undefined
  /** What came before the present engine's part, and how that part was asked for. */
  #before: { readonly way: Way; readonly standing: Standing } | undefined

  constructor(call: Routed, house: House) {
    this.#call = call
    this.#house = house
    this.#progress_tick_ms = house.tick()
  }

  /** What the client has so far. */
  standing(source: StreamSource | undefined): Standing {
    const counted = source === undefined ? 0 : streamTokens(source.text_events, source.text_bytes)
    if (this.#before !== undefined && source !== undefined)
      return splicedUsage(this.#before.way, this.#before.standing, source.usage, counted, source.diverged)
    if (source?.usage !== undefined) return { tokens: source.usage, by_engine: true }
    if (this.whole !== undefined)
      return { tokens: wholeTokens(this.whole, this.#call), by_engine: this.whole.facts.usage !== undefined }
    this.#prompt_tokens ??= promptTokens(this.#call)
    return { tokens: estimated(this.#prompt_tokens, counted), by_engine: false }
  }

  /** The answer goes on at another engine. */
  goesOn(way: Way, standing: Standing): void {
    this.#before = { way, standing }
  }

  /** Counts bytes that went to the client; pings are no part of the answer. */
  sent(bytes: Uint8Array): void {
    this.#hash.update(bytes)
    this.#house.metrics.add('bytes_out', bytes.length)
  }

  /** Writes a long answer down now and then. */
  note(source: StreamSource, now_tick_ms: number = this.#house.tick()): void {
    if (now_tick_ms - this.#progress_tick_ms < PROGRESS_MS) return
    this.#progress_tick_ms = now_tick_ms
    const { tokens, by_engine } = this.standing(source)
    const { prompt_tokens, completion_tokens } = tokens
    const position = this.#house.journal.append({
      kind: 'progress',
      call_id: this.#call.id,
      at_ms: this.#house.now(),
      prompt_tokens,
      completion_tokens,
      usage_source: by_engine ? 'engine' : 'estimated',
    })
    // The ending has its room; without progress a crash bills a little less.
    if (position instanceof Failure)
      this.#house.log('warn', 'progress_not_recorded', { call_id: this.#call.id, because: position.code })
  }

  /** What the ending of the call says. `source` is undefined if no stream ever began. */
  end(ending: EndingKind, source: StreamSource | undefined, failure: string): End {
    const { tokens, by_engine } = this.standing(source)
    const billed = source !== undefined || this.whole !== undefined || ending === 'cut_by_client'
    return {
      ending,
      status: 200,
      failure,
      finish_reason: source?.finish_reason ?? this.whole?.facts.finishes[0]?.reason ?? '',
      ...(billed && { usage: tokens }),
      usage_source: billed && !by_engine ? 'estimated' : 'engine',
      response_sha256: new Uint8Array(this.#hash.digest()),
    }
  }
}
