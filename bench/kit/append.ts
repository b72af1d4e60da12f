import type { JournalRecord } from '../../src/journal/record.ts'
import { endingOf, intentOf, mustAppend, newCall, nextTurn, open, room } from './records.ts'

/** As a process: `bun bench/kit/append.ts FOLDER SECONDS` prints an {@link Append} as JSON. */

/** Times of single appends, microseconds; `first_p50` of the first of each burst. */
export type Append = { readonly p50: number; readonly p99: number; readonly p999: number; readonly first_p50: number }

const burst = 32
/** Where a record is to be seen by others before the clock starts: else the compiler may make it only after. */
export let latest: JournalRecord | undefined

/** Calls under way at once. */
const under_way = 256

/**
 * The time of single appends, clock included: bursts of 32, one a millisecond, on a loop that turns meanwhile. A record is
 * made just before it is appended, as a worker makes it.
 */
const appendTimes = async (folder: string, seconds: number): Promise<Append> => {
  const journal = await open(folder, 0, 'standard')
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
    const record = (latest = recordAt(i))
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
  const [all, first] = [quantiles(all_ns), quantiles(first_ns)]
  return { p50: all(0.5), p99: all(0.99), p999: all(0.999), first_p50: first(0.5) }
}

const quantiles = (times_ns: number[]) => {
  const sorted = times_ns.toSorted((a, b) => a - b)
  return (share: number) => sorted[Math.floor(sorted.length * share)]! / 1_000
}

process.stdout.write(JSON.stringify(await appendTimes(process.argv[2]!, Number(process.argv[3]))))
process.exit(0)
