import { clientNote, type Options, type Result, Samples } from './kit/report.ts'
import { CHAT, startEngine, startWeir } from './kit/servers.ts'
import { warm, wrk } from './kit/wrk.ts'

const PATH = '/v1/chat/completions'

/** One worker and two, in turn: calls a second, and CPU a call. */
export const scaleBench = async ({ seconds, runs, warm_s }: Options): Promise<Result> => {
  const engine = await startEngine()
  const one = await startWeir(engine.url, { workers: 1 })
  const two = await startWeir(engine.url, { workers: 2 })
  const samples = new Samples()
  const cores: number[] = []
  try {
    for (const weir of [one, two]) await warm(weir, PATH, CHAT, warm_s)
    for (let run = 0; run < runs; run++) {
      const single = await wrk(one, PATH, CHAT, 64, seconds)
      const double = await wrk(two, PATH, CHAT, 64, seconds)
      samples.take('speedup', '×', double.calls_per_s / single.calls_per_s)
      samples.take('calls_per_s_1', 'calls/s', single.calls_per_s)
      samples.take('calls_per_s_2', 'calls/s', double.calls_per_s)
      samples.take('cpu_us_1', 'µs/call', single.cpu_us_per_call)
      samples.take('cpu_us_2', 'µs/call', double.cpu_us_per_call)
      samples.take('cpu_ratio', '×', double.cpu_us_per_call / single.cpu_us_per_call)
      samples.take('server_cores_2', 'cores', (double.cpu_us_per_call * double.calls_per_s) / 1e6)
      cores.push(single.client_cores, double.client_cores)
    }
  } finally {
    for (const server of [one, two, engine]) await server.stop()
  }
  const cpus = navigator.hardwareConcurrency
  return {
    figures: samples.figures(),
    notes: [
      ...(cpus < 4
        ? [
            `LIMITED BY THE MACHINE: ${cpus} cores for two workers, engine and load; cpu_ratio tells what a second worker costs`,
          ]
        : []),
      `64 connections; warmed for ${warm_s} s each`,
      clientNote(Math.max(...cores)),
    ],
  }
}
