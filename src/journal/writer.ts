import { type Clock, nowMs } from '../base/clock.ts'
import { Failure } from '../base/failure.ts'
import { limits } from '../base/limits.ts'
import { areaOf, encodeRecord, payload_bytes_max } from './codec.ts'
import { type JournalFiles, real_files } from './files.ts'
import {
  FRAME_HEAD_BYTES,
  HEADER_BYTES,
  number_max,
  paddedBytes,
  parseSegmentName,
  SEGMENT_ENDS,
  SERIES_ENDS,
  seriesName,
} from './format.ts'
import type { JournalRecord } from './record.ts'
import { makeSegment, type OpenSegment, putFrame, putMark, roomBytes, syncSegment, toucher } from './segment.ts'
import { keepSpare } from './spare.ts'
import { createSyncer, type Syncer } from './sync.ts'

export type JournalOptions = {
  readonly folder: string
  readonly worker_index: number
  /** Never used before for this worker index in this folder, not even for a series that was pruned since. */
  readonly incarnation: number
  readonly durability: 'standard' | 'strict'
  /** Longest time until an appended record is on disk, also for a record that nobody waits for. */
  readonly sync_ms: number
  /** A multiple of 8, at least 64 KiB and at most 1 GiB; default `limits.segment_bytes`. */
  readonly segment_bytes?: number
  /** New calls are admitted while this much room is made; default half a segment. It is for the endings of running calls. */
  readonly reserve_bytes?: number
  /** How long to wait before room is sought again on a full or failing disk; default 1,000. */
  readonly retry_ms?: number
  readonly now?: Clock
  readonly files?: JournalFiles
}

/** The journal of one worker. */
export type Journal = {
  /** The name of its series. */
  readonly series: string
  /**
   * Appends a record; once this returns it survives the death of the process. Synchronous, without a system call.
   * Returns the position behind it, which only grows; `journal_full` if the room is used up or the journal is closed.
   */
  append(record: JournalRecord): number | Failure
  /**
   * In strict mode resolves once the record that ends at the position, and all before it, survive a power failure, or
   * with `journal_full` if the disk failed. In standard mode there is nothing to wait for: undefined.
   */
  synced(position: number): Promise<Failure | undefined> | undefined
  /** Resolves once all that was appended survives a power failure, in both modes. */
  flush(): Promise<Failure | undefined>
  /** False when the disk is full or failing: no new call may begin, running ones can still be ended. Recovers by itself. */
  has_room(): boolean
  /** Why there is no room, for the log; undefined while the disk is well. */
  trouble(): Failure | undefined
  /** Marks the end of the series, brings all to the disk, gives the unused segment back. Idempotent. */
  close(): Promise<Failure | undefined>
  /** For metrics: what was appended, and syncs done. */
  counts(): { readonly records: number; readonly bytes: number; readonly syncs: number }
}

const segment_bytes_min = 64 * 1024
const segment_bytes_max = 1024 * 1024 * 1024

/** Opens the journal of a new life of a worker; a failure if its first segment cannot be made or the series exists. */
export const openJournal = async (options: JournalOptions): Promise<Journal | Failure> => {
  const { folder, worker_index, incarnation, segment_bytes = limits.segment_bytes, now = nowMs } = options
  const files = options.files ?? real_files
  if (!between(worker_index, 0, limits.workers_max - 1) || !between(incarnation, 0, number_max)) {
    throw new Error(`journal: worker ${worker_index}, incarnation ${incarnation} out of range`)
  }
  if (!between(segment_bytes, segment_bytes_min, segment_bytes_max) || segment_bytes % 8 !== 0) {
    throw new Error(`journal: segment_bytes ${segment_bytes}, want a multiple of 8 from 64 KiB to 1 GiB`)
  }
  const series = seriesName(worker_index, incarnation)
  const make = (number: number) => makeSegment(files, folder, series, number, segment_bytes, now())
  try {
    files.makeFolder(folder)
    const names = files.list(folder)
    if (names.some((name) => parseSegmentName(name)?.series === series)) {
      return new Failure('internal', { says: `The journal series ${series} exists: take a new incarnation.` })
    }
    // Left by an earlier life of this worker that was killed while it made a segment.
    const left = names.filter((name) => name.endsWith('.making') && name.startsWith(series.slice(0, 4)))
    for (const name of left) files.remove(`${folder}/${name}`)
    return write(await make(0), make, { ...options, series, files, segment_bytes })
  } catch (cause) {
    return new Failure('journal_full', { cause })
  }
}

const between = (value: number, least: number, most: number): boolean =>
  Number.isInteger(value) && value >= least && value <= most

type Inner = JournalOptions & { readonly series: string; readonly files: JournalFiles; readonly segment_bytes: number }

const write = (first: OpenSegment, make: (number: number) => Promise<OpenSegment>, inner: Inner): Journal => {
  const { segment_bytes, durability, retry_ms = 1_000, reserve_bytes = segment_bytes / 2 } = inner
  let current = first
  let closing: Promise<Failure | undefined> | undefined
  let records = 0
  /** Full segments that are not on disk yet, oldest first. */
  const full: OpenSegment[] = []
  const position = () => current.number * segment_bytes + current.head

  const syncer: Syncer = createSyncer({
    sync_ms: inner.sync_ms,
    retry_ms,
    sync: async () => {
      const [upto, last] = [position(), current]
      // In order, so that what is on disk is always a prefix.
      for (let oldest = full[0]; oldest; oldest = full[0]) {
        await syncSegment(oldest)
        oldest.file.close()
        full.shift()
      }
      if (last === current) await syncSegment(last)
      return upto
    },
  })
  const touchSoon = toucher(() => current)
  const spares = keepSpare(make, first.number + 1, retry_ms)
  const { scratch, views } = newScratch()
  const free = () => roomBytes(current) + (spares.ready() ? segment_bytes - HEADER_BYTES : 0)

  const roll = (): boolean => {
    const next = spares.take()
    if (!next) return false
    putMark(current, SEGMENT_ENDS)
    full.push(current)
    current = next
    return true
  }

  const close = async () => {
    await spares.stop(inner)
    syncer.stop()
    putMark(current, SERIES_ENDS)
    const result = await syncer.wait(position())
    syncer.stop()
    for (const segment of [...full, current]) segment.file.close()
    return result
  }
  return {
    series: inner.series,
    append: (record) => {
      if (closing) return new Failure('journal_full', { says: 'The journal is closed.' })
      const length = encodeRecord(scratch, 0, record)
      // The padding: a few bytes of zero behind the payload.
      scratch.view.setFloat64(length, 0)
      const padded = views(paddedBytes(length))
      if (FRAME_HEAD_BYTES + padded.length > roomBytes(current) && !roll()) return new Failure('journal_full')
      putFrame(current, padded, length)
      records++
      syncer.soon()
      if (current.head >= current.touch_at) touchSoon()
      return position()
    },
    synced: (at) => (durability === 'strict' ? syncer.wait(at) : undefined),
    flush: () => syncer.wait(position()),
    has_room: () => !closing && free() >= reserve_bytes && !syncer.trouble(),
    trouble: () => syncer.trouble() ?? spares.trouble(),
    close: () => (closing ??= close()),
    counts: () => ({ records, bytes: position() - HEADER_BYTES, syncs: syncer.count() }),
  }
}

/** Where a record is encoded, and views of it. */
const newScratch = () => {
  const scratch = areaOf(new Uint8Array(paddedBytes(payload_bytes_max) + 8))
  return { scratch, views: viewsOf(scratch.bytes) }
}

/** Views of the first bytes of a buffer, made once for each usual size: an append allocates nothing. */
const viewsOf = (bytes: Buffer): ((length: number) => Uint8Array) => {
  const cached: Uint8Array[] = Array.from({ length: 257 }, (_, words) => new Uint8Array(bytes.buffer, 0, words * 8))
  return (length) => cached[length >> 3] ?? new Uint8Array(bytes.buffer, 0, length)
}
