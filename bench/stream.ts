import { rssMb } from './kit/processes.ts'
import { clientNote, type Options, type Result, Samples } from './kit/report.ts'
import { CHAT, STREAM, startEngine, startWeir } from './kit/servers.ts'
import { load } from './kit/streams.ts'
import { warm } from './kit/wrk.ts'

const PATH = '/v1/chat/completions'
/** A slow token, so that thousands of streams are open at once and little else is measured. */
const SLOW_GAP_MS = 1_000
const SETTLE_MS = 500

/** Relayed events a second from an engine that gives all it has, and the memory of thousands of open streams. */
export const streamBench = async ({ seconds, runs, warm_s }: Options, open = 5_000): Promise<Result> => {
  const samples = new Samples()
  const cores: number[] = []
  await events({ seconds, runs, warm_s }, samples, cores)
  await held({ seconds, runs, warm_s }, open, samples)
  return {
    figures: samples.figures(),
    notes: [
      'events_per_s: one worker, 50 streams of 64 events at a time, each event a write of its own at the engine',
      `open_streams: ${open} streams through one worker, one event a second each; rss_mb is the worker’s, rss_more_mb beyond what it was before`,
      `warmed for ${warm_s} s`,
      clientNote(Math.max(...cores)),
    ],
  }
}

const events = async ({ seconds, runs, warm_s }: Options, samples: Samples, cores: number[]): Promise<void> => {
  const engine = await startEngine()
  const weir = await startWeir(engine.url)
  try {
    await warm(weir, PATH, STREAM, warm_s)
    for (let run = 0; run < runs; run++) {
      const one = await load(weir, { body: STREAM, connections: 50, seconds, spread_ms: 50 })
      samples.take('events_per_s', 'events/s', one.events / one.seconds_taken)
      samples.take('streams_per_s', 'streams/s', one.calls / one.seconds_taken)
      samples.take('cpu_us_per_event', 'µs', (one.cpu_s * 1e6) / one.events)
      samples.take('stream_errors', 'calls', one.errors)
      cores.push(one.client_cores)
    }
  } finally {
    await weir.stop()
    await engine.stop()
  }
}

const held = async ({ seconds, runs, warm_s }: Options, open: number, samples: Samples): Promise<void> => {
  const length_s = Math.max(4, Math.round(seconds)) + Math.ceil(open / 1_000)
  const engine = await startEngine({ gap_ms: SLOW_GAP_MS, events: length_s })
  const weir = await startWeir(engine.url, { config: { server: { upstream_sockets_max: 16_384 } } })
  const [worker] = weir.worker_pids()
  try {
    await warm(weir, PATH, CHAT, Math.min(3, warm_s))
    for (let run = 0; run < Math.min(runs, 3); run++) {
      const before_mb = rssMb(worker!)
      const spread_ms = open
      const one = await load(weir, {
        ...{ body: STREAM, connections: open, seconds: 0, calls_each: 1, spread_ms },
        during: async () => {
          await Bun.sleep(spread_ms + (length_s * 1000 - spread_ms) / 2 + SETTLE_MS)
          samples.take('rss_mb', 'MB', rssMb(worker!))
          samples.take('rss_more_mb', 'MB', rssMb(worker!) - before_mb)
        },
      })
      samples.take('open_streams', 'streams', one.open_max)
      samples.take('open_errors', 'calls', one.errors + one.calls - (one.by_status['200'] ?? 0))
      samples.take('open_cpu_cores', 'cores', one.cpu_s / one.seconds_taken)
    }
  } finally {
    await weir.stop()
    await engine.stop()
  }
}
