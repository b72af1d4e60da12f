import { type EngineProcess, engineProcess } from '../tests/journey/fleet.ts'
import { cpuNanoseconds } from './kit/processes.ts'
import { type Paced, pacedFor, quantile } from './kit/paced.ts'
import { type Options, type Result, Samples } from './kit/report.ts'
import { startWeir } from './kit/servers.ts'

const STRATEGIES = ['least_loaded', 'weighted'] as const
const QUICK = { ttft_ms: 50, tokens_per_s: 200 }
const SLOW = { ttft_ms: 500, tokens_per_s: 20 }
const TOKENS = 10

/**
 * Three demo engines over real sockets, one ten times slower, under a steady load of streams: the house's default against
 * drawing by equal weights, in turn. Each strategy has a record of the engines to itself, which is empty at first.
 */
export const slowOfThreeBench = async (
  { seconds, runs, warm_s }: Options,
  { per_s, settle_s } = { per_s: 60, settle_s: 3 },
): Promise<Result> => {
  const engines = await Promise.all([SLOW, QUICK, QUICK].map((pace) => engineProcess(pace)))
  const weir = await startWeir('', { config: configOf(engines) })
  const samples = new Samples()
  const all: Record<string, Paced[]> = { least_loaded: [], weighted: [] }
  let failed = 0
  const ask = (model: string) => () =>
    fetch(`${weir.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { ...weir.headers, 'content-type': 'application/json' },
      body: JSON.stringify({ model, stream: true, max_tokens: TOKENS, messages: [{ role: 'user', content: 'hi' }] }),
    })
  try {
    await pacedFor(Math.min(warm_s, settle_s), per_s, ask('warm'))
    for (let run = 0; run < runs; run++)
      for (const name of STRATEGIES) {
        const cpu = cpuOf(weir.pids())
        const seen = await pacedFor(seconds, per_s, ask(name))
        samples.take(`${name}_server_cores`, 'cores', (cpuOf(weir.pids()) - cpu) / 1e9 / seconds)
        failed += seen.filter(({ status, body }) => status !== 200 || !body.includes('[DONE]')).length
        all[name]!.push(...seen)
        take(samples, name, seen)
        if (name === 'weighted') samples.take('p99_ratio', '×', last(samples, name) / last(samples, 'least_loaded'))
      }
  } finally {
    await weir.stop()
    for (const engine of engines) await engine.kill()
  }
  for (const name of STRATEGIES) take(samples, `${name}_all_runs`, all[name]!)
  const [ours, theirs] = STRATEGIES.map((name) => last(samples, `${name}_all_runs`))
  samples.take('p99_ratio_all_runs', '×', theirs! / ours!)
  samples.take('failed', 'calls', failed)
  return {
    figures: samples.figures(),
    notes: [
      `three demo engines, two with a first token after ${QUICK.ttft_ms} ms and ${1_000 / QUICK.tokens_per_s} ms a token, one with ${SLOW.ttft_ms} and ${1_000 / SLOW.tokens_per_s}; ${per_s} streams of ${TOKENS} tokens a second, one worker; ${seconds} s each in turn`,
      'weighted: by equal weights, as taking turns does',
      'the first run of least_loaded includes finding out which engine is slow; slow_share: calls that the slow engine answered',
    ],
  }
}

const configOf = (engines: readonly EngineProcess[]) => {
  const sets = [...STRATEGIES, 'warm']
  return {
    engines: sets.flatMap((set) => engines.map(({ url }, nth) => ({ name: `${set}-${nth}`, url }))),
    models: sets.map((set) => ({
      name: set,
      free: true,
      strategy: set === 'warm' ? 'weighted' : set,
      targets: engines.map((_, nth) => ({ engine: `${set}-${nth}`, model: 'm' })),
    })),
  }
}

const take = (samples: Samples, name: string, seen: readonly Paced[]): void => {
  const first_ms = seen.map((one) => one.first_ms)
  samples.take(`${name}_first_token_p50_ms`, 'ms', quantile(first_ms, 0.5))
  samples.take(`${name}_first_token_p99_ms`, 'ms', quantile(first_ms, 0.99))
  samples.take(`${name}_slow_share`, 'share', seen.filter(({ engine }) => engine.endsWith('-0')).length / seen.length)
}

const last = (samples: Samples, name: string): number => samples.values(`${name}_first_token_p99_ms`).at(-1)!

const cpuOf = (pids: readonly number[]): number => pids.reduce((sum, pid) => sum + cpuNanoseconds(pid), 0)
