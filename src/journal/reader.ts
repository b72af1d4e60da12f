import { Failure } from '../base/failure.ts'
import { areaOf, decodeRecord } from './codec.ts'
import {
  decodeHeader,
  FRAME_HEAD_BYTES,
  frameAt,
  HEADER_BYTES,
  paddedBytes,
  SEGMENT_ENDS,
  SERIES_ENDS,
} from './format.ts'
import type { JournalRecord } from './record.ts'

/** A record where it stands. */
export type JournalEntry = {
  /** Undefined if this version does not know the kind. */
  readonly record: JournalRecord | undefined
  readonly payload_bytes: number
  readonly series: string
  readonly segment: number
  readonly offset: number
  /** The offset behind it: reading on from here gives the next record. */
  readonly next_offset: number
}

/**
 * Where reading stopped. `end`: the end so far. `segment_ends`, `series_ends`: a mark says so. `torn`: bytes that are no
 * valid frame. `bound`: there may be more.
 */
export type Stop = 'end' | 'segment_ends' | 'series_ends' | 'torn' | 'bound'

/** A place in a segment from which one can read on: the checksum is that of the frame before it. */
export type Cursor = { readonly offset: number; readonly checksum: number }

export type Bounds = { readonly records_max: number; readonly bytes_max: number }

/** Bytes of a segment, `start` being the offset of the first; the segment has `segment_bytes` in all. */
export type Window = { readonly bytes: Buffer; readonly start: number; readonly segment_bytes: number }

export type Scan = {
  readonly entries: JournalEntry[]
  readonly cursor: Cursor
  /** `short` if the window ends before it can be said; `needs` bytes from the cursor on will do. */
  readonly stop: Stop | 'short'
  readonly needs: number
}

/** The records of a window from the cursor on. Reads no byte outside the window, and copies what it returns. */
export const scanFrames = (
  window: Window,
  from: Cursor,
  place: { readonly series: string; readonly segment: number },
  bounds: Bounds,
): Scan => {
  const { bytes, start, segment_bytes } = window
  const area = areaOf(bytes)
  const entries: JournalEntry[] = []
  let { offset, checksum } = from
  let taken = 0
  const stopped = (stop: Scan['stop'], needs = 0): Scan => ({ entries, cursor: { offset, checksum }, stop, needs })
  for (;;) {
    const at = offset - start
    const frame = frameAt(bytes, at, segment_bytes - offset, checksum)
    if (frame.found === 'short') return stopped('short', frame.needs)
    if (frame.found !== 'frame') return stopped(frame.found)
    const { length } = frame
    const payload = at + FRAME_HEAD_BYTES
    const code = bytes[payload]
    // The cursor stays before a mark, so that whoever resumes meets it again.
    if (code === SEGMENT_ENDS) return stopped('segment_ends')
    if (code === SERIES_ENDS) return stopped('series_ends')
    if (entries.length >= bounds.records_max || (taken > 0 && taken + length > bounds.bytes_max)) {
      return stopped('bound')
    }
    const next_offset = offset + FRAME_HEAD_BYTES + paddedBytes(length)
    entries.push({
      record: decodeRecord(area, payload, length),
      payload_bytes: length,
      series: place.series,
      segment: place.segment,
      offset,
      next_offset,
    })
    taken += length
    offset = next_offset
    checksum = frame.checksum
  }
}

/**
 * Passes over the frames of a window from the cursor on, without decoding them, as far as offset `to` at most. The
 * cursor it returns stands at `to`, or where the valid frames end, or before a frame that the window does not hold.
 */
export const skipFrames = ({ bytes, start, segment_bytes }: Window, from: Cursor, to: number): Cursor => {
  let { offset, checksum } = from
  while (offset < to) {
    const frame = frameAt(bytes, offset - start, segment_bytes - offset, checksum)
    if (frame.found !== 'frame') break
    offset += FRAME_HEAD_BYTES + paddedBytes(frame.length)
    checksum = frame.checksum
  }
  return { offset, checksum }
}

export type SegmentContents = { readonly entries: JournalEntry[]; readonly stop: Stop; readonly next_offset: number }

/**
 * All records of a segment held in memory, from an offset on: exactly those before the first damaged or missing byte. A
 * failure if the header is damaged or `from` is not the beginning of a frame. A file that was cut short is read as far
 * as it goes.
 */
export const readSegment = (
  file: Uint8Array,
  series: string,
  from: number = HEADER_BYTES,
): SegmentContents | Failure => {
  const { bytes } = areaOf(file)
  const header = decodeHeader(bytes)
  if (header instanceof Failure) return header
  const window = { bytes, start: 0, segment_bytes: header.segment_bytes }
  const cursor = skipFrames(window, { offset: HEADER_BYTES, checksum: header.seed }, from)
  if (cursor.offset !== from) {
    return new Failure('internal', { says: `Offset ${from} of journal segment ${series} is not a frame's beginning.` })
  }
  const everything = { records_max: Number.POSITIVE_INFINITY, bytes_max: Number.POSITIVE_INFINITY }
  const { entries, stop, cursor: end } = scanFrames(window, cursor, { series, segment: header.segment }, everything)
  return { entries, stop: stop === 'short' || stop === 'bound' ? 'torn' : stop, next_offset: end.offset }
}
