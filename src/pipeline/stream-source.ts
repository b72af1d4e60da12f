import { Failure } from '../base/failure.ts'
import type { AnswerError } from '../engines/answer-error.ts'
import { AnswerReader } from '../engines/answer-reader.ts'
import type { AnswerFacts } from '../engines/openai-events.ts'
import { type Edit, removeMember, splice as spliced } from '../engines/json-splice.ts'
import { jsonRange } from '../engines/json-value.ts'
import { SseScanner } from '../engines/sse-scanner.ts'
import { TransportFailure } from '../engines/transport.ts'
import type { Usage } from '../engines/usage.ts'
import type { Delivered } from './delivered.ts'
import { CLOSING, eventOf } from './event-bytes.ts'
import { GeneratedText } from './generated-text.ts'
import type { Splice } from './splice-stream.ts'

/** How a stream stands. `done`: `[DONE]` came. `ended`: the body ended without it. `error`: an error event came. */
export type SourceState = 'open' | 'done' | 'ended' | 'cut' | 'error'

/** What a stream's client asked for. */
export type StreamWishes = {
  /** It asked for the usage chunk. */
  readonly usage: boolean
  /** Usage that stands beside a choice was asked for by the gateway alone. */
  readonly hides_usage?: boolean
  /** Choices that it asked for, at least. */
  readonly choices: number
  /** The model's name as the client knows it, if answers are to show that. */
  readonly alias: string | undefined
  /** Takes note of what goes out, if it may have to go on elsewhere. */
  readonly delivered?: Delivered | undefined
  /** Makes it the rest of another engine's answer. */
  readonly splice?: Splice | undefined
}

/**
 * One engine's event stream, filtered: what a client must not see (comments, empty records, broken JSON, the usage
 * chunk that it did not ask for) is left out, what the gateway must know (usage, finish reasons, errors) is kept. Bytes
 * of events that go on are the engine's own; neighbours go on as one piece. Does no reading itself: see `take`.
 */
export class StreamSource {
  state: SourceState = 'open'
  /** The engine's own count, the last one. */
  usage: Usage | undefined
  /** The last finish reason; empty before the first. */
  finish_reason = ''
  /** True once any sound event came. */
  begun = false
  /** What was generated since the engine last told its count. */
  readonly text = new GeneratedText()
  /** Events that were left out because their data was not JSON. */
  malformed_events = 0
  /** The error event, once the state is `error`: what it says, and its JSON as it came, if it was JSON. */
  error: AnswerError | undefined
  error_bytes: Uint8Array | undefined
  /** `[DONE]` as the engine wrote it. */
  done_bytes: Uint8Array | undefined
  /** Why the stream was cut. */
  failure: TransportFailure | Failure | undefined
  readonly #scanner = new SseScanner()
  readonly #reader = new AnswerReader()
  readonly #wishes: StreamWishes
  readonly #alias_json: Uint8Array | undefined
  readonly #finished = new Set<number>()
  #choices: number
  #usage_shown = false
  /** Pieces for the client, and the last run of events that stands together in one buffer. */
  #pieces: Uint8Array[] = []
  #run: Uint8Array | undefined
  #run_start = 0
  #run_end = 0

  constructor(wishes: StreamWishes) {
    this.#wishes = wishes
    this.#choices = wishes.choices
    if (wishes.alias !== undefined) this.#alias_json = Buffer.from(JSON.stringify(wishes.alias))
  }

  /** True once every choice has its finish reason. */
  get finished(): boolean {
    return this.#finished.size >= this.#choices
  }

  /** True if it is no sound rest of what the client has. */
  get diverged(): boolean {
    const { splice } = this.#wishes
    return splice !== undefined && (splice.diverged || (this.state === 'done' && !splice.complete()))
  }

  /** True if there are bytes for the client. */
  get has_output(): boolean {
    return this.#run !== undefined || this.#pieces.length > 0
  }

  /** Takes the next piece of the body, as the transport gives it. Requires state `open`. */
  take(piece: Uint8Array | null | TransportFailure): void {
    if (piece instanceof TransportFailure) {
      this.state = 'cut'
      this.failure = piece
      return
    }
    if (piece === null) return this.#end()
    const scanner = this.#scanner
    scanner.push(piece)
    while (this.state === 'open') {
      const more = scanner.next()
      if (more === false) return
      if (more instanceof Failure) return this.#broken(more)
      this.#event()
    }
  }

  /** The bytes for the client so far, handed out once; undefined if there are none. `[DONE]` is never among them. */
  output(): Uint8Array | undefined {
    this.#closeRun()
    const pieces = this.#pieces
    if (pieces.length === 0) return undefined
    this.#pieces = []
    return pieces.length === 1 ? pieces[0] : Buffer.concat(pieces)
  }

  /** The body is over. An event whose closing empty line is missing counts: the body was whole. */
  #end(): void {
    const pending = this.#scanner.finish()
    if (pending instanceof Failure) return this.#broken(pending)
    if (pending && this.#event()) {
      this.#closeRun()
      this.#pieces.push(CLOSING)
    }
    if (this.state === 'open') this.state = 'ended'
  }

  #broken(failure: Failure): void {
    this.state = 'cut'
    this.failure = failure
  }

  /** Takes note of the scanner's event; true if it goes to the client. */
  #event(): boolean {
    const scanner = this.#scanner
    if (scanner.kind !== 'data') return false
    const facts = this.#reader.read(scanner.data_buffer, scanner.data_start, scanner.data_end)
    if (facts.done) {
      this.state = 'done'
      this.done_bytes = scanner.buffer.subarray(scanner.start, scanner.end)
      return false
    }
    if (facts.error !== undefined || scanner.name === 'error') {
      this.state = 'error'
      this.error = facts.error ?? { message: '', type: '', code: '' }
      if (!facts.malformed) this.error_bytes = scanner.data_buffer.slice(scanner.data_start, scanner.data_end)
      return false
    }
    // One bad event is the engine's slip; the rest of the answer is still good.
    if (facts.malformed) {
      this.malformed_events++
      return false
    }
    this.begun = true
    this.#note(facts)
    if (facts.usage_only) {
      if (!this.#wishes.usage || this.#usage_shown) return false
      this.#usage_shown = true
    }
    this.#show(facts)
    return true
  }

  #note(facts: AnswerFacts): void {
    if (facts.usage !== undefined) {
      this.usage = facts.usage
      this.text.counted()
    } else this.text.note(facts, this.#scanner.data_buffer, this.#scanner.data_start, this.#scanner.data_end)
    if (facts.choice_index_max >= this.#choices) this.#choices = facts.choice_index_max + 1
    for (const { index, reason } of facts.finishes) {
      this.#finished.add(index)
      this.finish_reason = reason
    }
  }

  /** True if the engine's own count is that of the whole answer, or of all that came of it. */
  get counted(): boolean {
    const { usage, text, state } = this
    return usage !== undefined && (text.bytes === 0 || state === 'done' || (state === 'ended' && this.finished))
  }

  /** Adds the scanner's event to what the client gets. */
  #show(facts: AnswerFacts): void {
    const { buffer, start, end, data_buffer, data_start, data_end } = this.#scanner
    const { splice, hides_usage } = this.#wishes
    const hidden = hides_usage === true && facts.usage_start >= 0 && !facts.usage_only
    if (splice !== undefined) return this.#showRest(splice, hidden)
    this.#wishes.delivered?.note(facts, data_buffer, data_start, data_end)
    const alias = facts.model_start < 0 ? undefined : this.#alias_json
    if (alias !== undefined || hidden) {
      const edits: Edit[] = []
      if (alias !== undefined) edits.push({ start: facts.model_start, end: facts.model_end, with: alias })
      if (hidden) edits.push(withoutUsage(data_buffer, facts))
      this.#closeRun()
      this.#pieces.push(this.#edited(edits))
      return
    }
    if (this.#run === buffer && this.#run_end === start) {
      this.#run_end = end
      return
    }
    this.#closeRun()
    this.#run = buffer
    this.#run_start = start
    this.#run_end = end
  }

  /** The scanner's event with edits of its data. */
  #edited(edits: readonly Edit[]): Uint8Array {
    const { buffer, start, end, data_buffer, data_start, data_end } = this.#scanner
    const is_inside = data_buffer === buffer
    const from = is_inside ? start : data_start
    const bytes = data_buffer.subarray(from, is_inside ? end : data_end)
    const moved = edits.map((edit) => ({ ...edit, start: edit.start - from, end: edit.end - from }))
    const edited = Buffer.concat(spliced(bytes, moved))
    return is_inside ? edited : eventOf(edited)
  }

  /** Adds what the scanner's event has new. */
  #showRest(splice: Splice, hidden: boolean): void {
    const { data_buffer, data_start, data_end } = this.#scanner
    const json = splice.rewrite(Buffer.from(data_buffer.subarray(data_start, data_end)).toString('utf8'), hidden)
    if (splice.diverged) return this.#broken(new Failure('engine_cut'))
    if (json !== undefined) this.#pieces.push(eventOf(Buffer.from(json)))
  }

  #closeRun(): void {
    const run = this.#run
    if (run === undefined) return
    this.#run = undefined
    const whole = this.#run_start === 0 && this.#run_end === run.length
    this.#pieces.push(whole ? run : run.subarray(this.#run_start, this.#run_end))
  }
}

/** Takes `usage` out of an event's data. */
const withoutUsage = (bytes: Uint8Array, { usage_start, usage_end }: AnswerFacts): Edit => {
  let colon = usage_start - 1
  while (bytes[colon] !== 0x3a) colon--
  let quote = colon - 1
  while (bytes[quote] !== 0x22) quote--
  return removeMember(bytes, jsonRange(bytes, usage_start, usage_end, quote - 'usage"'.length))
}
