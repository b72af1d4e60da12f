import type { JournalFiles, SegmentFile } from './files.ts'
import {
  encodeHeader,
  FRAME_HEAD_BYTES,
  frameChecksum,
  HEADER_BYTES,
  MARK_BYTES,
  paddedBytes,
  parseSeriesName,
  segmentName,
} from './format.ts'

/** A segment being written. Only the functions of this file change it. */
export type OpenSegment = {
  readonly number: number
  readonly name: string
  readonly file: SegmentFile
  readonly bytes: Uint8Array
  readonly words: Int32Array
  /** Where the next frame goes; the length word there is 0. */
  head: number
  /** Checksum of the last frame. */
  checksum: number
  /** Up to here the file is on disk. */
  synced: number
  /** From here on pages that are not writable yet come near: what {@link toucher} answers is due. */
  touch_at: number
  /** The last sync failed: the kernel may have called pages clean that never reached the disk. */
  suspect: boolean
}

/** Makes a segment on disk and maps it; throws the platform's error if there is no room. */
export const makeSegment = async (
  files: JournalFiles,
  folder: string,
  series: string,
  number: number,
  segment_bytes: number,
  made_at_ms: number,
): Promise<OpenSegment> => {
  const seed = crypto.getRandomValues(new Uint32Array(1))[0]!
  const writer = parseSeriesName(series)!
  const name = segmentName(series, number)
  const head = encodeHeader({ ...writer, segment: number, seed, segment_bytes, made_at_ms })
  const file = await files.create(`${folder}/${name}`, head, segment_bytes)
  const segment: OpenSegment = {
    number,
    name,
    file,
    bytes: file.bytes,
    words: new Int32Array(file.bytes.buffer, file.bytes.byteOffset, file.bytes.byteLength >> 2),
    head: HEADER_BYTES,
    checksum: seed,
    synced: HEADER_BYTES,
    touch_at: 0,
    suspect: false,
  }
  touchPages(segment, touch_bytes_max)
  return segment
}

/** Bytes left for frames of records: room for the mark that ends the segment is kept. */
export const roomBytes = (segment: OpenSegment): number => segment.bytes.length - MARK_BYTES - segment.head

/**
 * Appends a frame whose payload is the first `length` bytes of `padded`. The frame exists from the moment its length is
 * stored, which is the last thing done. Requires room.
 */
export const putFrame = (segment: OpenSegment, padded: Uint8Array, length: number): void => {
  const { head, words } = segment
  const checksum = frameChecksum(padded, length, segment.checksum)
  segment.bytes.set(padded, head + FRAME_HEAD_BYTES)
  words[(head >> 2) + 1] = checksum
  Atomics.store(words, head >> 2, length)
  segment.checksum = checksum
  segment.head = head + FRAME_HEAD_BYTES + padded.length
}

/** Appends the mark that ends the segment or the series, into the room that is kept for it. */
export const putMark = (segment: OpenSegment, mark: number): void => {
  const padded = new Uint8Array(paddedBytes(1))
  padded[0] = mark
  putFrame(segment, padded, 1)
}

const page_bytes = 4096

/** Brings all frames so far to the disk; rejects if the disk failed, and then does more at the next call. */
export const syncSegment = async (segment: OpenSegment): Promise<void> => {
  const { head, words } = segment
  if (head === segment.synced) return
  if (segment.suspect) {
    // Storing the same bytes again makes the pages dirty again, so that the next fdatasync writes them.
    for (let at = segment.synced & -page_bytes; at < head; at += page_bytes) Atomics.or(words, at >> 2, 0)
  }
  segment.suspect = true
  await segment.file.sync()
  segment.suspect = false
  const appended = head - segment.synced
  segment.synced = head
  touchPages(segment, Math.min(2 * appended, touch_bytes_max))
}

/** At most sixteen page faults at once, about 25 µs. */
const touch_bytes_max = 16 * page_bytes

/**
 * Writing a page out protects it, and the next store into it takes a page fault of about 1.6 µs. The faults of the pages that
 * are likely to be used until the next sync are taken between calls, and not by an append. Answers what is to be called once
 * `head` has reached `touch_at`: the more was appended since the last sync, the further ahead it goes, in the next turn.
 */
export const toucher = (current: () => OpenSegment): (() => void) => {
  let due = false
  const touch = () => {
    due = false
    const segment = current()
    touchPages(segment, Math.min(2 * (segment.head - segment.synced), touch_bytes_max))
  }
  return () => {
    if (due) return
    due = true
    setImmediate(touch)
  }
}

const touchPages = (segment: OpenSegment, ahead_bytes: number): void => {
  const { bytes, head } = segment
  const end = Math.min(head + ahead_bytes, bytes.length)
  // All is zero behind the head, so this changes nothing.
  for (let at = head; at < end; at = (at & -page_bytes) + page_bytes) bytes[at] = 0
  segment.touch_at = head + ahead_bytes / 2
}
