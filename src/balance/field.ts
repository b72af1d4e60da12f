/**
 * What a strategy sees: the targets that could take a call now, by number from 0. The house's own field reads the
 * shared table (`table-field.ts`), the simulator's its simulated engines: the strategies are the same code.
 */
export interface Field {
  readonly size: number
  /** The sum of all weights. */
  readonly weights: number
  /** True if all weights are equal. */
  readonly even: boolean
  /** The sum of all calls in flight. */
  readonly all_calls: number
  /** A stable number of the target's engine and model, 32 bits. */
  id(at: number): number
  /** Share of traffic, above 0, already lowered for an engine that comes back. */
  weight(at: number): number
  /** Calls in flight, of all workers. */
  calls(at: number): number
  /** Calls that wait at the engine, as it says itself; undefined if it does not say. */
  waiting(at: number): number | undefined
  /** Predicted cost of one more call; 1 is that of an idle engine which is as quick as any, and has the weight 1. */
  cost(at: number): number
  /** Moving average of the time to the first token; 0 if unknown. */
  latencyMs(at: number): number
  /** Time since the engine's speed was measured last. */
  silentMs(at: number): number
  /** What the call would cost at the target, any unit. */
  price(at: number, ask: Ask): number
  /** Conversations that the index sends there. */
  sessions(at: number): number
  /** The target that the index has for a key; -1 if it has none or that target is not in the field. */
  home(key: number): number
}

/** What a strategy knows of a call. */
export type Ask = {
  /** What affinity goes by, 32 bits; 0 for nothing. */
  readonly key: number
  readonly prompt_tokens: number
  /** The most that the call lets the engine write, or a guess. */
  readonly answer_tokens: number
  /** How much more than its share an engine may carry before affinity yields: 1.25 is a quarter more. */
  readonly margin: number
}

/** Chooses one of a field that is not empty. `random` yields [0, 1). */
export type Strategy = (field: Field, ask: Ask, random: () => number) => number
