import { limits } from '../base/limits.ts'
import { couldBeHead, fieldLines, type FramedHead, parseHead, type ResponseHead } from './http1-head.ts'

/** Where a parser delivers to. */
export type ResponseSink = {
  /** The final head is in (1xx are skipped). */
  onHead(head: ResponseHead): void
  /** Bytes of the body, without transfer coding; never empty. A view of the bytes given to `feed`. */
  onBody(bytes: Uint8Array): void
}

/** Where a parser stands after bytes were fed. */
export type ResponseState =
  | 'head' // before the end of the head
  | 'body'
  | 'end' // the declared end was reached and no byte came after it
  | 'surplus' // the declared end was reached, and bytes came after it
  | 'invalid' // not HTTP/1.1, ambiguous, or beyond a bound; nothing may be fed any more

const INTERIM_HEADS_MAX = 16
/** Size and extensions of one chunk. */
const CHUNK_LINE_BYTES_MAX = 4096

const CR = 13
const LF = 10
/** Of a chunk's size: what a number holds exactly. */
const SIZE_DIGITS_MAX = 13
const HEX_DIGIT = new Int8Array(256).fill(-1)
for (let digit = 0; digit < 16; digit++)
  for (const char of [digit.toString(16), digit.toString(16).toUpperCase()]) HEX_DIGIT[char.charCodeAt(0)] = digit
const CHUNK_LINE = /^([0-9a-fA-F]{1,13})(?:[\t ]*;[\t\x20-\x7e\x80-\xff]*)?$/

/**
 * Reads HTTP/1.1 responses (RFC 9112), one after the other, from bytes that may be split anywhere. Strict where two
 * readers could differ: bare CR or LF, folded lines, a length that is repeated or a list, a length with a transfer
 * coding, a coding other than a single `chunked`, and any sign or blank in a chunk size are `invalid`. Bounds: 64 KiB a
 * head, 256 lines, 16 interim answers, 4 KiB a chunk line. Chunk extensions and trailers are checked and dropped.
 */
export class Http1Response {
  state: ResponseState = 'head'
  /** Once the head is in: another exchange may follow on the connection. */
  keeps_alive = false
  #sink: ResponseSink
  /** What the bytes to come are. */
  #part: 'head' | 'length' | 'close' | 'chunk_line' | 'chunk_data' | 'chunk_end' | 'trailers' = 'head'
  /** Bytes still to come of the body or of the chunk. */
  #left = 0
  /** An unfinished head, chunk line or trailer section from earlier feeds. */
  #held: Buffer | undefined
  #interim_heads = 0

  constructor(sink: ResponseSink) {
    this.#sink = sink
  }

  /** Ready for the next response on the connection. Requires state `end` or a fresh parser. */
  reset(sink: ResponseSink): void {
    this.state = 'head'
    this.#sink = sink
    this.#part = 'head'
    this.#left = 0
    this.#held = undefined
    this.#interim_heads = 0
  }

  /** Takes the next bytes. They are the parser's from now on: it may move parts of them. */
  feed(bytes: Uint8Array): ResponseState {
    let input = bytes
    if (this.#held) {
      input = Buffer.concat([this.#held, bytes])
      this.#held = undefined
    }
    this.state = this.#part === 'head' ? this.#head(asBuffer(input)) : this.#body(input, 0)
    return this.state
  }

  /** The connection ended in order. True if that is the declared end of the body. */
  ended(): boolean {
    if (this.#part !== 'close' || this.state !== 'body') return false
    this.state = 'end'
    return true
  }

  #head(input: Buffer): ResponseState {
    let start = 0
    for (;;) {
      const end = input.indexOf('\r\n\r\n', start, 'latin1')
      if (end < 0 || end + 4 - start > limits.answer_head_bytes_max) {
        if (end >= 0 || input.length - start > limits.answer_head_bytes_max) return 'invalid'
        return couldBeHead(input, start) ? this.#hold(input, start, 'head') : 'invalid'
      }
      const head = parseHead(input.toString('latin1', start, end + 2))
      if (head === undefined) return 'invalid'
      if (typeof head !== 'number') return this.#start(head, input, end + 4)
      // 101 would end HTTP on this connection, and no upgrade was asked for.
      if (head === 101 || ++this.#interim_heads > INTERIM_HEADS_MAX) return 'invalid'
      start = end + 4
    }
  }

  #start({ head, part, left }: FramedHead, input: Buffer, at: number): ResponseState {
    this.#part = part
    this.#left = left
    this.keeps_alive = head.keeps_alive
    this.#sink.onHead(head)
    if (part === 'length' && left === 0) return at < input.length ? 'surplus' : 'end'
    return at < input.length ? this.#body(input, at) : 'body'
  }

  #body(input: Uint8Array, at: number): ResponseState {
    if (this.#part === 'close') {
      this.#sink.onBody(at === 0 ? input : input.subarray(at))
      return 'body'
    }
    if (this.#part !== 'length') return this.#chunked(input, at)
    const took = Math.min(this.#left, input.length - at)
    this.#left -= took
    if (took > 0) this.#sink.onBody(took === input.length ? input : input.subarray(at, at + took))
    if (this.#left > 0) return 'body'
    return at + took < input.length ? 'surplus' : 'end'
  }

  /** The data of all chunks in `input` is moved together, so that one arrival makes one piece. */
  #chunked(input: Uint8Array, start: number): ResponseState {
    const bytes = asBuffer(input)
    let at = start
    let first = -1
    let filled = -1
    let state: ResponseState | undefined
    while (state === undefined) {
      if (this.#part === 'chunk_data') {
        const took = Math.min(this.#left, bytes.length - at)
        if (first < 0) first = filled = at
        if (filled !== at) bytes.copyWithin(filled, at, at + took)
        filled += took
        at += took
        this.#left -= took
        if (this.#left > 0) state = 'body'
        else this.#part = 'chunk_end'
      } else if (this.#part === 'chunk_end') {
        if (bytes.length - at < 2)
          state = at < bytes.length && bytes[at] !== CR ? 'invalid' : this.#hold(bytes, at, 'body')
        else if (bytes[at] !== CR || bytes[at + 1] !== LF) state = 'invalid'
        else {
          at += 2
          this.#part = 'chunk_line'
        }
      } else if (this.#part === 'trailers') {
        state = this.#trailers(bytes, at)
      } else {
        const next = this.#chunkLine(bytes, at)
        if (typeof next === 'number') at = next
        else state = next
      }
    }
    if (filled > first) this.#sink.onBody(bytes.subarray(first, filled))
    return state
  }

  /** Reads a chunk size; where it ends, or the state if it is not whole or not valid. */
  #chunkLine(bytes: Buffer, at: number): number | ResponseState {
    if (at === bytes.length) return 'body'
    const stop = Math.min(at + SIZE_DIGITS_MAX, bytes.length - 2)
    let size = 0
    let after = at
    for (; after < stop; after++) {
      const digit = HEX_DIGIT[bytes[after]!]!
      if (digit < 0) break
      size = size * 16 + digit
    }
    if (after === at || after > bytes.length - 2 || bytes[after] !== CR || bytes[after + 1] !== LF)
      return this.#extendedLine(bytes, at)
    return this.#chunk(size, after + 2)
  }

  /** A chunk's line that is more than digits, is not whole or not valid. */
  #extendedLine(bytes: Buffer, at: number): number | ResponseState {
    const end = bytes.indexOf(LF, at)
    if (end < 0) return bytes.length - at > CHUNK_LINE_BYTES_MAX ? 'invalid' : this.#hold(bytes, at, 'body')
    if (end - at > CHUNK_LINE_BYTES_MAX || bytes[end - 1] !== CR) return 'invalid'
    const size = CHUNK_LINE.exec(bytes.toString('latin1', at, end - 1))?.[1]
    return size === undefined ? 'invalid' : this.#chunk(parseInt(size, 16), end + 1)
  }

  #chunk(size: number, at: number): number {
    this.#left = size
    this.#part = size === 0 ? 'trailers' : 'chunk_data'
    return at
  }

  #trailers(bytes: Buffer, at: number): ResponseState {
    const none = bytes[at] === CR && bytes[at + 1] === LF
    const last = none ? at - 2 : bytes.indexOf('\r\n\r\n', at, 'latin1')
    const too_long = (none || last >= 0 ? last : bytes.length) - at > limits.answer_head_bytes_max
    if (too_long) return 'invalid'
    if (!none && last < 0) return this.#hold(bytes, at, 'body')
    const end = last + 2
    if (!none && !fieldLines(bytes.toString('latin1', at, end), 0)) return 'invalid'
    return end + 2 < bytes.length ? 'surplus' : 'end'
  }

  /** Keeps an unfinished line for the next feed. */
  #hold(bytes: Buffer, at: number, state: ResponseState): ResponseState {
    if (at < bytes.length) this.#held = Buffer.from(bytes.subarray(at))
    return state
  }
}

const asBuffer = (bytes: Uint8Array): Buffer =>
  bytes instanceof Buffer ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
