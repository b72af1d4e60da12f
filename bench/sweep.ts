import { clientNote, figure, type Options, type Result, Samples } from './kit/report.ts'
import { CHAT, startEngine, startWeir } from './kit/servers.ts'
import { warm, wrk } from './kit/wrk.ts'

const PATH = '/v1/chat/completions'
const STEPS = [1, 4, 32, 128, 256, 1024] as const

/** Throughput from one connection to a thousand: it must not fall from one step to the next. */
export const sweepBench = async ({ seconds, runs, warm_s }: Options): Promise<Result> => {
  const engine = await startEngine()
  const weir = await startWeir(engine.url)
  const samples = new Samples()
  const cores: number[] = []
  let errors = 0
  try {
    await warm(weir, PATH, CHAT, warm_s)
    for (let run = 0; run < runs; run++) {
      for (const connections of STEPS) {
        const one = await wrk(weir, PATH, CHAT, connections, seconds)
        samples.take(`calls_per_s_${connections}`, 'calls/s', one.calls_per_s)
        samples.take(`p99_ms_${connections}`, 'ms', one.p99_ms)
        samples.take(`cpu_us_${connections}`, 'µs/call', one.cpu_us_per_call)
        cores.push(one.client_cores)
        errors += one.errors
      }
    }
  } finally {
    await weir.stop()
    await engine.stop()
  }
  const rates = STEPS.map((step) => figure(samples.values(`calls_per_s_${step}`), 'calls/s').value)
  samples.take('worst_step', '×', Math.min(...rates.slice(1).map((rate, at) => rate / rates[at]!)))
  samples.take('errors', 'calls', errors)
  return {
    figures: samples.figures(),
    notes: [
      'one worker, the full pipeline; worst_step is of the medians; engine, load and server share the machine',
      `warmed for ${warm_s} s`,
      clientNote(Math.max(...cores)),
    ],
  }
}
