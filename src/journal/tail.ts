import { type Clock, nowMs } from '../base/clock.ts'
import { type JournalFiles, real_files } from './files.ts'
import { parseSegmentName } from './format.ts'
import { type Bounds, type JournalEntry } from './reader.ts'
import { openSeries, type SeriesReader, type SeriesState } from './series.ts'

/** How far a series was read: the position behind a record is `(series, segment, next_offset)`. */
export type JournalPosition = {
  readonly series: string
  readonly segment: number
  readonly offset: number
  /** The series ended and was read to its end; it is not opened again. */
  readonly finished?: boolean
}

export type JournalTailOptions = {
  readonly folder: string
  /** Where to go on; a series that is not named is read from its first segment. */
  readonly positions?: readonly JournalPosition[]
  /** How often new series are looked for; default 200. New segments of known series are found at once. */
  readonly discover_ms?: number
  readonly now?: Clock
  readonly files?: JournalFiles
}

/** Reads all series of a folder while they are written. Synchronous: for a process that serves nobody. */
export type JournalTail = {
  /**
   * The next records, of each series in order, at most so many and about so many bytes of payload (one record at
   * least). `more` is true if a bound ended it. With nothing new it costs one small read per series that is not finished.
   */
  poll(bounds: Bounds): { readonly entries: JournalEntry[]; readonly more: boolean }
  /** Says that the writer of a series is gone: once read to its end, the series is finished. */
  writerDied(series: string): void
  /** How every series stands. */
  states(): SeriesState[]
  /** Closes the files. */
  close(): void
}

/** Starts to read a folder, which must exist. Opens nothing before the first poll. */
export const openJournalTail = (options: JournalTailOptions): JournalTail => {
  const { folder, discover_ms = 200, now = nowMs, files = real_files } = options
  const positions = new Map((options.positions ?? []).map((position) => [position.series, position]))
  const readers = new Map<string, SeriesReader>()
  const dead = new Set<string>()
  let discovered_at_ms = Number.NEGATIVE_INFINITY
  let turn = 0

  const discover = () => {
    for (const [series, first] of firstSegments(files.list(folder))) {
      const position = positions.get(series)
      if (position?.finished || readers.has(series)) continue
      const reader = openSeries({ files, folder, series, first, position })
      if (dead.has(series)) reader.writerDied()
      readers.set(series, reader)
    }
  }

  return {
    poll: ({ records_max, bytes_max }) => {
      const look = now() - discovered_at_ms >= discover_ms
      if (look) {
        discovered_at_ms = now()
        discover()
      }
      const entries: JournalEntry[] = []
      let bytes = 0
      const all = [...readers.values()]
      // Each poll begins with another series, so that a busy one cannot starve the rest.
      for (let i = 0; i < all.length; i++) {
        const reader = all[(turn + i) % all.length]!
        const bounds = { records_max: records_max - entries.length, bytes_max: bytes_max - bytes }
        if (bounds.records_max <= 0 || bounds.bytes_max <= 0) return { entries, more: true }
        const read = reader.read(bounds, look)
        for (const entry of read.entries) {
          entries.push(entry)
          bytes += entry.payload_bytes
        }
        if (read.more) {
          turn = (turn + i + 1) % all.length
          return { entries, more: true }
        }
      }
      return { entries, more: false }
    },
    writerDied: (series) => {
      dead.add(series)
      readers.get(series)?.writerDied()
    },
    states: () => [...readers.values()].map((reader) => reader.state()),
    close: () => {
      for (const reader of readers.values()) reader.close()
    },
  }
}

/** The lowest segment of each series. */
const firstSegments = (names: readonly string[]): Map<string, number> => {
  const first = new Map<string, number>()
  for (const name of names) {
    const parsed = parseSegmentName(name)
    if (!parsed) continue
    first.set(parsed.series, Math.min(parsed.segment, first.get(parsed.series) ?? Number.POSITIVE_INFINITY))
  }
  return new Map([...first].sort(([a], [b]) => (a < b ? -1 : 1)))
}
