import { Failure } from '../base/failure.ts'
import { limits } from '../base/limits.ts'
import { readFields, type SseEvent, type SseKind } from './sse-fields.ts'

const NOTHING = new Uint8Array(0)
const LF = 0x0a
const CR = 0x0d
const COLON = 0x3a

/** Lines of one event; far more than any engine sends. */
const LINES_MAX = 65_536

/**
 * Cuts an event stream (WHATWG HTML §9.2.6) into events, whatever its line ends and wherever its chunks are split.
 *
 * After `push(chunk)`, `next()` is called until it is not `true`; each `true` makes one event current: bytes
 * `[start, end)` of `buffer` with their closing empty line, so that the events of a stream put together are the
 * stream. `buffer` is the chunk itself unless the event began in an earlier one; neither is ever written again, so
 * neighbours in one buffer can be sent as one view. Memory is at most the event that is not complete; time is linear.
 *
 * An event ends at the byte that ends its empty line. If that is a CR and the last byte of a chunk, it ends there, and
 * an LF that follows is an event of its own, of kind `comment`, like every stray empty line. A comment at the start of
 * an event is complete at the end of its line, so keep-alives pass at once.
 */
export class SseScanner implements SseEvent {
  buffer: Uint8Array = NOTHING
  start = 0
  end = 0
  kind: SseKind = 'comment'
  data_buffer: Uint8Array = NOTHING
  data_start = 0
  data_end = 0
  name = ''

  private readonly bytes_max: number
  private chunk: Uint8Array = NOTHING
  private at = 0
  /** The event so far, where it began in an earlier chunk; `held` bytes of it count. */
  private hold: Uint8Array = NOTHING
  private held = 0
  /** Ends of the lines of the event so far, relative to its start: after the text, after the terminator. */
  private readonly lines: number[] = []
  /** Bytes of the line that is not complete, from earlier chunks. */
  private line_bytes = 0
  private after_cr = false
  private is_first = true
  /** The next LF and CR at or after `at`; the length of the chunk if there is none. */
  private next_lf = -1
  private next_cr = -1

  /** `bytes_max` bounds an event, and so each line of it. */
  constructor(bytes_max: number = limits.sse_line_bytes_max) {
    this.bytes_max = bytes_max
  }

  /** Takes the next chunk, to be changed no more. Requires that `next()` has answered `false` since the last one. */
  push(chunk: Uint8Array): void {
    this.chunk = chunk
    this.at = 0
    this.next_lf = this.next_cr = -1
  }

  /** Makes the next complete event current. `false`: push more. A failure (`engine_invalid`) is for good. */
  next(): boolean | Failure {
    const { chunk, at } = this
    if (at >= chunk.length) return false
    const end = this.findEnd(at)
    if (end < 0) return this.keep(at)
    if (this.held > 0) {
      const failure = this.append(chunk, at, end, true)
      if (failure) return failure
      this.buffer = this.hold
      this.start = 0
      this.end = this.held
      this.hold = NOTHING
      this.held = 0
    } else {
      if (end - at > this.bytes_max) return this.tooLong()
      this.buffer = chunk
      this.start = at
      this.end = end
    }
    this.at = end
    return this.complete()
  }

  /** How many bytes of an event that is not complete are held. */
  get pending_bytes(): number {
    return this.held
  }

  /**
   * At the end of the stream: makes what is pending current, an event whose closing empty line never came. `false` if
   * nothing is. (The standard has clients drop such an event; whether it counts is the caller's to decide.)
   */
  finish(): boolean | Failure {
    if (this.held === 0) return false
    if (this.line_bytes > 0) this.lines.push(this.held, this.held)
    this.buffer = this.hold
    this.start = 0
    this.end = this.held
    this.hold = NOTHING
    this.held = 0
    return this.complete()
  }

  /** Finds where the event that goes on at `from` ends in the chunk, noting its lines; -1 if it does not. */
  private findEnd(from: number): number {
    const { chunk, lines } = this
    const length = chunk.length
    const base = this.held - from
    let line = from
    if (this.after_cr) {
      this.after_cr = false
      if (chunk[from] === LF) {
        // The second half of a CRLF: of a line of this event, or of the end of the one before.
        if (this.held === 0) return from + 1
        lines[lines.length - 1]! += 1
        line++
      }
    }
    while (line < length) {
      const stop = this.lineEnd(line)
      if (stop === length) {
        this.line_bytes += length - line
        return -1
      }
      const text_bytes = stop - line + this.line_bytes
      const after = this.afterEnd(stop)
      if (text_bytes === 0) return after
      this.line_bytes = 0
      lines.push(base + stop, base + after)
      if (lines.length === 2 && this.firstByte(from) === COLON) {
        // The empty line after a comment goes with it if it is here already.
        return after < length && (chunk[after] === LF || chunk[after] === CR) ? this.afterEnd(after) : after
      }
      line = after
    }
    return -1
  }

  /** Where the line at `line` ends: the position of its LF or CR, or the length of the chunk. */
  private lineEnd(line: number): number {
    const { chunk } = this
    if (chunk[line] === LF) return line
    if (this.next_lf < line) this.next_lf = find(chunk, LF, line)
    if (this.next_cr < line) this.next_cr = find(chunk, CR, line)
    return this.next_lf < this.next_cr ? this.next_lf : this.next_cr
  }

  /** The position after the LF, CR or CRLF at `stop`. */
  private afterEnd(stop: number): number {
    const { chunk } = this
    if (chunk[stop] === LF) return stop + 1
    if (stop + 1 === chunk.length) this.after_cr = true
    return chunk[stop + 1] === LF ? stop + 2 : stop + 1
  }

  private firstByte(from: number): number {
    return this.held > 0 ? this.hold[0]! : this.chunk[from]!
  }

  /** Holds the rest of the chunk for the next one. */
  private keep(from: number): false | Failure {
    const failure = this.append(this.chunk, from, this.chunk.length, false)
    this.at = this.chunk.length
    this.chunk = NOTHING
    return failure ?? (this.lines.length > 2 * LINES_MAX ? this.tooLong() : false)
  }

  private append(chunk: Uint8Array, start: number, end: number, is_last: boolean): Failure | undefined {
    const needed = this.held + end - start
    if (needed > this.bytes_max) return this.tooLong()
    if (needed > this.hold.length) {
      // Doubling keeps the copies linear; what is short-lived or complete gets what it needs.
      const more = new Uint8Array(is_last || this.held === 0 ? needed : Math.max(needed, this.hold.length * 2))
      if (this.held > 0) more.set(this.held === this.hold.length ? this.hold : this.hold.subarray(0, this.held))
      this.hold = more
    }
    this.hold.set(start === 0 && end === chunk.length ? chunk : chunk.subarray(start, end), this.held)
    this.held = needed
    return undefined
  }

  private complete(): true | Failure {
    const { lines } = this
    if (lines.length > 2 * LINES_MAX) return this.tooLong()
    this.line_bytes = 0
    readFields(this, lines, this.is_first)
    this.is_first = false
    lines.length = 0
    return true
  }

  private tooLong(): Failure {
    this.at = this.chunk.length
    this.hold = NOTHING
    this.held = 0
    return new Failure('engine_invalid', {
      says: `The engine sent an event of more than ${this.bytes_max} bytes or ${LINES_MAX} lines.`,
    })
  }
}

const find = (chunk: Uint8Array, byte: number, from: number): number => {
  const at = chunk.indexOf(byte, from)
  return at < 0 ? chunk.length : at
}
