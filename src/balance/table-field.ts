import { SUBJECT } from '../table/layout.ts'
import type { Table } from '../table/table.ts'
import { latencyMs, tokenMs, warmth } from './averages.ts'
import type { Target } from './catalogue.ts'
import type { Ask, Field } from './field.ts'
import { homeOf } from './sessions.ts'

/** Prompt tokens not yet worked through that weigh as much as one more call. */
const TOKENS_A_CALL = 512
/** An engine of unknown latency counts as this fast, and no engine as faster: so it is asked, and ties share. */
const LATENCY_MS_MIN = 1
/** Above this share of its KV cache an engine begins to evict and to wait. */
const CACHE_FREE = 0.8
/** Scrapes that may be missed before what they said is unknown. */
const STALE_INTERVALS = 3

/**
 * The targets of a model as the shared table shows them. One for each choice to use again; nothing is allocated. Cells are
 * read plainly, not atomically: they order candidates and decide nothing that must be exact.
 */
export class TableField implements Field {
  size = 0
  weights = 0
  readonly #table: Table
  readonly #targets: Target[] = []
  readonly #calls: number[] = []
  readonly #weights: number[] = []
  #now_ms = 0

  constructor(table: Table) {
    this.#table = table
  }

  /** Empties the field for a choice at this time. */
  reset(now_ms: number): void {
    this.size = 0
    this.weights = 0
    this.#now_ms = now_ms
  }

  add(target: Target, calls: number): void {
    const weight = target.weight * warmth(this.#table, target.engine.subject, this.#now_ms)
    this.weights += weight
    this.#targets[this.size] = target
    this.#weights[this.size] = weight
    this.#calls[this.size++] = calls
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
   * Root of the average latency × work ÷ weight. Work is calls in flight, their prompts that wait for a first token, and
   * what waits in the engine; a nearly full KV cache makes it count more. The root, because latency is
   * in part the load itself, and the calls' own prompts: as it is it made engines take turns at being avoided.
   */
  cost(at: number): number {
    const { subject } = this.#targets[at]!.engine
    const calls = this.#calls[at]!
    const waiting = this.waiting(at) ?? 0
    const cache = this.#scraped(at, SUBJECT.cache_usage) ?? 0
    const work = 1 + calls + this.#tokens(at) / TOKENS_A_CALL + waiting
    const pressure = cache > CACHE_FREE ? 1 + (cache - CACHE_FREE) * 10 : 1
    const latency_ms = latencyMs(this.#table, subject, this.#now_ms) + tokenMs(this.#table, subject, this.#now_ms)
    return (Math.sqrt(Math.max(LATENCY_MS_MIN, latency_ms)) * work * pressure) / this.weight(at)
  }

  latencyMs(at: number): number {
    const { subject } = this.#targets[at]!.engine
    return latencyMs(this.#table, subject, this.#now_ms) || tokenMs(this.#table, subject, this.#now_ms)
  }

  price(at: number, ask: Ask): number {
    const { cost } = this.#targets[at]!
    return cost === undefined ? 0 : cost.input * ask.prompt_tokens + cost.output * ask.answer_tokens
  }

  sessions(at: number): number {
    return this.#table.i32[this.#targets[at]!.engine.subject * 2 + SUBJECT.sessions]!
  }

  home(key: number): number {
    const subject = homeOf(this.#table, key)
    if (subject === undefined) return -1
    for (let at = 0; at < this.size; at++) if (this.#targets[at]!.engine.subject === subject) return at
    return -1
  }

  // The low half of the amount: tokens in flight of an engine stay far below 2^31, and an Int32 needs no BigInt.
  #tokens(at: number): number {
    return Math.max(0, this.#table.i32[(this.#targets[at]!.engine.subject + SUBJECT.amount) * 2]!)
  }

  #scraped(at: number, cell: number): number | undefined {
    const { subject, config } = this.#targets[at]!.engine
    const age_ms = this.#now_ms - this.#table.f64[subject + SUBJECT.scraped_at_ms]!
    if (age_ms > config.scrape_ms * STALE_INTERVALS) return undefined
    const value = this.#table.f64[subject + cell]!
    return Number.isNaN(value) ? undefined : value
  }
}
