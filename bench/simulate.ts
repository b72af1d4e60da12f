import { simulate } from '../tests/simulation/simulate.ts'
import { figure, type Options, type Result } from './kit/report.ts'

/** Ten thousand seeds, of which the tests run the first two hundred. */
const SEEDS = 10_000

/** Lives of a simulated house from seed 1 on, ten thousand or as many as fit into a given time; throws at a broken invariant. */
export const simulateBench = async ({ seconds }: Pick<Options, 'seconds'>): Promise<Result> => {
  const until_ms = performance.now() + seconds * 1_000
  const totals = { calls: 0, refused: 0, worker_kills: 0, restarts: 0, power_losses: 0, acked: 0 }
  const started_ms = performance.now()
  let seed = 0
  while (seed < SEEDS && performance.now() < until_ms) {
    const lived = await simulate(++seed).catch((cause: Error) => {
      throw new Error(`SEED=${seed}: ${cause.message}`, { cause })
    })
    for (const name of Object.keys(totals) as (keyof typeof totals)[]) totals[name] += lived[name]
  }
  const each_ms = (performance.now() - started_ms) / seed
  const counts = Object.entries(totals).map(([name, count]) => [name, figure([count], '')] as const)
  return {
    figures: { seeds: figure([seed], ''), seed_ms: figure([each_ms], 'ms'), ...Object.fromEntries(counts) },
    notes: ['every invariant held after every step of every seed'],
  }
}
