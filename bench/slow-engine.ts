import { figure, type Options, type Result, Samples } from './kit/report.ts'
import { CHAT, startEngine, startWeir } from './kit/servers.ts'
import { load } from './kit/streams.ts'
import { warm } from './kit/wrk.ts'

/** So many calls at once to an engine that takes five seconds, on one worker: C1. The gateway must not make them wait. */
export const slowEngineBench = async (
  { runs, warm_s }: Options,
  { calls, delay_ms } = { calls: 1_000, delay_ms: 5_000 },
): Promise<Result> => {
  const engine = await startEngine({ delay_ms })
  const quick = await startEngine()
  const weir = await startWeir(engine.url, {
    config: {
      engines: [
        { name: 'bench', url: `${engine.url}/v1`, capacity: 100_000 },
        { name: 'quick', url: `${quick.url}/v1` },
      ],
      models: [
        { name: 'bench', targets: [{ engine: 'bench' }], free: true },
        { name: 'quick', targets: [{ engine: 'quick' }], free: true },
      ],
    },
  })
  const samples = new Samples()
  try {
    await warm(weir, '/v1/chat/completions', CHAT.replace('"bench"', '"quick"'), warm_s)
    for (let run = 0; run < runs; run++) {
      const one = await load(weir, { body: CHAT, connections: calls, seconds: 0, calls_each: 1, spread_ms: 0 })
      samples.take('all_s', 's', one.seconds_taken)
      samples.take('p50_s', 's', one.whole_ms.p50 / 1000)
      samples.take('p99_s', 's', one.whole_ms.p99 / 1000)
      samples.take('max_s', 's', one.whole_ms.max / 1000)
      samples.take('errors', 'calls', calls - (one.by_status['200'] ?? 0))
      samples.take('server_cpu_s', 's', one.cpu_s)
    }
  } finally {
    for (const server of [weir, engine, quick]) await server.stop()
  }
  return {
    figures: { ...samples.figures(), engine_s: figure([delay_ms / 1000], 's') },
    notes: [
      `${calls} calls at once, one worker, an engine that takes ${delay_ms / 1000} s for each; all_s: from the first connect to the last byte`,
      `warmed for ${warm_s} s`,
    ],
  }
}
