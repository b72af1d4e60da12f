import { Failure } from '../base/failure.ts'
import { limits } from '../base/limits.ts'
import type { JournalFiles } from './files.ts'
import { decodeHeader, FRAME_HEAD_BYTES, HEADER_BYTES, parseSeriesName, segmentName } from './format.ts'
import { type Bounds, type Cursor, type JournalEntry, type Scan, scanFrames, skipFrames } from './reader.ts'

/** Where valid frames ended although the series goes on behind: the disk or a power failure lost something. */
export type Damage = { readonly segment: number; readonly offset: number }

export type SeriesState = {
  readonly series: string
  readonly worker_index: number
  readonly incarnation: number
  /** Read as far as here. */
  readonly segment: number
  readonly offset: number
  /** `finished`: its end was read, and its writer closed it or is known to be dead. */
  readonly state: 'live' | 'finished'
  /** Its writer closed it. */
  readonly closed: boolean
  /** Bytes that are no valid frame stand at the position: a torn tail, if the series is finished. */
  readonly torn: boolean
  readonly damages: readonly Damage[]
  /** Why it cannot be read on. */
  readonly failure: Failure | undefined
}

/** Reads one series in order, across its segments. */
export type SeriesReader = {
  /** The next records. `look` says to search the next segment although this one has not ended. */
  read(bounds: Bounds, look: boolean): { readonly entries: JournalEntry[]; readonly more: boolean }
  writerDied(): void
  state(): SeriesState
  close(): void
}

type Opened = { readonly fd: number; readonly segment_bytes: number; readonly start: Cursor }

/** Most entries of {@link SeriesState.damages}. */
const damages_max = 100

/** A first read is small, as there is mostly nothing; after one that was full they are longer. The large one fits any record. */
const small = Buffer.alloc(4096)
const long = Buffer.alloc(64 * 1024)
const large = Buffer.alloc(limits.record_bytes_max * 2)

/** A reader that begins at the position, or else at the first segment that exists. */
export const openSeries = ({
  files,
  folder,
  series,
  first,
  position,
}: {
  readonly files: JournalFiles
  readonly folder: string
  readonly series: string
  readonly first: number
  readonly position: { readonly segment: number; readonly offset: number } | undefined
}): SeriesReader => {
  const damages: Damage[] = []
  let segment = position?.segment ?? first
  let cursor: Cursor = { offset: position?.offset ?? HEADER_BYTES, checksum: 0 }
  let opened: Opened | undefined
  let [dead, closed, finished, torn] = [false, false, false, false]
  let failure: Failure | undefined
  let more = false

  const open = (number: number): Opened | Failure | undefined => {
    const fd = files.open(`${folder}/${segmentName(series, number)}`)
    if (fd === undefined) return undefined
    const head = Buffer.alloc(HEADER_BYTES)
    const header = decodeHeader(head.subarray(0, files.read(fd, head, 0)))
    if (!(header instanceof Failure)) {
      return { fd, segment_bytes: header.segment_bytes, start: { offset: HEADER_BYTES, checksum: header.seed } }
    }
    files.close(fd)
    return new Failure(header.code, { says: `${header.detail.says} It is ${series}/${number}.` })
  }

  const close = () => {
    if (opened) files.close(opened.fd)
    opened = undefined
  }

  /** Opens the segment and finds the place in it; the chain of checksums has to be followed from the beginning. */
  const begin = (): boolean => {
    const found =
      open(segment) ?? new Failure('not_found', { says: `Journal segment ${series}/${segment} is missing.` })
    if (found instanceof Failure) {
      failure = found
      return false
    }
    opened = found
    const to = cursor.offset
    cursor = found.start
    for (let before = -1; cursor.offset < to && before !== cursor.offset;) {
      before = cursor.offset
      const got = files.read(found.fd, large, cursor.offset)
      const window = { bytes: large.subarray(0, got), start: cursor.offset, segment_bytes: found.segment_bytes }
      cursor = skipFrames(window, cursor, to)
    }
    if (cursor.offset === to) return true
    if (cursor.offset < to) {
      // It was read this far and posted before the power failed, and the disk has less. The rest is gone, not unread.
      if (damages.length < damages_max) damages.push({ segment, offset: cursor.offset })
      return true
    }
    failure = new Failure('internal', { says: `Journal position ${series}/${segment}/${to} does not begin a frame.` })
    close()
    return false
  }

  const scan = ({ fd, segment_bytes }: Opened, bounds: Bounds): Scan => {
    for (const buffer of more ? [long, large] : [small, large]) {
      const want = Math.min(buffer.length, segment_bytes - cursor.offset)
      const bytes = buffer.subarray(0, files.read(fd, buffer.subarray(0, want), cursor.offset))
      const found = scanFrames({ bytes, start: cursor.offset, segment_bytes }, cursor, { series, segment }, bounds)
      more = found.stop === 'short'
      if (!more || found.entries.length > 0) return found
      if (bytes.length < want) return { ...found, stop: 'torn' }
    }
    throw new Error(`journal: a frame of ${series}/${segment}/${cursor.offset} exceeds the read buffer`)
  }

  const advance = (next: Opened) => {
    close()
    opened = next
    segment++
    cursor = next.start
    torn = false
  }

  /** The next segment if a record was written to it; a spare that was only made does not count. */
  const nextInUse = (): Opened | undefined => {
    const next = open(segment + 1)
    if (next instanceof Failure) failure = next
    if (!next || next instanceof Failure) return undefined
    const word = small.subarray(0, FRAME_HEAD_BYTES)
    if (files.read(next.fd, word, HEADER_BYTES) === word.length && word.readUInt32LE(0) !== 0) return next
    files.close(next.fd)
    return undefined
  }

  /** At the end so far, or at bytes that are no frame: true if the series was found to go on in the next segment. */
  const passEnd = (look: boolean): boolean => {
    const next = look || torn || dead ? nextInUse() : undefined
    if (next) {
      // Seen in this order, the end before the next segment is final, unless the writer moved on between the two looks.
      const again = scan(opened!, { records_max: 1, bytes_max: 1 })
      if (again.entries.length > 0 || again.stop === 'segment_ends') {
        files.close(next.fd)
        return true
      }
      if (damages.length < damages_max) damages.push({ segment, offset: cursor.offset })
      advance(next)
      return true
    }
    finished = dead && !failure
    if (finished) close()
    return false
  }

  /** Reads once and moves on: `again` if there may be more to read at once, `bound` if the bounds ended it. */
  const step = (bounds: Bounds, look: boolean, entries: JournalEntry[]): 'again' | 'bound' | 'end' => {
    if (!opened && !begin()) return 'end'
    const found = scan(opened!, bounds)
    for (const entry of found.entries) entries.push(entry)
    cursor = found.cursor
    torn = found.stop === 'torn'
    if (found.stop === 'bound') return 'bound'
    if (found.stop === 'short') return 'again'
    if (found.stop === 'end' || found.stop === 'torn') return passEnd(look) ? 'again' : 'end'
    const next = found.stop === 'segment_ends' ? open(segment + 1) : undefined
    if (next instanceof Failure) failure = next
    else if (next) advance(next)
    else {
      closed = found.stop === 'series_ends'
      finished = closed || dead
      if (finished) close()
    }
    return next ? 'again' : 'end'
  }

  const read = (bounds: Bounds, look: boolean): { entries: JournalEntry[]; more: boolean } => {
    const entries: JournalEntry[] = []
    let [bytes, counted] = [0, 0]
    try {
      while (!finished && !failure) {
        for (; counted < entries.length; counted++) bytes += entries[counted]!.payload_bytes
        const left = { records_max: bounds.records_max - counted, bytes_max: bounds.bytes_max - bytes }
        if (left.records_max <= 0 || left.bytes_max <= 0) return { entries, more: true }
        const went = step(left, look, entries)
        if (went === 'bound') return { entries, more: true }
        if (went === 'end') break
      }
    } catch (cause) {
      failure = new Failure('internal', { cause })
    }
    return { entries, more: false }
  }

  return {
    read,
    close,
    writerDied: () => void (dead = true),
    state: () => ({
      series,
      ...parseSeriesName(series)!,
      segment,
      offset: cursor.offset,
      state: finished ? 'finished' : 'live',
      closed,
      torn,
      damages,
      failure,
    }),
  }
}
