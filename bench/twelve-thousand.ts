import { type Burst, hey } from './kit/hey.ts'
import { type Options, type Result, Samples } from './kit/report.ts'
import { CHAT, startEngine, startWeir } from './kit/servers.ts'
import { warm } from './kit/wrk.ts'

const PATH = '/v1/chat/completions'
const ASYNC = { prefer: 'respond-async' }
/** What the engine takes at once, and how long it takes for each. */
const CAPACITY = 64
const ENGINE_MS = 5
const DRAIN_S_MAX = 90

/** The limits on open files that the house is started under. */
const LIMITS = {
  _20000: 'ulimit -n 20000',
  _soft1024: 'ulimit -Sn 1024',
  _hard1024: 'ulimit -n 1024',
} as const

/** Twelve thousand clients at once, A4 and A5: accepted as jobs, and `/data` answered, under three limits on open files. */
export const twelveThousandBench = async ({ runs, warm_s }: Options, clients = 12_000): Promise<Result> => {
  const samples = new Samples()
  const notes: string[] = []
  for (const [suffix, shell] of Object.entries(LIMITS))
    await underLimit(suffix, shell, { runs, warm_s, clients }, samples, notes)
  return {
    figures: samples.figures(),
    notes: [
      `${clients} clients, one call each, all connecting at once (hey -n ${clients} -c ${clients} -t 60); two workers; every run is through the full pipeline`,
      `ok, avg_s …: ${PATH} with Prefer: respond-async, 202; data_…: /data, 200`,
      `the engine takes ${CAPACITY} calls at once and ${ENGINE_MS} ms for each; drain_s: until every accepted job was done; jobs take at most 80 % of an engine`,
      'lost_jobs: accepted, and no call at the engine',
      `warmed for ${warm_s} s; server_cpu_s and client_cpu_s: the whole house and hey, which share the machine`,
      ...notes,
    ],
  }
}

type Sizes = { readonly runs: number; readonly warm_s: number; readonly clients: number }

const underLimit = async (
  suffix: string,
  shell: string,
  { runs, warm_s, clients }: Sizes,
  samples: Samples,
  notes: string[],
): Promise<void> => {
  const engine = await startEngine({ delay_ms: ENGINE_MS })
  const engines = [{ name: 'bench', url: `${engine.url}/v1`, capacity: CAPACITY }]
  const weir = await startWeir(engine.url, { shell, workers: 2, config: { engines } })
  const drained = async (calls: number): Promise<number> => {
    const started = performance.now()
    for (;;) {
      const stats = await engine.stats()
      const seconds = (performance.now() - started) / 1000
      if ((stats.calls >= calls && stats.running === 0) || seconds > DRAIN_S_MAX) return seconds
      await Bun.sleep(50)
    }
  }
  try {
    await warm(weir, PATH, CHAT, warm_s)
    if (warm_s > 0) {
      const before = (await engine.stats()).calls
      const warmed = await hey(weir, { path: PATH, body: CHAT, calls: 4_000, clients: 100, headers: ASYNC })
      await drained(before + (warmed.by_status.get(202) ?? 0))
    }
    for (let run = 0; run < runs; run++) {
      const before = (await engine.stats(true)).calls
      const burst = await hey(weir, { path: PATH, body: CHAT, calls: clients, clients, headers: ASYNC })
      const ok = burst.by_status.get(202) ?? 0
      take(samples, suffix, '', burst, ok)
      samples.take(`drain_s${suffix}`, 's', await drained(before + ok))
      const { calls, running_max } = await engine.stats()
      samples.take(`lost_jobs${suffix}`, 'jobs', before + ok - calls)
      samples.take(`engine_max_in_flight${suffix}`, 'calls', running_max)
      if (running_max > CAPACITY) notes.push(`THE ENGINE'S CAP OF ${CAPACITY} WAS EXCEEDED: ${running_max}`)
      const data = await hey(weir, { path: '/data', body: CHAT, calls: clients, clients })
      take(samples, suffix, 'data_', data, data.by_status.get(200) ?? 0)
      for (const one of [burst, data])
        if (one.by_status.size > 1) notes.push(`${suffix}: ${[...one.by_status].join(' ')}`)
    }
  } finally {
    await weir.stop()
    await engine.stop()
  }
}

const take = (samples: Samples, suffix: string, prefix: string, burst: Burst, ok: number): void => {
  samples.take(`${prefix}ok${suffix}`, 'calls', ok)
  samples.take(`${prefix}errors${suffix}`, 'calls', burst.calls - ok)
  for (const name of ['avg_s', 'p99_s', 'max_s'] as const) samples.take(`${prefix}${name}${suffix}`, 's', burst[name])
  samples.take(`${prefix}server_cpu_s${suffix}`, 's', burst.server_cpu_s)
  samples.take(`${prefix}client_cpu_s${suffix}`, 's', burst.client_cpu_s)
}
