import { crc32 } from 'node:zlib'
import { Failure } from '../base/failure.ts'
import { limits } from '../base/limits.ts'

/**
 * The journal on disk. One *series* of segment files for each life of a worker, `w01-000007-000003.journal`: worker
 * index, incarnation, segment number. All integers are little-endian. The layout never changes: a change is a new
 * version, and an unknown version is refused.
 *
 * A segment is made whole before it is used: its header, then zeros to its full size, on disk before it gets its name.
 * So a full disk shows when a segment is made and never when a mapped page is touched. (That does not hold on file
 * systems that copy on write: there an overwrite needs room of its own.)
 *
 *     offset  bytes  header
 *          0      8  magic "WEIRJRNL"
 *          8      4  version, 1
 *         12      4  worker index
 *         16      4  incarnation: how often a worker of this index has been started before
 *         20      4  segment number, from 0
 *         24      4  seed: random, begins the chain of checksums, so that no frame of another segment passes here
 *         28      4  size of the segment in bytes
 *         32      8  time at which it was made, f64, milliseconds since the epoch
 *         40     20  zeros
 *         60      4  CRC-32 of bytes [0, 60)
 *
 *     frames from byte 64, each beginning at a multiple of 8
 *          0      4  length of the payload in bytes; 0 means "the end so far". Stored last, as one aligned atomic word
 *          4      4  checksum: CRC-32 of the payload and its padding, begun with (previous frame's checksum XOR length);
 *                    for the first frame the seed stands for the previous checksum
 *          8      …  payload, then zeros to the next multiple of 8
 *
 * The first byte of a payload says what it is: 1–239 a record (see `codec.ts`), 254 "this segment ends, the series goes
 * on in the next one", 255 "the series ends, its writer stopped cleanly". Room for one of these two is always kept.
 *
 * A frame is valid if its length is 1 to `limits.record_bytes_max`, it lies within the segment, its checksum is right, and the frame before
 * it is valid. So a damaged byte anywhere yields exactly the frames before it. What follows the end is never read.
 *
 * The checksum is zlib's CRC-32, not CRC-32C: the platform has it in native code (0.06–0.1 µs for 300 bytes), while
 * CRC-32C would run as a script (2.3 µs). Both find every burst of up to 32 bits.
 */
export const MAGIC = 'WEIRJRNL'
export const VERSION = 1
export const HEADER_BYTES = 64
export const FRAME_HEAD_BYTES = 8
/** A frame that carries a mark. */
export const MARK_BYTES = FRAME_HEAD_BYTES + 8
export const SEGMENT_ENDS = 254
export const SERIES_ENDS = 255

export type SegmentHeader = {
  readonly worker_index: number
  readonly incarnation: number
  readonly segment: number
  readonly seed: number
  readonly segment_bytes: number
  readonly made_at_ms: number
}

/** The 64 bytes of a header. */
export const encodeHeader = (header: SegmentHeader): Buffer => {
  const bytes = Buffer.alloc(HEADER_BYTES)
  bytes.write(MAGIC, 0, 'latin1')
  bytes.writeUInt32LE(VERSION, 8)
  bytes.writeUInt32LE(header.worker_index, 12)
  bytes.writeUInt32LE(header.incarnation, 16)
  bytes.writeUInt32LE(header.segment, 20)
  bytes.writeUInt32LE(header.seed, 24)
  bytes.writeUInt32LE(header.segment_bytes, 28)
  bytes.writeDoubleLE(header.made_at_ms, 32)
  bytes.writeUInt32LE(crc32(bytes.subarray(0, 60)), 60)
  return bytes
}

/** The header of a segment, or what is wrong with it. */
export const decodeHeader = (bytes: Buffer): SegmentHeader | Failure => {
  if (bytes.length < HEADER_BYTES) return damaged(`has ${bytes.length} bytes, its header needs ${HEADER_BYTES}`)
  const magic = bytes.toString('latin1', 0, 8)
  if (magic !== MAGIC) return damaged(`begins with ${JSON.stringify(magic)}, want ${JSON.stringify(MAGIC)}`)
  if (bytes.readUInt32LE(60) !== crc32(bytes.subarray(0, 60))) return damaged('has a header with a wrong checksum')
  const version = bytes.readUInt32LE(8)
  if (version !== VERSION) return damaged(`has version ${version}, this Weir reads ${VERSION}`)
  return {
    worker_index: bytes.readUInt32LE(12),
    incarnation: bytes.readUInt32LE(16),
    segment: bytes.readUInt32LE(20),
    seed: bytes.readUInt32LE(24),
    segment_bytes: bytes.readUInt32LE(28),
    made_at_ms: bytes.readDoubleLE(32),
  }
}

const damaged = (says: string): Failure => new Failure('internal', { says: `The journal segment ${says}.` })

/** Bytes of a payload with its padding. */
export const paddedBytes = (length: number): number => (length + 7) & ~7

/** The checksum of a frame over its padded payload. */
export const frameChecksum = (padded: Uint8Array, length: number, previous: number): number =>
  crc32(padded, (previous ^ length) >>> 0)

/** What stands at an offset: a valid frame, the end so far, bytes that are no valid frame, or more than was read. */
export type Frame =
  | { readonly found: 'frame'; readonly length: number; readonly checksum: number }
  | { readonly found: 'end' }
  | { readonly found: 'torn' }
  /** A frame may stand here, but it needs this many bytes from `at` on. */
  | { readonly found: 'short'; readonly needs: number }

const END: Frame = { found: 'end' }
const TORN: Frame = { found: 'torn' }

/**
 * The frame at `at` of `bytes`, where `room` bytes of the segment are left from there on. The end of the segment counts
 * as an end. `previous` is the checksum of the frame before.
 */
export const frameAt = (bytes: Buffer, at: number, room: number, previous: number): Frame => {
  if (room < FRAME_HEAD_BYTES) return END
  if (at + FRAME_HEAD_BYTES > bytes.length) return { found: 'short', needs: FRAME_HEAD_BYTES }
  const length = bytes.readUInt32LE(at)
  if (length === 0) return END
  const needs = FRAME_HEAD_BYTES + Math.ceil(length / 8) * 8
  if (length > limits.record_bytes_max || needs > room) return TORN
  if (at + needs > bytes.length) return { found: 'short', needs }
  const padded = new Uint8Array(bytes.buffer, bytes.byteOffset + at + FRAME_HEAD_BYTES, needs - FRAME_HEAD_BYTES)
  const checksum = frameChecksum(padded, length, previous)
  return checksum === bytes.readUInt32LE(at + 4) ? { found: 'frame', length, checksum } : TORN
}

/** Largest incarnation and segment number: six digits, so that file names sort. */
export const number_max = 999_999

/** The name of a series: `w01-000007`. */
export const seriesName = (worker_index: number, incarnation: number): string =>
  `w${String(worker_index).padStart(2, '0')}-${String(incarnation).padStart(6, '0')}`

/** The file name of a segment: `w01-000007-000003.journal`. */
export const segmentName = (series: string, segment: number): string =>
  `${series}-${String(segment).padStart(6, '0')}.journal`

/** A file name taken apart; undefined if it is not the name of a segment. */
export const parseSegmentName = (name: string): { readonly series: string; readonly segment: number } | undefined => {
  const found = /^(w\d{2}-\d{6})-(\d{6})\.journal$/.exec(name)
  return found ? { series: found[1]!, segment: Number(found[2]) } : undefined
}

/** A series' name taken apart; undefined if it is not one. */
export const parseSeriesName = (
  series: string,
): { readonly worker_index: number; readonly incarnation: number } | undefined => {
  const found = /^w(\d{2})-(\d{6})$/.exec(series)
  return found ? { worker_index: Number(found[1]), incarnation: Number(found[2]) } : undefined
}
