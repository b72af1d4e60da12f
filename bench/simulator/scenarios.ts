import { ENGINE, slower } from './engine.ts'
import type { Scenario } from './run.ts'
import { conversations, oneShots } from './traffic.ts'

/** What the strategies are compared by. */
export const SCENARIOS = {
  /** 100 conversations of 10 turns over 4 equal engines whose caches hold a part of them. */
  conversations: (seed: number): Scenario => ({
    engines: Array.from({ length: 4 }, () => ENGINE),
    traffic: conversations(100, 10, seed),
    seed,
  }),
  /** Calls without a past over 3 engines, one of them ten times slower. */
  one_slow: (seed: number): Scenario => ({
    engines: [slower(ENGINE, 10), ENGINE, ENGINE],
    traffic: oneShots(14, 120, seed),
    seed,
  }),
  /** The conversations, while one engine dies after 30 s and is back after 60 s. */
  one_leaves: (seed: number): Scenario => ({
    ...SCENARIOS.conversations(seed),
    outage: { engine: 1, from_ms: 30_000, to_ms: 60_000 },
  }),
} as const satisfies Record<string, (seed: number) => Scenario>

export type ScenarioName = keyof typeof SCENARIOS
