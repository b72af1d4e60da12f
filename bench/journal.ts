import fs from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { areaOf, encodeRecord, payload_bytes_max } from '../src/journal/codec.ts'
import { frameChecksum, paddedBytes } from '../src/journal/format.ts'
import type { JournalRecord } from '../src/journal/record.ts'
import type { Append } from './kit/append.ts'
import { mustAppend, nextTurn, open, recordsOf, room } from './kit/records.ts'

export type Figure = { value: number; unit: string; min: number; max: number; n: number }

let incarnation = 0
/** The time of single appends in a process of its own, as a worker has one journal all its life. */
const appendTimes = async (folder: string, run: number, seconds: number): Promise<Append> => {
  const script = path.join(import.meta.dir, 'kit/append.ts')
  const child = Bun.spawn({
    cmd: [process.execPath, script, `${folder}/append-${run}`, String(seconds)],
    stdout: 'pipe',
    stderr: 'inherit',
  })
  const text = await new Response(child.stdout).text()
  if ((await child.exited) !== 0) throw new Error('the appending process failed')
  return JSON.parse(text) as Append
}

/** Durable records a second: so many callers, each of which appends `each` records and waits for the disk. */
const durableRate = async (
  folder: string,
  records: readonly JournalRecord[],
  seconds: number,
  { callers, each }: { callers: number; each: number },
) => {
  const journal = await open(folder, incarnation++, 'strict')
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
  const journal = await open(folder, incarnation++, 'standard')
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
      const at = await appendTimes(folder, run, seconds / 3)
      for (const [name, value_us] of Object.entries(at)) take(`append_${name}_us`, 'us', value_us)
      const groups = await durableRate(folder, records, seconds / 3, { callers: 1, each: 64 })
      take('durable_records_per_s', 'records/s', groups.rate)
      const many = await durableRate(folder, records, seconds / 3, { callers: 256, each: 1 })
      take('durable_records_per_s_256', 'records/s', many.rate)
      take('group_records_256', 'records', many.group)
      const empty = await emptyCpu()
      take('mapped_cpu_us', 'us/record', (await mappedCpu(folder, records)) - empty)
      take('written_cpu_us', 'us/record', (await writtenCpu(folder, records)) - empty)
      for (const name of fs.readdirSync(folder)) fs.rmSync(path.join(folder, name), { recursive: true })
    }
  } finally {
    fs.rmSync(folder, { recursive: true, force: true })
  }
  const figures = Object.fromEntries(
    Object.entries(samples).map(([name, { unit, values }]) => [name, figure(values, unit)]),
  )
  const notes = [
    'append_*: one intent or ending, made just before, checksum and reading the clock included, standard mode, 32 a millisecond, in a process of its own.',
    'append_first_p50_us: the first append of each burst, after a millisecond of other code: nothing is in the caches.',
    'durable_records_per_s: one caller, groups of 64; _256: 256 callers, each waits for its own record.',
    `mapped_cpu_us, written_cpu_us: CPU of all threads, ${per_tick} records a tick; written: one write a tick of the same frames.`,
  ]
  return { figures, notes }
}
