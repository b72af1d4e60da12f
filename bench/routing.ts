import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { STRATEGIES, type StrategyName } from '../src/balance/strategies.ts'
import { takeChoices } from './choice.ts'
import { type Figures, type Options, type Result, Samples } from './kit/report.ts'
import { drawRouting } from './simulator/draw.ts'
import { type Outcome, type Router, simulate } from './simulator/run.ts'
import { type ScenarioName, SCENARIOS } from './simulator/scenarios.ts'

const ROUTERS: readonly Router[] = [
  'round_robin',
  ...(Object.keys(STRATEGIES) as StrategyName[]).filter((name) => name !== 'cheapest'),
]

/**
 * Strategies against each other over simulated engines (one seed a run, simulated time, so the figures are the same on
 * every machine), and what one choice costs on this one.
 */
export const routingBench = async ({ runs }: Options): Promise<Result> => {
  const folder = mkdtempSync(join(tmpdir(), 'weir-routing-'))
  const samples = new Samples()
  try {
    for (const scenario of Object.keys(SCENARIOS) as ScenarioName[])
      for (const router of ROUTERS)
        for (let seed = 1; seed <= runs; seed++)
          take(samples, `${scenario}_${router}`, simulate(router, SCENARIOS[scenario](seed), join(folder, 'table')))
    takeChoices(samples, runs, folder)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
  return {
    figures: samples.figures(),
    notes: [
      'simulated engines: continuous batching of 32, prefill 8,000 tokens/s, a step of 12 ms and 0.25 ms a call, KV cache of 300,000 tokens with prefix reuse',
      'conversations: 100 of 10 turns over 4 engines; one_slow: 14 unrelated calls a second over 3 engines, one ten times slower; one_leaves: the conversations, one engine dead from 30 s to 60 s',
      'round_robin is a yardstick and no strategy of the gateway',
    ],
  }
}

/** The simulator's figures as panels. */
export const drawRoutingBench = (figures: Figures): string => drawRouting(figures, Object.keys(SCENARIOS), ROUTERS)

const take = (samples: Samples, name: string, outcome: Outcome): void => {
  const { first_token_ms } = outcome
  const at = (share: number) => first_token_ms[Math.floor(first_token_ms.length * share)]!
  samples.take(`${name}_first_token_p50_ms`, 'ms', at(0.5))
  samples.take(`${name}_first_token_p99_ms`, 'ms', at(0.99))
  samples.take(
    `${name}_first_token_mean_ms`,
    'ms',
    first_token_ms.reduce((sum, one) => sum + one, 0) / first_token_ms.length,
  )
  samples.take(`${name}_tokens_per_s`, 'tokens/s', outcome.tokens_per_s)
  samples.take(`${name}_cache_hit_share`, 'share', outcome.cache_hit_share)
  samples.take(`${name}_follow_up_share`, 'share', outcome.follow_up_share)
  samples.take(`${name}_load_over_mean`, '×', outcome.load_over_mean)
  if (name.startsWith('one_leaves')) samples.take(`${name}_moved_share`, 'share', outcome.moved_share)
}
