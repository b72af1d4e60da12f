import { rssMb } from './kit/processes.ts'
import { clientNote, figure, type Options, type Result } from './kit/report.ts'
import { CHAT, startEngine, startWeir } from './kit/servers.ts'
import { warm, wrk } from './kit/wrk.ts'

const PATH = '/v1/chat/completions'
/** Together with the engine's time 5,000 calls a second at most. */
const CONNECTIONS = 110
const ENGINE_MS = 20
const LOOK_MS = 500

/** Memory under load over time: the slope of a line through the resident memory of each process of the house. */
export const soakBench = async ({ seconds, warm_s }: Options): Promise<Result> => {
  const engine = await startEngine({ delay_ms: ENGINE_MS })
  const weir = await startWeir(engine.url)
  const pids = weir.pids()
  const [worker] = weir.worker_pids()
  const idle_mb = rssMb(worker!)
  const seen: { at_min: number; worker_mb: number; house_mb: number }[] = []
  try {
    await warm(weir, PATH, CHAT, warm_s)
    const started = performance.now()
    const timer = setInterval(() => {
      const house_mb = pids.reduce((sum, pid) => sum + rssMb(pid), 0)
      seen.push({ at_min: (performance.now() - started) / 60_000, worker_mb: rssMb(worker!), house_mb })
    }, LOOK_MS)
    const run = await wrk(weir, PATH, CHAT, CONNECTIONS, seconds)
    clearInterval(timer)
    const one = (value: number, unit: string) => figure([value], unit)
    const slope = (what: 'worker_mb' | 'house_mb') => one(slopeOf(seen.map((at) => [at.at_min, at[what]])), 'MB/min')
    return {
      figures: {
        rss_slope_mb_per_min: slope('worker_mb'),
        house_rss_slope_mb_per_min: slope('house_mb'),
        worker_idle_rss_mb: one(idle_mb, 'MB'),
        worker_rss_mb: figure(
          seen.map(({ worker_mb }) => worker_mb),
          'MB',
        ),
        house_rss_mb: figure(
          seen.map(({ house_mb }) => house_mb),
          'MB',
        ),
        calls_per_s: one(run.calls_per_s, 'calls/s'),
        errors: one(run.errors, 'calls'),
      },
      notes: [
        `${seconds} s on ${CONNECTIONS} connections to an engine that takes ${ENGINE_MS} ms, one worker; the least-squares line through ${seen.length} looks`,
        'a run shorter than ten minutes shows the collector’s saw-teeth as a slope: --seconds 600 for the published figure',
        `warmed for ${warm_s} s`,
        clientNote(run.client_cores),
      ],
    }
  } finally {
    await weir.stop()
    await engine.stop()
  }
}

/** Slope of the least-squares line through points; 0 for fewer than two. */
export const slopeOf = (points: readonly (readonly [x: number, y: number])[]): number => {
  const n = points.length
  if (n < 2) return 0
  const mean_x = points.reduce((sum, [x]) => sum + x, 0) / n
  const mean_y = points.reduce((sum, [, y]) => sum + y, 0) / n
  const spread = points.reduce((sum, [x]) => sum + (x - mean_x) ** 2, 0)
  return spread === 0 ? 0 : points.reduce((sum, [x, y]) => sum + (x - mean_x) * (y - mean_y), 0) / spread
}
