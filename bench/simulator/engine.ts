/** An engine in simulated time: continuous batching, chunked prefill, a KV cache that keeps prefixes until it needs the room. */
export type EngineModel = {
  readonly prefill_tokens_per_s: number
  /** A step of the batch, and what each call in it adds. */
  readonly step_ms: number
  readonly step_ms_per_call: number
  readonly batch_max: number
  /** Prompt tokens that one step may prefill. */
  readonly chunk_tokens: number
  readonly cache_tokens: number
}

export const ENGINE: EngineModel = {
  prefill_tokens_per_s: 8_000,
  step_ms: 12,
  step_ms_per_call: 0.25,
  batch_max: 32,
  chunk_tokens: 2_048,
  cache_tokens: 300_000,
}

/** The same engine, so many times slower. */
export const slower = (model: EngineModel, times: number): EngineModel => ({
  ...model,
  prefill_tokens_per_s: model.prefill_tokens_per_s / times,
  step_ms: model.step_ms * times,
  step_ms_per_call: model.step_ms_per_call * times,
})

export type SimCall = {
  readonly conversation: number
  readonly turn: number
  readonly prompt_tokens: number
  readonly answer_tokens: number
  readonly arrived_ms: number
  cached_tokens: number
  prefill_left: number
  decoded: number
  first_token_ms: number
}

export class SimEngine {
  readonly waiting: SimCall[] = []
  readonly running: SimCall[] = []
  /** When the step under way ends; undefined if nothing runs. */
  step_ends_ms: number | undefined
  down = false
  calls = 0
  /** Tokens kept for each conversation, the one used longest ago first. */
  readonly #prefixes = new Map<number, number>()
  #kept_tokens = 0
  readonly #model: EngineModel

  constructor(model: EngineModel) {
    this.#model = model
  }

  /** Tokens of a conversation that need not be computed again. */
  prefixOf(conversation: number): number {
    return this.#prefixes.get(conversation) ?? 0
  }

  cacheUsage(): number {
    return Math.min(1, this.#heldTokens() / this.#model.cache_tokens)
  }

  submit(call: SimCall, now_ms: number): void {
    this.calls++
    this.waiting.push(call)
    if (this.step_ends_ms === undefined) this.#begin(now_ms)
  }

  /** Ends the step; answers the calls that got their first token and those that are whole. */
  endStep(now_ms: number): { readonly first: SimCall[]; readonly whole: SimCall[] } {
    const first: SimCall[] = []
    const whole: SimCall[] = []
    let chunk = this.#model.chunk_tokens
    for (const call of this.running) {
      if (call.prefill_left > 0) {
        const done = Math.min(call.prefill_left, chunk)
        call.prefill_left -= done
        chunk -= done
        if (call.prefill_left > 0) continue
        call.first_token_ms = now_ms
        first.push(call)
      }
      call.decoded++
      if (call.decoded >= call.answer_tokens) whole.push(call)
    }
    for (const call of whole) {
      this.running.splice(this.running.indexOf(call), 1)
      this.#keep(call.conversation, call.prompt_tokens + call.answer_tokens)
    }
    this.step_ends_ms = undefined
    this.#begin(now_ms)
    return { first, whole }
  }

  /** The engine dies: what ran and waited is lost, and so is its cache. */
  fail(): SimCall[] {
    const lost = [...this.running.splice(0), ...this.waiting.splice(0)]
    this.#prefixes.clear()
    this.#kept_tokens = 0
    this.step_ends_ms = undefined
    this.down = true
    return lost
  }

  #begin(now_ms: number): void {
    while (this.waiting.length > 0 && this.running.length < this.#model.batch_max) {
      const call = this.waiting[0]!
      if (this.running.length > 0 && this.#heldTokens() + call.prompt_tokens > this.#model.cache_tokens) break
      this.waiting.shift()
      call.cached_tokens = Math.min(this.prefixOf(call.conversation), call.prompt_tokens - 1)
      call.prefill_left = call.prompt_tokens - call.cached_tokens
      this.running.push(call)
      this.#evict()
    }
    if (this.running.length === 0) return
    const prefill = this.running.reduce((sum, { prefill_left }) => sum + prefill_left, 0)
    const chunk = Math.min(prefill, this.#model.chunk_tokens)
    this.step_ends_ms =
      now_ms +
      this.#model.step_ms +
      this.running.length * this.#model.step_ms_per_call +
      (chunk / this.#model.prefill_tokens_per_s) * 1_000
  }

  #heldTokens(): number {
    return this.running.reduce((sum, call) => sum + call.prompt_tokens + call.decoded, 0)
  }

  #keep(conversation: number, tokens: number): void {
    this.#kept_tokens += tokens - this.prefixOf(conversation)
    this.#prefixes.delete(conversation)
    this.#prefixes.set(conversation, tokens)
    this.#evict()
  }

  /** Running calls come first; prefixes have what is left. */
  #evict(): void {
    const room = this.#model.cache_tokens - this.#heldTokens()
    for (const [conversation, tokens] of this.#prefixes) {
      if (this.#kept_tokens <= room) return
      this.#prefixes.delete(conversation)
      this.#kept_tokens -= tokens
    }
  }
}
