import { resolve } from 'node:path'
import { type Options, type Result, Samples } from './kit/report.ts'
import { CHAT, startEngine, startWeir } from './kit/servers.ts'
import { type Run, warm, wrk } from './kit/wrk.ts'

const PATH = '/v1/chat/completions'
const NO_JOURNAL = `--preload ${resolve(import.meta.dir, 'kit/no-journal.ts')}`

/**
 * What a client waits longer because of the ledger: the same house with it and without it, in both modes of durability, in
 * turn; and what it waits longer than at the engine itself.
 */
export const durabilityBench = async ({ seconds, runs, warm_s }: Options): Promise<Result> => {
  const engine = await startEngine()
  const off = await startWeir(engine.url, { env: { BUN_OPTIONS: NO_JOURNAL } })
  const standard = await startWeir(engine.url, { config: { ledger: { durability: 'standard' } } })
  const strict = await startWeir(engine.url, { config: { ledger: { durability: 'strict' } } })
  const samples = new Samples()
  const compare = (name: string, on: Run, without: Run) => {
    samples.take(`${name}_p50_ms`, 'ms', on.p50_ms - without.p50_ms)
    samples.take(`${name}_p99_ms`, 'ms', on.p99_ms - without.p99_ms)
  }
  try {
    for (const weir of [off, standard, strict]) await warm(weir, PATH, CHAT, warm_s)
    for (let run = 0; run < runs; run++) {
      const alone = await wrk(engine, PATH, CHAT, 1, seconds)
      const without = await wrk(off, PATH, CHAT, 1, seconds)
      const [one, other] = [await wrk(standard, PATH, CHAT, 1, seconds), await wrk(strict, PATH, CHAT, 1, seconds)]
      samples.take('off_p50_ms', 'ms', without.p50_ms)
      samples.take('off_p99_ms', 'ms', without.p99_ms)
      compare('ledger_standard', one, without)
      compare('ledger_strict', other, without)
      samples.take('added_p50_ms_standard', 'ms', one.p50_ms - alone.p50_ms)
      samples.take('added_p50_ms_strict', 'ms', other.p50_ms - alone.p50_ms)
      samples.take('added_by_strict_p50_ms', 'ms', other.p50_ms - one.p50_ms)
    }
  } finally {
    for (const server of [off, standard, strict, engine]) await server.stop()
  }
  const notes = [
    'ledger_…: at one connection, the house over the same house whose workers keep no journal, in the mode of the name: ledger on minus off',
    `added_p50_ms_…: the whole gateway over the engine alone; warmed for ${warm_s} s each`,
  ]
  return { figures: samples.figures(), notes }
}
