import { decodeText } from './json-value.ts'

/** Keys of one object that are compared pair by pair; with more, or with an escape among them, a set takes over. */
const PAIRS_MAX = 32

/** A hash of ASCII text, equal to {@link KeyStack.last_hash} of the same key. */
export const hashText = (text: string): number => {
  let hash = 0
  for (let i = 0; i < text.length; i++) hash = (Math.imul(hash, 31) + text.charCodeAt(i)) | 0
  return hash
}

/**
 * The keys of the objects that are open at one point of a document, to tell a key that stands twice in its object.
 * Keys are compared unescaped. Time is linear in the document whatever the keys are: bytes are compared only within
 * {@link PAIRS_MAX}, and each key is decoded at most twice.
 */
export class KeyStack {
  private bytes: Uint8Array
  private hashes = new Int32Array(64)
  private starts = new Int32Array(64)
  private ends = new Int32Array(64)
  private top = 0
  /** Hash of the last key. */
  last_hash = 0
  private last_start = 0
  private last_end = 0
  /** The last key decoded, if it holds an escape. */
  private last_text: string | undefined

  constructor(bytes: Uint8Array) {
    this.bytes = bytes
  }

  /** Starts over with another document. */
  reset(bytes: Uint8Array): void {
    this.bytes = bytes
    this.top = 0
  }

  /** Where the keys of an object that opens here begin; to be given to `add` and `close`. */
  open(): number {
    return this.top
  }

  close(base: number): void {
    this.top = base
  }

  /**
   * Adds the key between quotes at `[start, end)` to the object that opened at `base`. `many` is what the call before
   * it returned for this object, `undefined` at first. Returns `false` if the object has the key already.
   */
  add(base: number, many: Set<string> | undefined, start: number, end: number): Set<string> | undefined | false {
    const { bytes } = this
    let hash = 0
    let plain = true
    for (let at = start; at < end; at++) {
      const byte = bytes[at]!
      if (byte === 0x5c) plain = false
      hash = (Math.imul(hash, 31) + byte) | 0
    }
    this.last_start = start
    this.last_end = end
    this.last_text = plain ? undefined : decodeText(bytes, start, end)
    this.last_hash = this.last_text === undefined ? hash : hashText(this.last_text)
    if (many === undefined && plain && this.top - base < PAIRS_MAX) {
      for (let i = base; i < this.top; i++) if (this.hashes[i] === hash && this.sameBytes(i)) return false
      this.push(hash)
      return undefined
    }
    const set = many ?? this.toSet(base)
    const size = set.size
    set.add(this.lastText())
    return set.size > size && set
  }

  /** True if the last key is `name`. Requires a name in ASCII. */
  lastIs(name: string): boolean {
    if (this.last_text !== undefined) return this.last_text === name
    if (this.last_end - this.last_start !== name.length) return false
    for (let i = 0; i < name.length; i++) if (this.bytes[this.last_start + i] !== name.charCodeAt(i)) return false
    return true
  }

  /** The last key, decoded. */
  lastText(): string {
    return this.last_text ?? decodeText(this.bytes, this.last_start, this.last_end)
  }

  private sameBytes(i: number): boolean {
    const { bytes } = this
    const start = this.starts[i]!
    const length = this.last_end - this.last_start
    if (this.ends[i]! - start !== length) return false
    for (let at = 0; at < length; at++) if (bytes[start + at] !== bytes[this.last_start + at]) return false
    return true
  }

  private toSet(base: number): Set<string> {
    const set = new Set<string>()
    for (let i = base; i < this.top; i++) set.add(decodeText(this.bytes, this.starts[i]!, this.ends[i]!))
    return set
  }

  private push(hash: number): void {
    const at = this.top++
    if (at === this.hashes.length) {
      this.hashes = twice(this.hashes)
      this.starts = twice(this.starts)
      this.ends = twice(this.ends)
    }
    this.hashes[at] = hash
    this.starts[at] = this.last_start
    this.ends[at] = this.last_end
  }
}

/** A copy with room for as much again. At most `json_depth_max` objects are open, so it stays small. */
const twice = (numbers: Int32Array): Int32Array<ArrayBuffer> => {
  const more = new Int32Array(numbers.length * 2)
  more.set(numbers)
  return more
}
