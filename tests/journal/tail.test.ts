import { callIdOf } from '../../src/journal/record.ts'
import { describe, expect, test } from 'bun:test'
import fs from 'node:fs'
import { real_files } from '../../src/journal/files.ts'
import { HEADER_BYTES } from '../../src/journal/format.ts'
import { pruneJournal } from '../../src/journal/prune.ts'
import type { JournalEntry } from '../../src/journal/reader.ts'
import { type JournalPosition, type JournalTail, openJournalTail } from '../../src/journal/tail.ts'
import type { Journal } from '../../src/journal/writer.ts'
import { eventually, forAllAsync, tempFolder } from '../kit/wait.ts'
import { anyRecord, ending, good, intent, openSmall } from './make.ts'

const plenty = { records_max: 100_000, bytes_max: 100_000_000 }

/** Polls until nothing more comes. */
const drain = (tail: JournalTail, bounds = plenty): JournalEntry[] => {
  const all: JournalEntry[] = []
  for (;;) {
    const { entries, more } = tail.poll(bounds)
    all.push(...entries)
    if (!more) return all
  }
}

const idsOf = (entries: readonly JournalEntry[]) => entries.map(({ record }) => callIdOf(record!))

/** Appends so many intents, giving the journal time to make segments. */
const appendMany = async (journal: Journal, prefix: string, count: number): Promise<string[]> => {
  const ids = Array.from({ length: count }, (_, i) => `${prefix}_${i}`)
  for (const id of ids) await eventually(() => good(journal.append(intent(id))))
  return ids
}

/** The file as if its writer had been killed after these bytes: zeros follow. */
const zeroFrom = (file: string, from: number) => {
  const bytes = fs.readFileSync(file)
  fs.writeFileSync(file, bytes.fill(0, from))
}

const positionAfter = (entry: JournalEntry): JournalPosition => ({
  series: entry.series,
  segment: entry.segment,
  offset: entry.next_offset,
})

test('several series are followed while they are written, over segments, each in order', async () => {
  using folder = tempFolder()
  const tail = openJournalTail({ folder: folder.path, discover_ms: 0 })
  expect(tail.poll(plenty)).toEqual({ entries: [], more: false })
  const journals = [await openSmall(folder.path), await openSmall(folder.path, { worker_index: 2 })]
  const seen: JournalEntry[] = []
  const want: string[][] = [[], []]
  for (let round = 0; round < 10; round++) {
    for (const [i, journal] of journals.entries()) {
      want[i]!.push(...(await appendMany(journal, `${i}_${round}`, 70)))
    }
    seen.push(...drain(tail))
    expect(seen).toHaveLength(140 * (round + 1))
  }
  for (const [i, journal] of journals.entries()) {
    expect(idsOf(seen.filter(({ series }) => series === journal.series))).toEqual(want[i]!)
    await journal.close()
  }
  expect(tail.states().map(({ state }) => state)).toEqual(['live', 'live'])
  expect(drain(tail)).toEqual([])
  const states = tail.states()
  expect(states.map(({ series, state, closed, torn }) => [series, state, closed, torn])).toEqual([
    ['w01-000001', 'finished', true, false],
    ['w02-000001', 'finished', true, false],
  ])
  expect(states[0]!.segment).toBeGreaterThan(1)
  tail.close()
})

test('batches are bounded, and reading on from any of them gives the rest', async () => {
  await forAllAsync(10, async (roll) => {
    using folder = tempFolder()
    const journal = await openSmall(folder.path)
    const records = Array.from({ length: 600 }, () => anyRecord(roll))
    for (const record of records) await eventually(() => good(journal.append(record)))
    await journal.close()
    let positions: JournalPosition[] = []
    const seen: JournalEntry[] = []
    for (let more = true; more;) {
      // A new reader each time: as if the accountant had been killed after every batch.
      const tail = openJournalTail({ folder: folder.path, positions })
      const bounds = { records_max: 1 + roll(100), bytes_max: 1 + roll(20_000) }
      const batch = tail.poll(bounds)
      more = batch.more
      expect(batch.entries.length).toBeLessThanOrEqual(bounds.records_max)
      const bytes = batch.entries.slice(0, -1).reduce((sum, { payload_bytes }) => sum + payload_bytes, 0)
      expect(bytes).toBeLessThanOrEqual(bounds.bytes_max)
      seen.push(...batch.entries)
      if (batch.entries.length > 0) positions = [positionAfter(batch.entries.at(-1)!)]
      tail.close()
    }
    expect(seen.map(({ record }) => record)).toEqual(records)
  })
})

test('a busy series does not starve another', async () => {
  using folder = tempFolder()
  const [busy, quiet] = [await openSmall(folder.path), await openSmall(folder.path, { worker_index: 2 })]
  await appendMany(busy, 'busy', 250)
  good(quiet.append(intent('quiet')))
  const tail = openJournalTail({ folder: folder.path })
  const seen = [tail.poll({ records_max: 50, bytes_max: 1e6 }), tail.poll({ records_max: 50, bytes_max: 1e6 })]
  expect(seen.flatMap(({ entries }) => idsOf(entries))).toContain('quiet')
  for (const journal of [busy, quiet]) await journal.close()
  tail.close()
})

test('with nothing new a poll costs one read a series, and none once it is finished', async () => {
  using folder = tempFolder()
  let [reads, opens, now] = [0, 0, 1_000]
  const files = {
    ...real_files,
    read: (...given: Parameters<typeof real_files.read>) => (reads++, real_files.read(...given)),
    open: (file: string) => (opens++, real_files.open(file)),
  }
  const journal = await openSmall(folder.path)
  good(journal.append(intent('call_1')))
  const tail = openJournalTail({ folder: folder.path, files, now: () => now, discover_ms: 200 })
  expect(drain(tail)).toHaveLength(1)
  const idle = (polls: number) => {
    reads = opens = 0
    for (let i = 0; i < polls; i++) tail.poll(plenty)
    return [reads, opens]
  }
  expect(idle(10)).toEqual([10, 0])
  await journal.close()
  now += 200
  expect(drain(tail)).toEqual([])
  expect(idle(10)).toEqual([0, 0])
  tail.close()
})

describe('a writer that died', () => {
  test('the end so far becomes the end of the series only when the caller says so', async () => {
    using folder = tempFolder()
    const journal = await openSmall(folder.path)
    good(journal.append(intent('call_1')))
    const tail = openJournalTail({ folder: folder.path, discover_ms: 0 })
    expect(idsOf(drain(tail))).toEqual(['call_1'])
    expect(tail.states()[0]).toMatchObject({ state: 'live', closed: false })
    good(journal.append(ending('call_1')))
    tail.writerDied(journal.series)
    expect(tail.states()[0]!.state).toBe('live')
    expect(idsOf(drain(tail))).toEqual(['call_1'])
    expect(tail.states()[0]).toMatchObject({ state: 'finished', closed: false, torn: false, damages: [] })
    await journal.close()
    tail.close()
  })

  test('a torn tail is told from a whole one', async () => {
    using folder = tempFolder()
    const journal = await openSmall(folder.path)
    await appendMany(journal, 'call', 3)
    await journal.close()
    const file = `${folder.path}/w01-000001-000000.journal`
    const last = drain(openJournalTail({ folder: folder.path })).at(-1)!
    zeroFrom(file, last.offset + 40)
    const tail = openJournalTail({ folder: folder.path })
    tail.writerDied(journal.series)
    expect(idsOf(drain(tail))).toEqual(['call_0', 'call_1'])
    expect(tail.states()[0]).toMatchObject({ state: 'finished', torn: true, offset: last.offset })
  })

  test('killed between the mark of a segment and the first record of the next', async () => {
    using folder = tempFolder()
    const journal = await openSmall(folder.path)
    await appendMany(journal, 'call', 320)
    await journal.close()
    zeroFrom(`${folder.path}/w01-000001-000001.journal`, HEADER_BYTES)
    const tail = openJournalTail({ folder: folder.path })
    tail.writerDied(journal.series)
    const seen = drain(tail)
    expect(seen.length).toBeGreaterThan(250)
    expect(seen.every(({ segment }) => segment === 0)).toBe(true)
    expect(tail.states()[0]).toMatchObject({ state: 'finished', segment: 1, offset: HEADER_BYTES, damages: [] })
  })
})

describe('damage', () => {
  test('a hole before a segment in use is reported, and the segments behind it are read', async () => {
    using folder = tempFolder()
    const journal = await openSmall(folder.path)
    const ids = await appendMany(journal, 'call', 400)
    await journal.close()
    const whole = drain(openJournalTail({ folder: folder.path }))
    const hit = whole[100]!
    for (const spoil of ['flip', 'zero'] as const) {
      const file = `${folder.path}/w01-000001-000000.journal`
      const bytes = fs.readFileSync(file)
      if (spoil === 'flip') bytes[hit.offset + 20]! ^= 4
      else bytes.fill(0, hit.offset)
      fs.writeFileSync(file, bytes)
      // The first poll looks for new series; the others must find out by themselves.
      const tail = openJournalTail({ folder: folder.path, discover_ms: 60_000 })
      const seen = tail.poll({ records_max: 1, bytes_max: 1 }).entries
      if (spoil === 'zero') tail.writerDied(journal.series)
      seen.push(...drain(tail))
      const behind = whole.findIndex(({ segment }) => segment === 1)
      expect(idsOf(seen)).toEqual([...ids.slice(0, 100), ...ids.slice(behind)])
      expect(tail.states()[0]).toMatchObject({
        state: 'finished',
        closed: true,
        damages: [{ segment: 0, offset: hit.offset }],
      })
    }
  })

  test('a writer that moves on while its end is looked at has lost nothing', async () => {
    using folder = tempFolder()
    const journal = await openSmall(folder.path)
    const ids = await appendMany(journal, 'call', 200)
    await eventually(() => fs.existsSync(`${folder.path}/w01-000001-000001.journal`))
    await Bun.sleep(5)
    // Between the look at the end of segment 0 and the look at segment 1 the writer fills the one and begins the other.
    const files = {
      ...real_files,
      open: (file: string) => {
        for (let i = ids.length; file.endsWith('-000001.journal') && i < 350; i++) {
          ids.push(`call_${i}`)
          good(journal.append(intent(`call_${i}`)))
        }
        return real_files.open(file)
      },
    }
    const tail = openJournalTail({ folder: folder.path, files })
    expect(idsOf(drain(tail))).toEqual(Array.from({ length: 350 }, (_, i) => `call_${i}`))
    expect(tail.states()[0]).toMatchObject({ segment: 1, damages: [] })
    await journal.close()
    tail.close()
  })

  test('a header that cannot be read, a missing segment and a wrong position stop a series with a reason', async () => {
    using folder = tempFolder()
    const journal = await openSmall(folder.path)
    await appendMany(journal, 'call', 400)
    await journal.close()
    const reason = (positions: JournalPosition[]) => {
      const tail = openJournalTail({ folder: folder.path, positions })
      const seen = drain(tail)
      const [state] = tail.states()
      expect(state!.state).toBe('live')
      return [seen.length, state!.failure?.detail.says]
    }
    const at = { series: journal.series, segment: 0 }
    expect(reason([{ ...at, offset: 72 }])).toEqual([0, 'Journal position w01-000001/0/72 does not begin a frame.'])
    expect(reason([{ ...at, segment: 9, offset: 64 }])).toEqual([0, 'Journal segment w01-000001/9 is missing.'])
    const file = `${folder.path}/w01-000001-000001.journal`
    const bytes = fs.readFileSync(file)
    bytes[8] = 2
    fs.writeFileSync(file, bytes)
    const [seen, says] = reason([])
    expect(seen).toBeGreaterThan(250)
    expect(says).toBe('The journal segment has a header with a wrong checksum. It is w01-000001/1.')
  })
})

describe('pruning', () => {
  const written = async (folder: string) => {
    const journal = await openSmall(folder)
    await appendMany(journal, 'call', 1_000)
    await journal.close()
    const seen = drain(openJournalTail({ folder }))
    return { series: journal.series, seen, files: fs.readdirSync(folder).toSorted() }
  }
  const later = (ms: number) => () => Date.now() + ms

  test('removes whole segments before the position, and reading goes on from there', async () => {
    using folder = tempFolder()
    const { seen, files } = await written(folder.path)
    const entry = seen.find(({ segment }) => segment === 2)!
    const positions = [positionAfter(entry)]
    const options = { folder: folder.path, positions, keep_ms: 1_000, now: later(2_000) }
    expect(good(pruneJournal(options))).toEqual(files.slice(0, 2))
    expect(fs.readdirSync(folder.path).toSorted()).toEqual(files.slice(2))
    const rest = seen.slice(seen.indexOf(entry) + 1)
    expect(drain(openJournalTail({ folder: folder.path, positions }))).toEqual(rest)
    expect(idsOf(drain(openJournalTail({ folder: folder.path })))[0]).toBe(callIdOf(entry.record!))
  })

  test('keeps what is young, what is not posted and what is not the journal’s', async () => {
    using folder = tempFolder()
    const { series, files } = await written(folder.path)
    fs.writeFileSync(`${folder.path}/notes.txt`, 'mine')
    const posted = { series, segment: 3, offset: HEADER_BYTES }
    const prune = (positions: JournalPosition[], keep_ms: number) =>
      good(pruneJournal({ folder: folder.path, positions, keep_ms, now: later(1_000) }))
    expect(prune([posted], 60_000)).toEqual([])
    expect(prune([{ ...posted, series: 'w02-000001' }], 0)).toEqual([])
    expect(prune([], 0)).toEqual([])
    expect(prune([{ ...posted, segment: 0 }], 0)).toEqual([])
    expect(prune([{ ...posted, finished: true }], 0)).toEqual(files)
    expect(fs.readdirSync(folder.path)).toEqual(['notes.txt'])
  })
})
