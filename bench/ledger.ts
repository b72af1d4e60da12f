import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { nowMs } from '../src/base/clock.ts'
import { Failure } from '../src/base/failure.ts'
import { newCallId } from '../src/base/ids.ts'
import { callIdOf, type JournalRecord } from '../src/journal/record.ts'
import { openJournalTail } from '../src/journal/tail.ts'
import { openJournal } from '../src/journal/writer.ts'
import { runAccountant, startPositions } from '../src/ledger/accountant.ts'
import { openReader, openWriter } from '../src/ledger/database.ts'
import { createPoster } from '../src/ledger/poster.ts'
import { advance, fold, type JournaledRecord } from '../src/ledger/posting.ts'
import { priceList } from '../src/ledger/pricing.ts'

/** One measured figure: the median of its runs, with their range. */
export type Figure = { value: number; unit: string; min: number; max: number; n: number }

export const prices = priceList([
  {
    model: 'm1',
    version: 1,
    valid_from_ms: 0,
    input_picodollars: 150_000n,
    cached_input_picodollars: null,
    output_picodollars: 600_000n,
    reasoning_picodollars: null,
    audio_input_picodollars: null,
    audio_output_picodollars: null,
    request_nanodollars: 0n,
    image_nanodollars: 0n,
    free: false,
  },
])

export const callOf = (): [JournalRecord, JournalRecord] => {
  const call_id = newCallId()
  const engine = { engine: 'vllm-a', engine_model: 'meta-llama/Llama-3.1-8B-Instruct' }
  const at_ms = nowMs()
  return [
    {
      kind: 'intent',
      call_id,
      at_ms,
      tenant: `tenant-${Math.floor(at_ms) % 50}`,
      key_id: `key_01a22e5964cc74688e0283dec9ee4f${10 + (Math.floor(at_ms) % 50)}`,
      end_user: '',
      model: 'm1',
      ...engine,
      endpoint: '/v1/chat/completions',
      stream: true,
      hold_nanodollars: 1_000_000,
      prompt_tokens_estimate: 300,
      price_version: 1,
      request_sha256: crypto.getRandomValues(new Uint8Array(32)),
      serves: '',
      images: 0,
    },
    {
      kind: 'ending',
      call_id,
      at_ms: at_ms + 800,
      ending: 'whole',
      status: 200,
      finish_reason: 'stop',
      ...engine,
      prompt_tokens: 310,
      cached_tokens: 0,
      completion_tokens: 250,
      reasoning_tokens: 0,
      usage_source: 'engine',
      attempts: 1,
      queue_ms: 0,
      engine_ms: 795,
      first_token_ms: 60,
      total_ms: 800,
      response_sha256: crypto.getRandomValues(new Uint8Array(32)),
      failure: '',
      audio_input_tokens: 0,
      audio_output_tokens: 0,
      serves: '',
    },
  ]
}

/** Calls posted a second, CPU of one core: fold and one transaction for each batch, a row and an entry a call. */
export const postedCallsPerS = (calls: number, batch_calls = 1_000): number =>
  inFolder((data) => {
    const store = openWriter(data, 'ledger')
    const poster = createPoster(store)
    const records: JournaledRecord[] = Array.from({ length: calls }, callOf)
      .flat()
      .map((record, nth) => ({ record, series: 'w00-000000', segment: 0, offset: nth * 8, next_offset: nth * 8 + 8 }))
    const books = poster.books()
    const started_ms = performance.now()
    for (let at = 0; at < records.length; at += 2 * batch_calls) {
      const batch = records.slice(at, at + 2 * batch_calls)
      const posted = poster.posted([...new Set(batch.map(({ record }) => callIdOf(record!)))])
      if (!(posted instanceof Set)) throw posted.cause
      const posting = fold(books, posted, prices, batch)
      if (poster.post(posting).is !== 'posted') throw new Error('bench: not posted')
      advance(books, posting)
    }
    const took_ms = performance.now() - started_ms
    store.sqlite.close()
    return (calls / took_ms) * 1_000
  })

/** Milliseconds from the ending's append until its row can be read, of single calls some ten milliseconds apart. */
export const rowDelaysMs = (calls: number): Promise<number[]> =>
  inFolder(async (data) => {
    const folder = join(data, 'journal')
    mkdirSync(folder, { recursive: true })
    const journal = await openJournal({ folder, worker_index: 0, incarnation: 0, durability: 'standard', sync_ms: 50 })
    if (journal instanceof Failure) throw journal.detail.cause
    const poster = createPoster(openWriter(data, 'ledger'))
    const tail = openJournalTail({ folder, positions: startPositions(poster) })
    const ports = { tail, poster, prices: () => prices, now: nowMs, is_live: () => true, poll_ms: 20 }
    const accountant = runAccountant(ports)
    const found = openReader(data, 'ledger').sqlite.prepare('SELECT 1 FROM calls WHERE id = ?')
    const delays: number[] = []
    for (let call = 0; call < calls; call++) {
      await Bun.sleep(5 + (call % 30))
      const records = callOf()
      for (const record of records) journal.append(record)
      const appended_ms = performance.now()
      while (found.get(callIdOf(records[0])) === null) await Bun.sleep(0)
      delays.push(performance.now() - appended_ms)
    }
    await accountant.stop()
    await journal.close()
    return delays
  })

/** The ledger's figures: `runs` times postings for about a fifth of `seconds`, then single calls for the rest. */
export const ledgerBench = async ({ seconds, runs }: { seconds: number; runs: number }) => {
  const delays = await rowDelaysMs(Math.max(10, Math.round(seconds * 20)))
  const calls = Math.max(1_000, Math.round(seconds * 4_000))
  const figures: Record<string, Figure> = {
    posted_calls_per_s: figure(
      'calls/s',
      Array.from({ length: runs }, () => postedCallsPerS(calls)),
    ),
    row_delay_ms: figure('ms', delays),
  }
  const notes = [
    `posted_calls_per_s: one process, ${calls} calls a run in batches of 1,000, synchronous=FULL; a row and an entry a call.`,
    'row_delay_ms: from the append of an ending until another connection reads the row; single calls, median and range.',
  ]
  return { figures, notes }
}

const figure = (unit: string, values: readonly number[]): Figure => {
  const sorted = values.toSorted((one, other) => one - other)
  return { value: sorted[sorted.length >> 1]!, unit, min: sorted[0]!, max: sorted.at(-1)!, n: sorted.length }
}

const inFolder = <T>(work: (data: string) => T): T => {
  const data = mkdtempSync(join(tmpdir(), 'weir-bench-'))
  const remove = () => rmSync(data, { recursive: true, force: true })
  const result = work(data)
  if (result instanceof Promise) return result.finally(remove) as T
  remove()
  return result
}

if (import.meta.main) process.stdout.write(`${JSON.stringify(await ledgerBench({ seconds: 5, runs: 5 }), null, 2)}\n`)
