import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { nowMs } from '../src/base/clock.ts'
import { Failure } from '../src/base/failure.ts'
import { openJournalTail } from '../src/journal/tail.ts'
import { openJournal } from '../src/journal/writer.ts'
import { runAccountant, startPositions } from '../src/ledger/accountant.ts'
import { openWriter } from '../src/ledger/database.ts'
import { openLedgerLog } from '../src/ledger/ledger-log.ts'
import { createPoster } from '../src/ledger/poster.ts'
import { type Options, type Result, Samples } from './kit/report.ts'
import { callOf, prices } from './ledger.ts'

/** What the Merkle log costs the accountant: whole journals posted with it and without, in turns. */
export const ledgerLogBench = async ({ seconds, runs }: Options): Promise<Result> => {
  const calls = Math.max(1_000, Math.round(seconds * 5_000))
  const samples = new Samples()
  for (let run = 0; run <= runs; run++) {
    const off = await post(calls, false)
    const on = await post(calls, true)
    // The first pair compiles the code.
    if (run === 0) continue
    samples.take('log_off_calls_per_s', 'calls/s', off.calls_per_s)
    samples.take('log_on_calls_per_s', 'calls/s', on.calls_per_s)
    samples.take('log_on_share', 'of off', on.calls_per_s / off.calls_per_s)
    samples.take('log_off_cpu_us', 'µs/call', off.cpu_us)
    samples.take('log_on_cpu_us', 'µs/call', on.cpu_us)
  }
  return {
    figures: samples.figures(),
    notes: [
      `${calls} calls a run from journal to ledger in one process: a row and an entry a call, salted hashes, a leaf for both, a checkpoint every 250 ms.`,
    ],
  }
}

const post = async (calls: number, logged: boolean): Promise<{ calls_per_s: number; cpu_us: number }> => {
  const data = mkdtempSync(join(tmpdir(), 'weir-bench-'))
  const folder = join(data, 'journal')
  mkdirSync(folder)
  const journal = await openJournal({ folder, worker_index: 0, incarnation: 0, durability: 'standard', sync_ms: 50 })
  if (journal instanceof Failure) throw journal.detail.cause
  for (let call = 0; call < calls; call++)
    for (const record of callOf()) while (journal.append(record) instanceof Failure) await Bun.sleep(5)
  await journal.close()
  const store = openWriter(data, 'ledger')
  const log = logged ? openLedgerLog(store, join(data, 'audit'), 'bench.example/log') : undefined
  if (log instanceof Failure) throw log.detail.cause
  const poster = createPoster(store, log)
  const tail = openJournalTail({ folder, positions: startPositions(poster), discover_ms: 5 })
  const used = process.cpuUsage()
  const started_ms = performance.now()
  const accountant = runAccountant({ tail, poster, prices: () => prices, now: nowMs, is_live: () => true, poll_ms: 5 })
  const timer = setInterval(() => void log?.checkpointLater(), 250)
  while (accountant.stats().posted_calls < calls) await Bun.sleep(1)
  const took_ms = performance.now() - started_ms
  const { user, system } = process.cpuUsage(used)
  clearInterval(timer)
  await accountant.stop()
  tail.close()
  store.sqlite.close()
  log?.log.close()
  rmSync(data, { recursive: true, force: true })
  return { calls_per_s: (calls / took_ms) * 1_000, cpu_us: (user + system) / calls }
}
