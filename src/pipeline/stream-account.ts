import { markAlive } from '../balance/health.ts'
import { Failure } from '../base/failure.ts'
import type { EndingKind } from '../journal/record.ts'
import type { Routed } from './call.ts'
import { CountedPart, countedWhole, countWaitMs, expectCount, isSilent, wholeTokens } from './counted-text.ts'
import { estimated, type Tokens } from './estimate.ts'
import type { House } from './house.ts'
import type { Flight } from './flight.ts'
import { answeredBy, promptTokens } from './intent.ts'
import { leaveAll } from './place.ts'
import type { WholeAnswer } from './outcome.ts'
import type { End } from './settle.ts'
import type { Way } from './splice-stream.ts'
import type { Standing } from './spliced-usage.ts'
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
  #whole_tokens: Tokens | undefined
  /** The parts of the engines that gave the answer, the present one's last. */
  readonly #parts: CountedPart[] = []

  constructor(call: Routed, house: House) {
    this.#call = call
    this.#house = house
    this.#progress_tick_ms = house.tick()
    expectCount(call, house)
  }

  /** An engine's stream begins: the first, or the rest of an answer that broke off, asked for in some way. */
  begins(source: StreamSource, way?: Way): void {
    this.#parts.push(new CountedPart(this.#call, this.#house, source, way))
  }

  /** What the client has so far. */
  standing(): Standing {
    if (this.whole !== undefined) {
      const tokens = this.#whole_tokens ?? wholeTokens(this.whole, this.#call)
      return { tokens, by_engine: this.whole.facts.usage !== undefined }
    }
    this.#prompt_tokens ??= promptTokens(this.#call)
    let standing: Standing | undefined
    for (const part of this.#parts) standing = part.standing(standing, this.#prompt_tokens)
    return standing ?? { tokens: estimated(this.#prompt_tokens, 0), by_engine: false }
  }

  /**
   * Has counted what was generated and its engine did not count, so that {@link standing} knows it; undefined if there is
   * nothing of the kind. What is known so far is written down, so that a crash meanwhile bills it; and the engine, and the
   * places that the call takes, do not wait for it.
   */
  counted(source: StreamSource | undefined, flight: Pick<Flight, 'cancel'>): Promise<unknown> | undefined {
    const { whole } = this
    if (whole !== undefined && whole.facts.usage === undefined) {
      if (this.#house.counter !== undefined) this.#write()
      return countedWhole(whole, this.#call, this.#house).then((tokens) => (this.#whole_tokens = tokens))
    }
    // An engine that counted the rest counted on what its client was shown of the parts before.
    if (source === undefined || (source.counted && !source.diverged)) return undefined
    if (source.state === 'done') isSilent(this.#call.target?.engine)
    const due = this.#parts.filter((part) => part.due)
    if (due.length === 0 || this.#house.counter === undefined) return undefined
    this.#write()
    if (source.state !== 'done') flight.cancel()
    leaveAll(this.#call, this.#house)
    const within_ms = countWaitMs(this.#call, this.#house)
    return Promise.all(due.map((part) => part.settle(within_ms)))
  }

  /** Counts bytes that went to the client; pings are no part of the answer. */
  sent(bytes: Uint8Array): void {
    this.#hash.update(bytes)
    this.#house.metrics.add('bytes_out', bytes.length)
    const { target } = this.#call
    if (target !== undefined) markAlive(this.#house.table, target.engine.subject, this.#house.now())
  }

  /** Writes a long answer down now and then. */
  note(now_tick_ms: number = this.#house.tick()): void {
    this.#parts.at(-1)?.follow()
    if (now_tick_ms - this.#progress_tick_ms < PROGRESS_MS) return
    this.#progress_tick_ms = now_tick_ms
    this.#write()
  }

  #write(): void {
    // What room there is when no new call may begin is for endings; without progress a crash bills a little less.
    if (!this.#house.journal.has_room()) return
    const { tokens, by_engine } = this.standing()
    const { prompt_tokens, completion_tokens } = tokens
    const position = this.#house.journal.append({
      kind: 'progress',
      call_id: this.#call.id,
      at_ms: this.#house.now(),
      prompt_tokens,
      completion_tokens,
      usage_source: by_engine ? 'engine' : 'estimated',
      ...answeredBy(this.#call),
    })
    if (position instanceof Failure)
      this.#house.log('warn', 'progress_not_recorded', { call_id: this.#call.id, because: position.code })
  }

  /**
   * What the ending of the call says. `source` is undefined if no stream ever began: then a client that left pays for
   * its prompt if an engine can have had a byte of it.
   */
  end(
    ending: EndingKind,
    source: StreamSource | undefined,
    failure: string,
    { reached }: Pick<Flight, 'reached'>,
  ): End {
    const { tokens, by_engine } = this.standing()
    const billed = source !== undefined || this.whole !== undefined || (ending === 'cut_by_client' && reached)
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
