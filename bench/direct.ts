import { clientNote, type Options, type Result, Samples } from './kit/report.ts'
import { CHAT, STREAM, startEngine, startWeir } from './kit/servers.ts'
import { load } from './kit/streams.ts'
import { warm, wrk } from './kit/wrk.ts'

const PATH = '/v1/chat/completions'
const STREAMS = 200
/** Twenty tokens a second of each stream. */
const GAP_MS = 50
/** What an engine takes at the least; at once, 50 callers without a pause only measure how fast the machine is. */
const THINK_MS = 20
const STREAM_S = (64 * GAP_MS) / 1000

/** What the gateway adds: percentiles of a governed call less those of the same call at the engine itself, in turn. */
export const directBench = async ({ seconds, runs, warm_s }: Options): Promise<Result> => {
  const engine = await startEngine()
  const slow = await startEngine({ gap_ms: GAP_MS })
  const thinking = await startEngine({ delay_ms: THINK_MS })
  const weir = await startWeir(engine.url)
  const waiting = await startWeir(thinking.url)
  const streaming = await startWeir(slow.url)
  const samples = new Samples()
  const cores: number[] = []
  let errors = 0
  try {
    await warm(engine, PATH, CHAT, Math.min(2, warm_s))
    await warm(weir, PATH, CHAT, warm_s)
    await warm(waiting, PATH, CHAT, warm_s)
    const pairs = [
      { label: 'c1', connections: 1, from: engine, by: weir },
      { label: 'c50', connections: 50, from: engine, by: weir },
      { label: `c50_engine_${THINK_MS}ms`, connections: 50, from: thinking, by: waiting },
    ] as const
    for (let run = 0; run < runs; run++) {
      for (const { label, connections, from, by } of pairs) {
        const alone = await wrk(from, PATH, CHAT, connections, seconds)
        const through = await wrk(by, PATH, CHAT, connections, seconds)
        for (const name of ['p50_ms', 'p99_ms'] as const) {
          samples.take(`added_${name}_${label}`, 'ms', through[name] - alone[name])
          samples.take(`weir_${name}_${label}`, 'ms', through[name])
          samples.take(`engine_${name}_${label}`, 'ms', alone[name])
        }
        samples.take(`calls_per_s_${label}`, 'calls/s', through.calls_per_s)
        samples.take(`cpu_us_${label}`, 'µs/call', through.cpu_us_per_call)
        cores.push(alone.client_cores, through.client_cores)
        errors += alone.errors + through.errors
      }
    }
    const streams = (server: typeof slow | typeof weir, length_s: number) =>
      load(server, { body: STREAM, connections: STREAMS, seconds: length_s, spread_ms: STREAM_S * 1000 })
    await warm(streaming, PATH, CHAT, warm_s)
    await streams(streaming, Math.min(STREAM_S, warm_s))
    for (let run = 0; run < runs; run++) {
      const length_s = Math.max(seconds, STREAM_S)
      const alone = await streams(slow, length_s)
      const through = await streams(streaming, length_s)
      samples.take('added_first_token_p50_ms', 'ms', through.first_ms.p50 - alone.first_ms.p50)
      samples.take('added_first_token_p99_ms', 'ms', through.first_ms.p99 - alone.first_ms.p99)
      samples.take('weir_first_token_p99_ms', 'ms', through.first_ms.p99)
      samples.take('engine_first_token_p99_ms', 'ms', alone.first_ms.p99)
      cores.push(alone.client_cores, through.client_cores)
      errors += alone.errors + through.errors
    }
  } finally {
    for (const server of [weir, waiting, streaming, slow, thinking, engine]) await server.stop()
  }
  samples.take('errors', 'calls', errors)
  return {
    figures: samples.figures(),
    notes: [
      'one worker; engine, load and server share the machine, so an added percentile holds what they take from each other',
      `c50: callers without a pause and an engine that answers at once, so all wait for a turn on the CPU; c50_engine_${THINK_MS}ms: an engine that takes ${THINK_MS} ms`,
      `first token: ${STREAMS} streams at a time, 64 events each, ${1000 / GAP_MS} a second, starts spread evenly`,
      `warmed for ${warm_s} s each`,
      clientNote(Math.max(...cores)),
    ],
  }
}
