import { type Burst, hey } from './kit/hey.ts'
import { type Options, type Result, Samples } from './kit/report.ts'
import { CHAT, type Served, startEngine, startWeir } from './kit/servers.ts'
import { warm } from './kit/wrk.ts'

const PATH = '/v1/chat/completions'

/** Takes the figures of one run of hey. */
export const takeBurst = (samples: Samples, burst: Burst, expected: number, prefix = ''): void => {
  samples.take(`${prefix}calls_per_s`, 'calls/s', burst.calls_per_s)
  for (const name of ['avg_s', 'p50_s', 'p90_s', 'p95_s', 'p99_s', 'max_s'] as const)
    samples.take(prefix + name, 's', burst[name])
  samples.take(`${prefix}p99_over_avg`, '×', burst.p99_s / burst.avg_s)
  samples.take(`${prefix}errors`, 'calls', burst.calls - (burst.by_status.get(expected) ?? 0))
  samples.take(`${prefix}server_cores`, 'cores', burst.server_cpu_s / burst.wall_s)
  samples.take(`${prefix}client_cores`, 'cores', burst.client_cpu_s / burst.wall_s)
}

/** A governed house that is warm, for as long as the work takes. */
export const withHouse = async (warm_s: number, work: (weir: Served) => Promise<void>): Promise<void> => {
  const engine = await startEngine()
  const weir = await startWeir(engine.url)
  try {
    await warm(weir, PATH, CHAT, warm_s)
    await work(weir)
  } finally {
    await weir.stop()
    await engine.stop()
  }
}

const notes = (warm_s: number) => [
  'hey, one worker, the full pipeline to an engine that answers at once; engine, load and server share the machine',
  'server_cores and client_cores: CPU of the whole house and of hey while the calls ran',
  `warmed for ${warm_s} s`,
]

/** Fifty clients: A2 of the published figures. */
export const fiftyBench = async ({ seconds, runs, warm_s }: Options): Promise<Result> => {
  const samples = new Samples()
  await withHouse(warm_s, async (weir) => {
    for (let run = 0; run < runs; run++) {
      const calls = Math.max(50, Math.round((seconds * 5_000) / 50) * 50)
      takeBurst(samples, await hey(weir, { path: PATH, body: CHAT, calls, clients: 50 }), 200)
    }
  })
  return { figures: samples.figures(), notes: notes(warm_s) }
}

/** A thousand clients: A3, as 20,000 calls and as one call each (`burst_`), connecting included. */
export const thousandBench = async ({ runs, warm_s }: Options): Promise<Result> => {
  const samples = new Samples()
  await withHouse(warm_s, async (weir) => {
    for (let run = 0; run < runs; run++) {
      takeBurst(samples, await hey(weir, { path: PATH, body: CHAT, calls: 20_000, clients: 1_000 }), 200)
      takeBurst(samples, await hey(weir, { path: PATH, body: CHAT, calls: 1_000, clients: 1_000 }), 200, 'burst_')
    }
  })
  return { figures: samples.figures(), notes: notes(warm_s) }
}
