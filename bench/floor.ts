import { clientNote, figure, type Options, type Result } from './kit/report.ts'
import { CHAT, startBare, startEngine, startNginx, startWeir, STREAM } from './kit/servers.ts'
import { type Run, usedBy, warm, wrk } from './kit/wrk.ts'

const PATH = '/v1/chat/completions'

/**
 * The comparison that counts: a fully governed call against the same call through nginx `proxy_pass`, alternating in one
 * run. CPU is that of every process of the house (supervisor, worker, control, accountant), and of the worker alone. Beside
 * both, for JSON, a bare proxy on the same runtime and transport: what a gateway written for it starts from.
 */
export const floorBench = async ({ seconds, runs, warm_s }: Options): Promise<Result> => {
  const engine = await startEngine()
  const nginx = await startNginx(engine.url)
  const bare = await startBare(engine.url)
  const weir = await startWeir(engine.url)
  const kinds = { json: CHAT, stream: STREAM } as const
  const taken = { json: { weir: [] as Run[], nginx: [] as Run[] }, stream: { weir: [] as Run[], nginx: [] as Run[] } }
  const bare_runs: Run[] = []
  const [worker] = weir.worker_pids()
  try {
    for (const kind of ['json', 'stream'] as const) {
      await warm(nginx, PATH, kinds[kind], Math.min(2, warm_s))
      await warm(weir, PATH, kinds[kind], warm_s)
      if (kind === 'json') await warm(bare, PATH, CHAT, warm_s)
      for (let run = 0; run < runs; run++) {
        taken[kind].nginx.push(await wrk(nginx, PATH, kinds[kind], 50, seconds))
        taken[kind].weir.push(await wrk(weir, PATH, kinds[kind], 50, seconds))
        if (kind === 'json') bare_runs.push(await wrk(bare, PATH, CHAT, 50, seconds))
      }
    }
  } finally {
    await weir.stop()
    await bare.stop()
    await nginx.stop()
    await engine.stop()
  }
  const of = (kind: 'json' | 'stream', who: 'weir' | 'nginx', what: (run: Run) => number) => taken[kind][who].map(what)
  const ratio = (kind: 'json' | 'stream', mine: (run: Run) => number, runs_of = taken[kind].weir) =>
    runs_of.map((run, at) => mine(run) / taken[kind].nginx[at]!.cpu_us_per_call)
  const whole = (run: Run) => run.cpu_us_per_call
  const alone = (run: Run) => usedBy(run, worker)
  const all = [...bare_runs, ...taken.json.weir, ...taken.json.nginx, ...taken.stream.weir, ...taken.stream.nginx]
  const errors = all.reduce((sum, run) => sum + run.errors, 0)
  const busiest = Math.max(...all.map((run) => run.client_cores))
  return {
    figures: {
      json_cpu_ratio: figure(ratio('json', whole), '× nginx'),
      json_worker_cpu_ratio: figure(ratio('json', alone), '× nginx'),
      bare_json_cpu_ratio: figure(ratio('json', whole, bare_runs), '× nginx'),
      stream_cpu_ratio: figure(ratio('stream', whole), '× nginx'),
      stream_worker_cpu_ratio: figure(ratio('stream', alone), '× nginx'),
      json_cpu_us: figure(of('json', 'weir', whole), 'µs/call'),
      json_worker_cpu_us: figure(of('json', 'weir', alone), 'µs/call'),
      bare_json_cpu_us: figure(bare_runs.map(whole), 'µs/call'),
      nginx_json_cpu_us: figure(of('json', 'nginx', whole), 'µs/call'),
      stream_cpu_us: figure(of('stream', 'weir', whole), 'µs/call'),
      stream_worker_cpu_us: figure(of('stream', 'weir', alone), 'µs/call'),
      nginx_stream_cpu_us: figure(of('stream', 'nginx', whole), 'µs/call'),
      json_calls_per_s: figure(
        of('json', 'weir', (run) => run.calls_per_s),
        'calls/s',
      ),
      nginx_calls_per_s: figure(
        of('json', 'nginx', (run) => run.calls_per_s),
        'calls/s',
      ),
      client_cores: figure(
        all.map((run) => run.client_cores),
        'cores',
      ),
      errors: figure([errors], 'calls'),
    },
    notes: [
      '50 keep-alive connections, one worker process each; 380-byte JSON answers and streams of 64 events; engine, load and server share two cores',
      `Weir warmed for ${warm_s} s a kind: until its code is compiled a call costs several times as much`,
      'nginx: one worker, proxy_buffering off, keep-alive both ways, no access log',
      'bare: Bun.serve in front of the same pooled sockets, nothing between: no key, no limit, no record, the answer not looked at',
      clientNote(busiest),
    ],
  }
}
