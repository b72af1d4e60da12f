import fs from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Failure } from '../src/base/failure.ts'
import { areaOf, encodeRecord, payload_bytes_max } from '../src/journal/codec.ts'
import { frameChecksum, paddedBytes } from '../src/journal/format.ts'
import type { JournalRecord } from '../src/journal/record.ts'
import { type Journal, openJournal } from '../src/journal/writer.ts'

export type Figure = { value: number; unit: string; min: number; max: number; n: number }

/** In one piece, as ids are that were in use before. */
const newId = (prefix: string): string => Buffer.from(`${prefix}_${Bun.randomUUIDv7().replaceAll('-', '')}`).toString()
const engine_model = 'meta-llama/Llama-3.1-8B-Instruct'
const key_ids = Array.from({ length: 64 }, () => newId('key'))

/** Of one call, what differs from the others'. */
type Known = { readonly call_id: string; readonly end_user: string; readonly i: number; readonly sha256: Uint8Array }
const newCall = (i: number): Known => ({
  ...{ call_id: newId('call'), end_user: newId('user'), i, sha256: crypto.getRandomValues(new Uint8Array(32)) },
})

const intentOf = ({ call_id, end_user, i, sha256 }: Known): JournalRecord => ({
  kind: 'intent',
  call_id,
  at_ms: 1_790_000_000_000 + i,
  tenant: 'acme',
  key_id: key_ids[i % key_ids.length]!,
  end_user,
  model: 'llama-3.1-8b',
  engine: 'vllm-a',
  engine_model,
  endpoint: '/v1/chat/completions',
  stream: true,
  hold_nanodollars: 6_550_000 + i,
  prompt_tokens_estimate: 320,
  price_version: 1,
  request_sha256: sha256,
  serves: '',
})

const endingOf = ({ call_id, i, sha256 }: Known): JournalRecord => ({
  kind: 'ending',
  call_id,
  at_ms: 1_790_000_001_000 + i,
  ending: 'whole',
  status: 200,
  finish_reason: 'stop',
  engine: 'vllm-a',
  engine_model,
  prompt_tokens: 310,
  cached_tokens: 64,
  completion_tokens: 128,
  reasoning_tokens: 0,
  usage_source: 'engine',
  attempts: 1,
  queue_ms: 0.5,
  engine_ms: 950.25,
  first_token_ms: 80.5,
  total_ms: 1_000.5,
  response_sha256: sha256,
  failure: '',
  audio_input_tokens: 0,
  audio_output_tokens: 0,
  serves: '',
})

/** Intent and ending of so many calls. */
const recordsOf = (count: number): JournalRecord[] =>
  Array.from({ length: count }, (_, i) => newCall(i)).flatMap((call) => [intentOf(call), endingOf(call)])

let incarnation = 0
const open = async (folder: string, durability: 'standard' | 'strict'): Promise<Journal> => {
  const journal = await openJournal({ folder, worker_index: 0, incarnation: incarnation++, durability, sync_ms: 50 })
  if (journal instanceof Failure) throw new Error('the journal did not open', { cause: journal.detail.cause })
  return journal
}

const mustAppend = (journal: Journal, record: JournalRecord): number => {
  const at = journal.append(record)
  if (at instanceof Failure) throw new Error('the journal is full', { cause: at.detail.cause })
  return at
}

/** Waits until there is room: a bench can append faster than segments are made. */
const room = async (journal: Journal): Promise<void> => {
  for (let tries = 0; !journal.has_room(); tries++) {
    if (tries > 5_000) throw new Error('the journal stays full', { cause: journal.trouble()?.detail.cause })
    await Bun.sleep(1)
  }
}

const nextTurn = () => new Promise((turn) => setImmediate(turn))

const burst = 32

/** Calls under way at once. */
const under_way = 256

/**
 * The time of single appends, clock included: bursts of 32, one a millisecond, on a loop that turns meanwhile. A record is
 * made just before it is appended, as a worker makes it.
 */
const appendTimes = async (folder: string, seconds: number) => {
  const journal = await open(folder, 'standard')
  const running = Array.from({ length: under_way }, (_, i) => newCall(i))
  const recordAt = (i: number): JournalRecord =>
    i % 2 === 0 ? intentOf(running[(i >> 1) % under_way]!) : endingOf(running[((i >> 1) + under_way / 2) % under_way]!)
  for (let i = 0; i < 20_000; i++) {
    mustAppend(journal, recordAt(i))
    if (i % burst !== 0) continue
    await nextTurn()
    if (!journal.has_room()) await room(journal)
  }
  const all_ns: number[] = []
  const first_ns: number[] = []
  const until_ms = performance.now() + seconds * 1_000
  for (let i = 0; performance.now() < until_ms; i++) {
    const record = recordAt(i)
    const started_ns = Bun.nanoseconds()
    mustAppend(journal, record)
    const taken_ns = Bun.nanoseconds() - started_ns
    all_ns.push(taken_ns)
    if (i % burst === 0) first_ns.push(taken_ns)
    if (i % burst !== burst - 1) continue
    for (const next_ms = performance.now() + 1; performance.now() < next_ms;) await nextTurn()
    if (!journal.has_room()) await room(journal)
  }
  await journal.close()
  return { all: quantiles(all_ns), first: quantiles(first_ns) }
}

const quantiles = (times_ns: number[]) => {
  const sorted = times_ns.toSorted((a, b) => a - b)
  return (share: number) => sorted[Math.floor(sorted.length * share)]! / 1_000
}

/** Durable records a second: so many callers, each of which appends `each` records and waits for the disk. */
const durableRate = async (
  folder: string,
  records: readonly JournalRecord[],
  seconds: number,
  { callers, each }: { callers: number; each: number },
) => {
  const journal = await open(folder, 'strict')
  const started_ms = performance.now()
  const until_ms = started_ms + seconds * 1_000
  let done = 0
  const caller = async (first: number) => {
    for (let i = first; performance.now() < until_ms;) {
      let at = 0
      if (!journal.has_room()) await room(journal)
      for (let k = 0; k < each; k++) at = mustAppend(journal, records[i++ % records.length]!)
      const failure = await journal.synced(at)
      if (failure) throw new Error('the disk failed', { cause: failure.detail.cause })
      done += each
    }
  }
  await Promise.all(Array.from({ length: callers }, (_, i) => caller(i * 31)))
  const rate = done / ((performance.now() - started_ms) / 1_000)
  const group = done / journal.counts().syncs
  await journal.close()
  return { rate, group }
}

const cpuUs = () => {
  const { user, system } = process.cpuUsage()
  return user + system
}

const ticks = 12_000
const per_tick = 8

/** CPU of the whole process for a record, all threads and the making of segments included. */
const mappedCpu = async (folder: string, records: readonly JournalRecord[]) => {
  const journal = await open(folder, 'standard')
  const started_us = cpuUs()
  for (let tick = 0; tick < ticks; tick++) {
    if (!journal.has_room()) await room(journal)
    for (let k = 0; k < per_tick; k++) mustAppend(journal, records[(tick * per_tick + k) % records.length]!)
    await nextTurn()
  }
  const used_us = cpuUs() - started_us
  await journal.close()
  return used_us / (ticks * per_tick)
}

/** The same records and frames, collected and handed over by one `write` at the end of each tick. */
const writtenCpu = async (folder: string, records: readonly JournalRecord[]) => {
  const fd = fs.openSync(path.join(folder, `written-${incarnation++}`), 'w')
  const area = areaOf(new Uint8Array(64 * payload_bytes_max))
  let checksum = 1
  const timer = setInterval(() => fs.fdatasync(fd, (error) => error && Promise.reject(error)), 50)
  const started_us = cpuUs()
  for (let tick = 0; tick < ticks; tick++) {
    let head = 0
    for (let k = 0; k < per_tick; k++) {
      const length = encodeRecord(area, head + 8, records[(tick * per_tick + k) % records.length]!)
      area.view.setFloat64(head + 8 + length, 0)
      const padded = paddedBytes(length)
      checksum = frameChecksum(area.bytes.subarray(head + 8, head + 8 + padded), length, checksum)
      area.view.setUint32(head, length, true)
      area.view.setUint32(head + 4, checksum, true)
      head += 8 + padded
    }
    fs.writeSync(fd, area.bytes, 0, head)
    await nextTurn()
  }
  const used_us = cpuUs() - started_us
  clearInterval(timer)
  // A sync may be under way.
  await Bun.sleep(20)
  fs.closeSync(fd)
  return used_us / (ticks * per_tick)
}

/** CPU of the ticks alone, to be taken off both. */
const emptyCpu = async () => {
  const started_us = cpuUs()
  for (let tick = 0; tick < ticks; tick++) await nextTurn()
  return (cpuUs() - started_us) / (ticks * per_tick)
}

const figure = (values: readonly number[], unit: string): Figure => {
  const sorted = values.toSorted((a, b) => a - b)
  const round = (value: number) => Number(value.toPrecision(4))
  const value = round(sorted[sorted.length >> 1]!)
  return { value, unit, min: round(sorted[0]!), max: round(sorted.at(-1)!), n: sorted.length }
}

/**
 * The journal's figures, from `runs` alternations of all measurements, about `seconds` each in all: the time of an append,
 * durable records a second in groups of 64 and for 256 callers, and CPU for a record against one buffered write a tick.
 */
export const journalBench = async ({ seconds, runs }: { seconds: number; runs: number }) => {
  const folder = fs.mkdtempSync(path.join(tmpdir(), 'weir-bench-'))
  const samples: Record<string, { unit: string; values: number[] }> = {}
  const take = (name: string, unit: string, value: number) =>
    (samples[name] ??= { unit, values: [] }).values.push(value)
  try {
    const records = recordsOf(2_048)
    for (let run = 0; run < runs; run++) {
      const at = await appendTimes(folder, seconds / 3)
      take('append_p50_us', 'us', at.all(0.5))
      take('append_p99_us', 'us', at.all(0.99))
      take('append_p999_us', 'us', at.all(0.999))
      take('append_first_p50_us', 'us', at.first(0.5))
      const groups = await durableRate(folder, records, seconds / 3, { callers: 1, each: 64 })
      take('durable_records_per_s', 'records/s', groups.rate)
      const many = await durableRate(folder, records, seconds / 3, { callers: 256, each: 1 })
      take('durable_records_per_s_256', 'records/s', many.rate)
      take('group_records_256', 'records', many.group)
      const empty = await emptyCpu()
      take('mapped_cpu_us', 'us/record', (await mappedCpu(folder, records)) - empty)
      take('written_cpu_us', 'us/record', (await writtenCpu(folder, records)) - empty)
      for (const name of fs.readdirSync(folder)) fs.rmSync(path.join(folder, name))
    }
  } finally {
    fs.rmSync(folder, { recursive: true, force: true })
  }
  const figures = Object.fromEntries(
    Object.entries(samples).map(([name, { unit, values }]) => [name, figure(values, unit)]),
  )
  const notes = [
    'append_*: one intent or ending, made just before, checksum and reading the clock included, standard mode, 32 a millisecond.',
    'append_first_p50_us: the first append of each burst, after a millisecond of other code: nothing is in the caches.',
    'durable_records_per_s: one caller, groups of 64; _256: 256 callers, each waits for its own record.',
    `mapped_cpu_us, written_cpu_us: CPU of all threads, ${per_tick} records a tick; written: one write a tick of the same frames.`,
  ]
  return { figures, notes }
}
