import type { Target } from '../../src/balance/catalogue.ts'
import { chooseTarget } from '../../src/balance/choose.ts'
import { markFailed, markGood } from '../../src/balance/health.ts'
import { hashOf } from '../../src/balance/rendezvous.ts'
import type { StrategyName } from '../../src/balance/strategies.ts'
import { addAmount, giveCounts, takeCounts } from '../../src/table/counts.ts'
import { SUBJECT } from '../../src/table/layout.ts'
import { createTable, subjectOf, type Table } from '../../src/table/table.ts'
import { type EngineModel, type SimCall, SimEngine } from './engine.ts'
import { type Conversation, randomOf } from './traffic.ts'

/**
 * Drives the house's own choice of targets (strategies, breaker, averages, index of conversations, shared table) with
 * simulated engines and clients, in simulated time. Deterministic for a seed.
 */
export type Scenario = {
  readonly engines: readonly EngineModel[]
  readonly traffic: readonly Conversation[]
  readonly seed: number
  /** Calls of one engine are lost from `from_ms` on, and it refuses all until `to_ms`. */
  readonly outage?: { readonly engine: number; readonly from_ms: number; readonly to_ms: number }
}

/** `round_robin` is no strategy of the house: the yardstick. */
export type Router = StrategyName | 'round_robin'

export type Outcome = {
  readonly first_token_ms: readonly number[]
  readonly tokens_per_s: number
  /** Prompt tokens that were in the engine's cache. */
  readonly cache_hit_share: number
  /** Follow-up turns that went to an engine which had all that was said before. */
  readonly follow_up_share: number
  /** Calls of the busiest engine over the mean. */
  readonly load_over_mean: number
  /** Conversations whose engine changed while one was out, whatever the reason. */
  readonly moved_share: number
  readonly calls_by_engine: readonly number[]
  readonly retries: number
}

type Event = { readonly at_ms: number; readonly run: () => void }

const SCRAPE_MS = 1_000
const EPOCH_MS = 1_700_000_000_000

export const simulate = (router: Router, scenario: Scenario, table_path: string): Outcome => {
  const sim = new Simulation(router, scenario, createTable(table_path, 1_024, EPOCH_MS))
  return sim.run()
}

class Simulation {
  readonly #scenario: Scenario
  readonly #router: Router
  readonly #table: Table
  readonly #engines: SimEngine[]
  readonly #targets: Target[]
  readonly #random: () => number
  readonly #events: Event[] = []
  readonly #home = new Map<number, number>()
  readonly #call_engine = new Map<SimCall, number>()
  #now_ms = 0
  #turn = 0
  #left = 0
  #first_token_ms: number[] = []
  #tokens = 0
  #prompt_tokens = 0
  #cached_tokens = 0
  #follow_ups = 0
  #follow_ups_home = 0
  #moved = new Set<number>()
  #retries = 0

  constructor(router: Router, scenario: Scenario, table: Table) {
    this.#router = router
    this.#scenario = scenario
    this.#table = table
    this.#random = randomOf(scenario.seed)
    this.#engines = scenario.engines.map((model) => new SimEngine(model))
    this.#targets = scenario.engines.map(
      (_, nth) =>
        ({
          engine: {
            name: `engine-${nth}`,
            subject: subjectOf(table, 'engine', `engine-${nth}`)!,
            config: { capacity: 512, scrape_ms: SCRAPE_MS },
          },
          model: 'm',
          weight: 1,
          id: hashOf(`engine-${nth}`),
          serves: 'm',
        }) as unknown as Target,
    )
  }

  run(): Outcome {
    const { traffic, outage } = this.#scenario
    traffic.forEach((talk, nth) => {
      this.#left += talk.turns.length
      this.#at(talk.starts_ms, () => this.#say(nth, 0, talk.system_tokens))
    })
    this.#at(0, () => this.#scrape())
    if (outage) {
      this.#at(outage.from_ms, () => this.#fail(outage.engine))
      this.#at(outage.to_ms, () => (this.#engines[outage.engine]!.down = false))
    }
    while (this.#left > 0) {
      const event = this.#next()
      this.#now_ms = event.at_ms
      event.run()
    }
    return this.#outcome()
  }

  #outcome(): Outcome {
    const calls = this.#engines.map((engine) => engine.calls)
    const mean = calls.reduce((sum, one) => sum + one, 0) / calls.length
    return {
      first_token_ms: this.#first_token_ms.toSorted((one, other) => one - other),
      tokens_per_s: this.#tokens / (this.#now_ms / 1_000),
      cache_hit_share: this.#cached_tokens / this.#prompt_tokens,
      follow_up_share: this.#follow_ups === 0 ? 0 : this.#follow_ups_home / this.#follow_ups,
      load_over_mean: Math.max(...calls) / mean,
      moved_share: this.#moved.size / this.#scenario.traffic.length,
      calls_by_engine: calls,
      retries: this.#retries,
    }
  }

  /** A turn of a conversation: everything said so far, and what the user adds. */
  #say(conversation: number, turn: number, said_tokens: number): void {
    const { user_tokens, answer_tokens } = this.#scenario.traffic[conversation]!.turns[turn]!
    const call: SimCall = {
      conversation,
      turn,
      prompt_tokens: said_tokens + user_tokens,
      answer_tokens,
      arrived_ms: this.#now_ms,
      cached_tokens: 0,
      prefill_left: 0,
      decoded: 0,
      first_token_ms: 0,
    }
    this.#send(call, said_tokens)
  }

  #send(call: SimCall, said_tokens: number): void {
    const tried: Target[] = []
    for (;;) {
      const nth = this.#choose(call, tried)
      if (nth < 0) return this.#at(this.#now_ms + 200, () => this.#send(call, said_tokens))
      const engine = this.#engines[nth]!
      if (engine.down) {
        markFailed(this.#table, this.#targets[nth]!.engine.subject, this.#wall(), undefined, 'unreachable')
        tried.push(this.#targets[nth]!)
        this.#retries++
        continue
      }
      this.#noteWhere(call, nth, said_tokens)
      this.#take(call, nth)
      engine.submit(call, this.#now_ms)
      this.#schedule(nth)
      return
    }
  }

  #noteWhere(call: SimCall, nth: number, said_tokens: number): void {
    const before = this.#home.get(call.conversation)
    if (call.turn > 0) {
      this.#follow_ups++
      if (this.#engines[nth]!.prefixOf(call.conversation) >= said_tokens) this.#follow_ups_home++
    }
    const { outage } = this.#scenario
    const is_out = outage && this.#now_ms >= outage.from_ms && this.#now_ms < outage.to_ms
    if (is_out && before !== undefined && before !== nth) this.#moved.add(call.conversation)
    this.#home.set(call.conversation, nth)
  }

  #choose(call: SimCall, tried: readonly Target[]): number {
    if (this.#router === 'round_robin') {
      if (tried.length === this.#targets.length) return -1
      return this.#turn++ % this.#targets.length
    }
    const ask = {
      key: hashOf(`conversation ${call.conversation}`),
      prompt_tokens: call.prompt_tokens,
      answer_tokens: call.answer_tokens,
      margin: 1.25,
    }
    const model = { targets: this.#targets, config: { strategy: this.#router } }
    const chosen = chooseTarget(model, { ask, tried }, this.#table, this.#wall(), this.#random)
    return 'why' in chosen ? -1 : this.#targets.indexOf(chosen)
  }

  #take(call: SimCall, nth: number): void {
    const { subject } = this.#targets[nth]!.engine
    takeCounts(this.#table, 0, [{ subject, limit: 1_000_000 }])
    addAmount(this.#table, 0, subject, BigInt(call.prompt_tokens))
    this.#call_engine.set(call, nth)
  }

  #give(call: SimCall): void {
    const { subject } = this.#targets[this.#call_engine.get(call)!]!.engine
    giveCounts(this.#table, 0, [{ subject, limit: 0 }])
    if (call.first_token_ms === 0) addAmount(this.#table, 0, subject, -BigInt(call.prompt_tokens))
    this.#call_engine.delete(call)
  }

  #schedule(nth: number): void {
    const engine = this.#engines[nth]!
    const ends_ms = engine.step_ends_ms
    if (ends_ms === undefined || ends_ms <= this.#now_ms) return
    this.#at(ends_ms, () => {
      if (engine.step_ends_ms !== ends_ms) return
      const { first, whole } = engine.endStep(this.#now_ms)
      for (const call of first) this.#firstToken(call, nth)
      for (const call of whole) this.#whole(call)
      this.#schedule(nth)
    })
  }

  #firstToken(call: SimCall, nth: number): void {
    const took_ms = call.first_token_ms - call.arrived_ms
    this.#first_token_ms.push(took_ms)
    this.#prompt_tokens += call.prompt_tokens
    this.#cached_tokens += call.cached_tokens
    const { subject } = this.#targets[nth]!.engine
    addAmount(this.#table, 0, subject, -BigInt(call.prompt_tokens))
    markGood(this.#table, subject, took_ms, this.#wall())
  }

  #whole(call: SimCall): void {
    this.#give(call)
    this.#left--
    this.#tokens += call.answer_tokens
    const next = this.#scenario.traffic[call.conversation]!.turns[call.turn + 1]
    if (next === undefined) return
    const said_tokens = call.prompt_tokens + call.answer_tokens
    this.#at(this.#now_ms + next.think_ms, () => this.#say(call.conversation, call.turn + 1, said_tokens))
  }

  #fail(nth: number): void {
    for (const call of this.#engines[nth]!.fail()) {
      this.#give(call)
      markFailed(this.#table, this.#targets[nth]!.engine.subject, this.#wall(), undefined, 'unreachable')
      this.#retries++
      call.decoded = 0
      this.#send(call, call.prompt_tokens)
    }
  }

  #scrape(): void {
    this.#engines.forEach((engine, nth) => {
      const { subject } = this.#targets[nth]!.engine
      this.#table.f64[subject + SUBJECT.waiting] = engine.waiting.length
      this.#table.f64[subject + SUBJECT.cache_usage] = engine.cacheUsage()
      this.#table.f64[subject + SUBJECT.scraped_at_ms] = this.#wall()
    })
    this.#at(this.#now_ms + SCRAPE_MS, () => this.#scrape())
  }

  #wall(): number {
    return EPOCH_MS + this.#now_ms
  }

  /** A binary heap by time. */
  #at(at_ms: number, run: () => void): void {
    const heap = this.#events
    let at = heap.push({ at_ms, run }) - 1
    while (at > 0) {
      const up = (at - 1) >> 1
      if (heap[up]!.at_ms <= heap[at]!.at_ms) return
      ;[heap[up], heap[at]] = [heap[at]!, heap[up]!]
      at = up
    }
  }

  #next(): Event {
    const heap = this.#events
    const first = heap[0]!
    const last = heap.pop()!
    if (heap.length === 0) return first
    heap[0] = last
    for (let at = 0; ;) {
      let least = at
      for (const down of [2 * at + 1, 2 * at + 2])
        if (down < heap.length && heap[down]!.at_ms < heap[least]!.at_ms) least = down
      if (least === at) return first
      ;[heap[least], heap[at]] = [heap[at]!, heap[least]!]
      at = least
    }
  }
}
