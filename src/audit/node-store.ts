import { closeSync, fdatasyncSync, ftruncateSync } from 'node:fs'
import { fileBytes, openFile, readAt, syncLater, writeAt } from './disk.ts'
import { leavesOf, nodesOf, peaksOf, positionOf, SIZE_MAX } from './geometry.ts'
import { HASH_BYTES } from './hash.ts'
import { appendLeaf, HASH_WORDS, newRange, NODES_A_LEAF_MAX, type Range, rangeRoot } from './tree.ts'
import { type NodeSource, rootAt } from './proof.ts'

/**
 * The nodes of a log in one file, and nothing else in it: the 32-byte hashes in post-order, node p at byte 32 · p. The
 * file only grows, a crash leaves a prefix, and the number of leaves follows from the file's length. This layout cannot
 * change: proofs of old logs read it.
 *
 * In memory: the peaks, a write buffer, a few pages around the last leaves read, and a fixed number of high nodes, which
 * all proofs share. Methods throw the operating system's errors and `RangeError`s for nodes that do not exist.
 */
export class NodeStore implements NodeSource {
  /** Leaves whose nodes are all written. */
  get size(): number {
    return this.#range.size
  }

  readonly #fd: number
  #range: Range = newRange()
  readonly #out_words = new Uint32Array(OUT_NODES * HASH_WORDS)
  readonly #out_bytes = new Uint8Array(this.#out_words.buffer)
  readonly #pages = new Uint8Array(PAGES * PAGE_BYTES)
  readonly #page_of = new Float64Array(PAGES).fill(-1)
  readonly #page_bytes = new Uint32Array(PAGES)
  readonly #high = new Uint8Array(HIGH_NODES * HASH_BYTES)
  readonly #high_of = new Float64Array(HIGH_NODES).fill(-1)

  /** Opens the file, or makes it. A tail that is not a whole leaf's nodes is ignored, and overwritten by the next append. */
  constructor(path: string, mode: 'read_write' | 'read_only' = 'read_write') {
    this.#fd = openFile(path, mode)
    this.#range = this.#rangeOf(leavesOf(Math.floor(fileBytes(this.#fd) / HASH_BYTES)))
  }

  /** Appends leaves `[from, to)` of a list. After an error the store is as it was before the call. */
  append(leaves: readonly Uint8Array[], from = 0, to = leaves.length): void {
    if (this.#range.size + (to - from) > SIZE_MAX) throw new RangeError(`a log holds at most ${SIZE_MAX} leaves`)
    const before: Range = { size: this.#range.size, peaks: this.#range.peaks.slice() }
    try {
      let position = nodesOf(before.size) * HASH_BYTES
      let words = 0
      for (let leaf = from; leaf < to; leaf++) {
        words = appendLeaf(this.#range, leaves[leaf]!, this.#out_words, words)
        if (words + NODES_A_LEAF_MAX * HASH_WORDS <= this.#out_words.length && leaf + 1 < to) continue
        writeAt(this.#fd, this.#out_bytes, words * 4, position)
        position += words * 4
        words = 0
      }
    } catch (cause) {
      this.#range = before
      throw cause
    }
  }

  /** Reads node (level, index) into 32 bytes of `into` from `at`. */
  read(level: number, index: number, into: Uint8Array, at: number): void {
    if ((index + 1) * 2 ** level > this.size || index < 0) {
      throw new RangeError(`node ${index} of level ${level} is not complete at ${this.size} leaves`)
    }
    if (this.#readPeak(level, index, into, at)) return
    const position = positionOf(level, index)
    if (level < PAGE_LEVELS) return this.#readPaged(position, into, at)
    if (2 ** level * HIGH_NODES < 2 * this.size) {
      return this.#need(readAt(this.#fd, into, at, HASH_BYTES, position * HASH_BYTES), HASH_BYTES, position)
    }
    const slot = slotOf(position)
    const kept = slot * HASH_BYTES
    if (this.#high_of[slot] !== position) {
      this.#high_of[slot] = -1
      this.#need(readAt(this.#fd, this.#high, kept, HASH_BYTES, position * HASH_BYTES), HASH_BYTES, position)
      this.#high_of[slot] = position
    }
    copyHash(this.#high, kept, into, at)
  }

  /** The root at `size` leaves, by default all. Requires size ≤ the store's. */
  root(size = this.size): Uint8Array {
    return size === this.size ? rangeRoot(this.#range) : rootAt(this, size)
  }

  /** Cuts the log to its first `size` leaves, on disk as well. Requires size ≤ the store's. */
  truncate(size: number): void {
    if (size > this.size) throw new RangeError(`cannot cut ${this.size} leaves to ${size}`)
    const range = this.#rangeOf(size)
    ftruncateSync(this.#fd, nodesOf(size) * HASH_BYTES)
    this.#range = range
    this.#forget()
  }

  /** Looks at the file again and takes its size: for a reader beside the writer. Nothing that was cached is kept. */
  refresh(): void {
    this.#forget()
    this.#range = this.#rangeOf(leavesOf(Math.floor(fileBytes(this.#fd) / HASH_BYTES)))
  }

  /** Makes all that was appended survive a loss of power. */
  sync(): void {
    fdatasyncSync(this.#fd)
  }

  /** Like `sync`, for what is there at the call, without holding up the process. */
  syncLater(): Promise<void> {
    return syncLater(this.#fd)
  }

  close(): void {
    closeSync(this.#fd)
  }

  #rangeOf(size: number): Range {
    const range = newRange()
    const bytes = new Uint8Array(range.peaks.buffer)
    for (const { level, index } of peaksOf(size)) {
      const position = positionOf(level, index)
      this.#need(readAt(this.#fd, bytes, level * HASH_BYTES, HASH_BYTES, position * HASH_BYTES), HASH_BYTES, position)
    }
    range.size = size
    return range
  }

  // Proofs for the newest size bag the peaks, and those are in memory.
  #readPeak(level: number, index: number, into: Uint8Array, at: number): boolean {
    const trees = Math.floor(this.size / 2 ** level)
    if (trees % 2 === 0 || index !== trees - 1) return false
    copyHash(new Uint8Array(this.#range.peaks.buffer), level * HASH_BYTES, into, at)
    return true
  }

  // The low nodes around a leaf stand side by side, so one read serves several levels of its proof.
  #readPaged(position: number, into: Uint8Array, at: number): void {
    const page = Math.floor(position / PAGE_NODES)
    const slot = page % PAGES
    const offset = (position - page * PAGE_NODES) * HASH_BYTES
    const start = slot * PAGE_BYTES
    if (this.#page_of[slot] !== page || this.#page_bytes[slot]! < offset + HASH_BYTES) {
      this.#page_of[slot] = -1
      this.#page_bytes[slot] = readAt(this.#fd, this.#pages, start, PAGE_BYTES, page * PAGE_BYTES)
      this.#need(this.#page_bytes[slot]!, offset + HASH_BYTES, position)
      this.#page_of[slot] = page
    }
    copyHash(this.#pages, start + offset, into, at)
  }

  #need(got_bytes: number, bytes: number, position: number): void {
    if (got_bytes < bytes) throw new RangeError(`the node file ends before node ${position}`)
  }

  #forget(): void {
    this.#page_of.fill(-1)
    this.#high_of.fill(-1)
  }
}

const OUT_NODES = 8192
const PAGE_NODES = 128
const PAGE_BYTES = PAGE_NODES * HASH_BYTES
const PAGES = 8
const PAGE_LEVELS = 6
const HIGH_NODES = 65_536

// Positions of one level differ in their high bits mostly, and the high bits of the product mix all of them.
const slotOf = (position: number): number => Math.imul((position % 2 ** 32) ^ (position / 2 ** 32), 0x9e3779b1) >>> 16

const copyHash = (from: Uint8Array, start: number, into: Uint8Array, at: number): void => {
  for (let byte = 0; byte < HASH_BYTES; byte++) into[at + byte] = from[start + byte]!
}
