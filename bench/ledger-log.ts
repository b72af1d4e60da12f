import { mkdirSync, mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { nowMs } from '../src/base/clock.ts'
import { Failure } from '../src/base/failure.ts'
import { openJournalTail } from '../src/journal/tail.ts'
import { openJournal } from '../src/journal/writer.ts'
import { runAccountant, startPositions } from '../src/ledger/accountant.ts'
import { openWriter } from '../src/ledger/database.ts'
import { createPoster } from '../src/ledger/poster.ts'
import { cpuNanoseconds } from './kit/processes.ts'
import { type Options, type Result, Samples } from './kit/report.ts'
import { callOf, prices } from './ledger.ts'

/** What the Merkle log costs the accountant: whole journals posted with it and without, in turns. */
export const ledgerLogBench = async ({ seconds, runs }: Options): Promise<Result> => {
  const calls = Math.max(1_000, Math.round(seconds * 5_000))
  const samples = new Samples()
  const auditor = startAuditor()
  try {
    for (let run = 0; run <= runs; run++) {
      const off = await post(calls, undefined)
      const on = await post(calls, auditor)
      // The first pair compiles the code.
      if (run === 0) continue
      samples.take('log_off_calls_per_s', 'calls/s', off.calls_per_s)
      samples.take('log_on_calls_per_s', 'calls/s', on.calls_per_s)
      samples.take('log_on_share', 'of off', on.calls_per_s / off.calls_per_s)
      samples.take('leaf_behind_ms', 'ms', on.behind_ms)
      samples.take('log_off_cpu_us', 'µs/call', off.cpu_us)
      samples.take('log_on_cpu_us', 'µs/call', on.cpu_us)
      samples.take('auditor_cpu_us', 'µs/call', on.auditor_cpu_us)
    }
  } finally {
    auditor.child.kill()
  }
  return {
    figures: samples.figures(),
    notes: [
      `${calls} calls a run from journal to ledger: a row and an entry a call. With the log salted hashes as well, and the auditor beside it, a process of its own, appends a leaf for each call and signs at least each second.`,
      'leaf_behind_ms: from the last row of a run to its leaf. log_on_cpu_us is the accountant alone.',
    ],
  }
}

type Auditor = ReturnType<typeof startAuditor>

const startAuditor = () => {
  const child = Bun.spawn([process.execPath, join(import.meta.dir, 'kit/auditor.ts')], {
    stdin: 'pipe',
    stdout: 'pipe',
    stderr: 'inherit',
  })
  const told = child.stdout.getReader()
  return {
    child,
    /** Resolves when it keeps the log of that folder, or none. */
    keep: async (data: string): Promise<void> => {
      child.stdin.write(`${data}\n`)
      await child.stdin.flush()
      if ((await told.read()).done) throw new Error('the auditor ended')
    },
  }
}

const post = async (calls: number, auditor: Auditor | undefined) => {
  const data = mkdtempSync(join(tmpdir(), 'weir-bench-'))
  const folder = join(data, 'journal')
  mkdirSync(folder)
  const journal = await openJournal({ folder, worker_index: 0, incarnation: 0, durability: 'standard', sync_ms: 50 })
  if (journal instanceof Failure) throw journal.detail.cause
  for (let call = 0; call < calls; call++)
    for (const record of callOf()) while (journal.append(record) instanceof Failure) await Bun.sleep(5)
  await journal.close()
  const store = openWriter(data, 'ledger')
  const poster = createPoster(store, auditor === undefined ? 'no_log' : 'logged')
  await auditor?.keep(data)
  const tail = openJournalTail({ folder, positions: startPositions(poster), discover_ms: 5 })
  const used = process.cpuUsage()
  const auditor_used_ns = auditor === undefined ? 0 : cpuNanoseconds(auditor.child.pid)
  const started_ms = performance.now()
  const accountant = runAccountant({ tail, poster, prices: () => prices, now: nowMs, is_live: () => true, poll_ms: 5 })
  while (accountant.stats().posted_calls < calls) await Bun.sleep(1)
  const took_ms = performance.now() - started_ms
  const { user, system } = process.cpuUsage(used)
  while (auditor !== undefined && leaves(data) < calls) await Bun.sleep(1)
  const behind_ms = performance.now() - started_ms - took_ms
  const auditor_ns = auditor === undefined ? 0 : cpuNanoseconds(auditor.child.pid) - auditor_used_ns
  await auditor?.keep('')
  await accountant.stop()
  tail.close()
  store.sqlite.close()
  rmSync(data, { recursive: true, force: true })
  return {
    calls_per_s: (calls / took_ms) * 1_000,
    behind_ms,
    cpu_us: (user + system) / calls,
    auditor_cpu_us: auditor_ns / calls / 1_000,
  }
}

const leaves = (data: string): number => statSync(join(data, 'audit/leaves.index')).size / 8
