import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { type Options, type Result, Samples } from './kit/report.ts'
import { CHAT, type Served, startEngine, startScript, startWeir } from './kit/servers.ts'
import { load } from './kit/streams.ts'
import { FLUSH_MS } from './kit/slow-ledger.ts'
import { warm } from './kit/wrk.ts'

/** What each commit of the ledger takes longer. */
const DELAYS_MS = [0, 5, 50, 500] as const
const ENGINE_MS = 20
const CONNECTIONS = 16

/** A server whose ledger can be slowed, and what its serving loop noted. */
type Slowed = { readonly name: 'weir' | 'inline'; readonly server: Served; readonly lag_file: string }

/**
 * C2: a slow ledger beside the calls, and a slow write inside them. Both servers proxy the same calls to the same engine; in
 * turn each commit takes 0, 5, 50 and 500 ms longer.
 */
export const slowLedgerBench = async (
  { seconds, runs, warm_s }: Options,
  delays_ms: readonly number[] = DELAYS_MS,
): Promise<Result> => {
  const folder = mkdtempSync(join(tmpdir(), 'weir-slow-'))
  const delay_file = `${folder}/delay`
  const slowBy = (delay_ms: number) => writeFileSync(delay_file, String(delay_ms))
  const envOf = (name: string) => ({ BENCH_DELAY_FILE: delay_file, BENCH_LAG_FILE: `${folder}/${name}` })
  slowBy(0)
  const engine = await startEngine({ delay_ms: ENGINE_MS })
  const preload = `--preload ${resolve(import.meta.dir, 'kit/slow-ledger.ts')}`
  const weir = await startWeir(engine.url, { env: { ...envOf('weir'), BUN_OPTIONS: preload } })
  const inline = await startInline(engine.url, `${folder}/inline.db`, envOf('inline'))
  const samples = new Samples()
  const servers: Slowed[] = [
    { name: 'weir', server: weir, lag_file: `${folder}/weir` },
    { name: 'inline', server: inline, lag_file: `${folder}/inline` },
  ]
  try {
    for (const { server } of servers) await warm(server, '/v1/chat/completions', CHAT, warm_s)
    for (let run = 0; run < runs; run++)
      for (const delay_ms of delays_ms)
        for (const slowed of servers) {
          slowBy(delay_ms)
          await measure(slowed, delay_ms, seconds, samples)
          if (slowed.server === weir) samples.take(`posting_lag_ms_${delay_ms}`, 'ms', await postingLagMs(weir.ops))
        }
  } finally {
    slowBy(0)
    for (const server of [weir, inline, engine]) await server.stop()
    rmSync(folder, { recursive: true, force: true })
  }
  const notes = [
    `${CONNECTIONS} connections, an engine that takes ${ENGINE_MS} ms, the delay in the name added to each commit by a preloaded file, warmed for ${warm_s} s`,
    'weir: the commits of the accountant, standard mode, one worker; inline: a bare proxy that inserts each call where it serves it',
    'lag_p99: how late a timer of 5 ms fires in the serving process; posting_lag: age of the newest row when it was committed, which shows that the delay was there',
  ]
  return { figures: samples.figures(), notes }
}

const measure = async ({ name, server, lag_file }: Slowed, delay_ms: number, seconds: number, samples: Samples) => {
  const from_ms = Date.now()
  const one = await load(server, { body: CHAT, connections: CONNECTIONS, seconds, spread_ms: ENGINE_MS })
  await Bun.sleep(2 * FLUSH_MS)
  const end = `${name}_${delay_ms}`
  samples.take(`p50_ms_${end}`, 'ms', one.whole_ms.p50)
  samples.take(`p99_ms_${end}`, 'ms', one.whole_ms.p99)
  samples.take(`lag_p99_ms_${end}`, 'ms', lagP99(lag_file, from_ms, from_ms + one.seconds_taken * 1_000))
  samples.take(`calls_per_s_${end}`, 'calls/s', one.calls / one.seconds_taken)
  samples.take(`errors_${end}`, 'calls', one.calls - (one.by_status['200'] ?? 0) + one.errors)
}

const lagP99 = (file: string, from_ms: number, to_ms: number): number => {
  const lags = readFileSync(file, 'utf8')
    .split('\n')
    .map((line) => line.split(' ').map(Number) as [at_ms: number, lag_ms: number])
    .filter(([at_ms]) => at_ms >= from_ms && at_ms <= to_ms)
    .map(([, lag_ms]) => lag_ms)
    .toSorted((one, other) => one - other)
  return lags[Math.floor(lags.length * 0.99)] ?? Number.NaN
}

const postingLagMs = async (ops: string): Promise<number> => {
  const page = await (await fetch(`${ops}/metrics`)).text()
  return Number(/^weir_accountant_lag_seconds ([\d.e+-]+)/m.exec(page)?.[1]) * 1_000
}

const startInline = (engine_url: string, database: string, env: Record<string, string>): Promise<Served> =>
  startScript('inline', [resolve(import.meta.dir, 'kit/inline.ts'), engine_url, database], env)
