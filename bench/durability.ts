import { type Options, type Result, Samples } from './kit/report.ts'
import { CHAT, startEngine, startWeir } from './kit/servers.ts'
import { warm, wrk } from './kit/wrk.ts'

const PATH = '/v1/chat/completions'

/** What a client waits longer than at the engine itself, in both modes of durability, in turn. */
export const durabilityBench = async ({ seconds, runs, warm_s }: Options): Promise<Result> => {
  const engine = await startEngine()
  const standard = await startWeir(engine.url, { config: { ledger: { durability: 'standard' } } })
  const strict = await startWeir(engine.url, { config: { ledger: { durability: 'strict' } } })
  const samples = new Samples()
  try {
    for (const weir of [standard, strict]) await warm(weir, PATH, CHAT, warm_s)
    for (let run = 0; run < runs; run++) {
      const alone = await wrk(engine, PATH, CHAT, 1, seconds)
      const [one, other] = [await wrk(standard, PATH, CHAT, 1, seconds), await wrk(strict, PATH, CHAT, 1, seconds)]
      samples.take('added_p50_ms_standard', 'ms', one.p50_ms - alone.p50_ms)
      samples.take('added_p50_ms_strict', 'ms', other.p50_ms - alone.p50_ms)
      samples.take('added_by_strict_p50_ms', 'ms', other.p50_ms - one.p50_ms)
    }
  } finally {
    for (const server of [standard, strict, engine]) await server.stop()
  }
  const note = `added_p50_ms_…: at one connection, the whole gateway over the engine alone, in the mode of its name; warmed for ${warm_s} s each`
  return { figures: samples.figures(), notes: [note] }
}
