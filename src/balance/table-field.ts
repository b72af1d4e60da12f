import { SUBJECT } from '../table/layout.ts'
import type { Subject, Table } from '../table/table.ts'
import { latencyMs, silentMs, tokenMs, warmth } from './averages.ts'
import type { Target } from './catalogue.ts'
import type { Ask, Field } from './field.ts'
import { homeOf } from './sessions.ts'

/** Prompt tokens not yet worked through that weigh as much as one more call: a step of a batch reads about so many, and writes a token of each call. */
const TOKENS_A_CALL = 128
/** Above this share of its KV cache an engine begins to evict and to wait. */
const CACHE_FREE = 0.8
/** Scrapes that may be missed before what they said is unknown. */
const STALE_INTERVALS = 3
/** So many times slower than the quickest an engine may be by its load and by chance; beyond that it is slow. */
const CHANCE_SLOWNESS = 3
/** What an engine counts as that has calls and never answered one, while others have. */
const UNPROVEN_SLOWNESS = 4

/**
 * The targets of a model as the shared table shows them. One for each choice to use again; nothing is allocated. Cells are
 * read plainly, not atomically: they order candidates and decide nothing that must be exact.
 */
export class TableField implements Field {
  size = 0
  weights = 0
  even = true
  all_calls = 0
  readonly #table: Table
  readonly #targets: Target[] = []
  readonly #subjects: Subject[] = []
  readonly #calls: number[] = []
  readonly #weights: number[] = []
  /** The averages of the field, read once for each choice. */
  readonly #latencies_ms: number[] = []
  readonly #token_times_ms: number[] = []
  #now_ms = 0
  /** The least known averages of the field; negative while nobody has asked for them. */
  #latency_ms_min = -1
  #token_ms_min = -1
  #some_known = false

  constructor(table: Table) {
    this.#table = table
  }

  /** Empties the field for a choice at this time. */
  reset(now_ms: number): void {
    this.size = 0
    this.weights = 0
    this.even = true
    this.all_calls = 0
    this.#now_ms = now_ms
    this.#latency_ms_min = -1
  }

  add(target: Target, subject: Subject, calls: number): void {
    const at = this.size++
    const weight = target.weight * warmth(this.#table, subject, this.#now_ms)
    this.weights += weight
    this.all_calls += calls
    this.#targets[at] = target
    this.#subjects[at] = subject
    this.#weights[at] = weight
    this.#calls[at] = calls
    if (weight !== this.#weights[0]) this.even = false
  }

  target(at: number): Target {
    return this.#targets[at]!
  }

  id(at: number): number {
    return this.#targets[at]!.id
  }

  weight(at: number): number {
    return this.#weights[at]!
  }

  calls(at: number): number {
    return this.#calls[at]!
  }

  waiting(at: number): number | undefined {
    return this.#scraped(at, SUBJECT.waiting)
  }

  /**
   * Slowness × work ÷ weight. Work is calls in flight, their prompts that wait for a first token, and what waits in the
   * engine; a nearly full KV cache makes it count more.
   */
  cost(at: number): number {
    const calls = this.#calls[at]!
    const waiting = this.waiting(at) ?? 0
    const cache = this.#scraped(at, SUBJECT.cache_usage) ?? 0
    const work = 1 + calls + this.#tokens(at) / TOKENS_A_CALL + waiting
    const pressure = cache > CACHE_FREE ? 1 + (cache - CACHE_FREE) * 10 : 1
    return (this.#slowness(at) * work * pressure) / this.#weights[at]!
  }

  latencyMs(at: number): number {
    if (this.#latency_ms_min < 0) this.#measure()
    return this.#latencies_ms[at]! || this.#token_times_ms[at]!
  }

  silentMs(at: number): number {
    return silentMs(this.#table, this.#subjects[at]!, this.#now_ms)
  }

  price(at: number, ask: Ask): number {
    const { cost } = this.#targets[at]!
    return cost === undefined ? 0 : cost.input * ask.prompt_tokens + cost.output * ask.answer_tokens
  }

  sessions(at: number): number {
    return this.#table.i32[this.#subjects[at]! * 2 + SUBJECT.sessions]!
  }

  home(key: number): number {
    const subject = homeOf(this.#table, key)
    if (subject === undefined) return -1
    for (let at = 0; at < this.size; at++) if (this.#subjects[at]! === subject) return at
    return -1
  }

  /**
   * How much slower than the quickest of the field, tempered: the root of the ratio as far as load, long prompts and
   * chance explain it (as it is it made engines take turns at being avoided), and its square beyond that, where the
   * engine itself is slow. One of unknown speed counts as quick for its first call, and then waits for its answer.
   */
  #slowness(at: number): number {
    if (this.#latency_ms_min < 0) this.#measure()
    const latency_ms = this.#latencies_ms[at]!
    const token_ms = this.#token_times_ms[at]!
    if (latency_ms === 0 && token_ms === 0) return this.#calls[at]! > 0 && this.#some_known ? UNPROVEN_SLOWNESS : 1
    const ratio = Math.max(1, latency_ms / this.#latency_ms_min, token_ms / this.#token_ms_min)
    return ratio <= CHANCE_SLOWNESS ? Math.sqrt(ratio) : ratio ** 2 / CHANCE_SLOWNESS ** 1.5
  }

  #measure(): void {
    let latency_ms_min = Number.POSITIVE_INFINITY
    let token_ms_min = Number.POSITIVE_INFINITY
    for (let at = 0; at < this.size; at++) {
      const subject = this.#subjects[at]!
      const latency_ms = latencyMs(this.#table, subject, this.#now_ms)
      const token_ms = tokenMs(this.#table, subject, this.#now_ms)
      this.#latencies_ms[at] = latency_ms
      this.#token_times_ms[at] = token_ms
      if (latency_ms > 0 && latency_ms < latency_ms_min) latency_ms_min = latency_ms
      if (token_ms > 0 && token_ms < token_ms_min) token_ms_min = token_ms
    }
    this.#latency_ms_min = latency_ms_min
    this.#token_ms_min = token_ms_min
    this.#some_known = latency_ms_min < Number.POSITIVE_INFINITY || token_ms_min < Number.POSITIVE_INFINITY
  }

  // The low half of the amount: tokens in flight of an engine stay far below 2^31, and an Int32 needs no BigInt.
  #tokens(at: number): number {
    return Math.max(0, this.#table.i32[(this.#subjects[at]! + SUBJECT.amount) * 2]!)
  }

  #scraped(at: number, cell: number): number | undefined {
    const subject = this.#subjects[at]!
    const age_ms = this.#now_ms - this.#table.f64[subject + SUBJECT.scraped_at_ms]!
    if (age_ms > this.#targets[at]!.engine.config.scrape_ms * STALE_INTERVALS) return undefined
    const value = this.#table.f64[subject + cell]!
    return Number.isNaN(value) ? undefined : value
  }
}
