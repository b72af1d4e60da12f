import { closeSync, fdatasyncSync, ftruncateSync } from 'node:fs'
import { join } from 'node:path'
import { fileBytes, openFile, readAt, syncLater, writeAt } from './disk.ts'

/**
 * Byte strings by number, appended and never changed: the leaves of the log, and its checkpoints. Two files:
 *
 *   NAME.data   the strings one after the other, nothing between them
 *   NAME.index  for string i, at byte 8 · i, the byte of NAME.data at which it ends (unsigned, little endian)
 *
 * Strings have at least one byte, so ends rise strictly; an index entry that does not rise, or points past the data, is a
 * torn tail and is cut when the store is opened to write. Nothing is held in memory but the count and two buffers.
 * Methods throw the operating system's errors.
 */
export class BlobStore {
  /** How many strings there are. */
  get count(): number {
    return this.#count
  }

  readonly #data: number
  readonly #index: number
  readonly #blob_bytes_max: number
  #count = 0
  #data_bytes = 0
  readonly #buffer: Uint8Array
  readonly #ends = new Uint8Array(ENTRIES * 8)
  readonly #ends_view = new DataView(this.#ends.buffer)
  readonly #entry = new DataView(new ArrayBuffer(16))

  /** Opens the store, or makes it. `blob_bytes_max` bounds a string. A read-only store ignores a torn tail. */
  constructor(folder: string, name: string, blob_bytes_max: number, mode: 'read_write' | 'read_only' = 'read_write') {
    this.#blob_bytes_max = blob_bytes_max
    this.#buffer = new Uint8Array(Math.max(BUFFER_BYTES, blob_bytes_max))
    this.#data = openFile(join(folder, `${name}.data`), mode)
    this.#index = openFile(join(folder, `${name}.index`), mode)
    this.refresh()
    if (mode === 'read_write') this.truncate(this.#count)
  }

  /** Counts again what the files hold: for a reader beside the writer. */
  refresh(): void {
    const data_bytes = fileBytes(this.#data)
    let count = Math.floor(fileBytes(this.#index) / 8)
    while (count > 0) {
      const [start, end] = this.#bounds(count - 1)
      if (start < end && end <= data_bytes && end - start <= this.#blob_bytes_max) break
      count--
    }
    this.#count = count
    this.#data_bytes = count === 0 ? 0 : this.#bounds(count - 1)[1]
  }

  /** Appends strings `[from, to)` of a list. Requires 1 to `blob_bytes_max` bytes each. After an error nothing was appended. */
  append(blobs: readonly Uint8Array[], from = 0, to = blobs.length): void {
    for (let blob = from; blob < to; blob++) this.#check(blobs[blob]!, blob)
    let written = this.#data_bytes
    let filled = 0
    let entries = 0
    let count = this.#count
    const flush = () => {
      writeAt(this.#data, this.#buffer, filled, written)
      writeAt(this.#index, this.#ends, entries * 8, count * 8)
      written += filled
      count += entries
      filled = 0
      entries = 0
    }
    for (let blob = from; blob < to; blob++) {
      const bytes = blobs[blob]!
      if (entries === ENTRIES || filled + bytes.byteLength > this.#buffer.byteLength) flush()
      this.#buffer.set(bytes, filled)
      filled += bytes.byteLength
      setUint53(this.#ends_view, entries * 8, written + filled)
      entries++
    }
    flush()
    this.#data_bytes = written
    this.#count = count
  }

  /** String `index`, a fresh array. Throws a `RangeError` where there is none. */
  read(index: number): Uint8Array {
    if (!(index >= 0 && index < this.#count))
      throw new RangeError(`there are ${this.#count} entries, not entry ${index}`)
    const [start, end] = this.#bounds(index)
    if (!(start < end && end - start <= this.#blob_bytes_max))
      throw new RangeError(`entry ${index} has a damaged index`)
    const bytes = new Uint8Array(end - start)
    if (readAt(this.#data, bytes, 0, end - start, start) < end - start) {
      throw new RangeError(`entry ${index} ends before byte ${end} of its file`)
    }
    return bytes
  }

  /** Cuts the store to its first `count` strings, on disk as well. Requires count ≤ the store's. */
  truncate(count: number): void {
    if (count > this.#count) throw new RangeError(`cannot cut ${this.#count} entries to ${count}`)
    const end = count === 0 ? 0 : this.#bounds(count - 1)[1]
    ftruncateSync(this.#index, count * 8)
    ftruncateSync(this.#data, end)
    this.#count = count
    this.#data_bytes = end
  }

  /** Makes all that was appended survive a loss of power; the data first, so that no index entry outlives its data. */
  sync(): void {
    fdatasyncSync(this.#data)
    fdatasyncSync(this.#index)
  }

  /** Like `sync`, for what is there at the call, without holding up the process. */
  async syncLater(): Promise<void> {
    await syncLater(this.#data)
    await syncLater(this.#index)
  }

  close(): void {
    closeSync(this.#data)
    closeSync(this.#index)
  }

  #check(bytes: Uint8Array, at: number): void {
    if (bytes.byteLength >= 1 && bytes.byteLength <= this.#blob_bytes_max) return
    throw new RangeError(`entry ${at} has ${bytes.byteLength} bytes; 1 to ${this.#blob_bytes_max} are allowed`)
  }

  #bounds(index: number): [start: number, end: number] {
    const bytes = new Uint8Array(this.#entry.buffer)
    if (index === 0) {
      readAt(this.#index, bytes, 8, 8, 0)
      return [0, getUint53(this.#entry, 8)]
    }
    readAt(this.#index, bytes, 0, 16, (index - 1) * 8)
    return [getUint53(this.#entry, 0), getUint53(this.#entry, 8)]
  }
}

const BUFFER_BYTES = 256 * 1024
const ENTRIES = 4096
const TWO_32 = 2 ** 32

const setUint53 = (view: DataView, at: number, value: number): void => {
  view.setUint32(at, value % TWO_32, true)
  view.setUint32(at + 4, Math.floor(value / TWO_32), true)
}

// An entry of 2^53 or more is damage; as a number it is past any file's end, which is how damage is told.
const getUint53 = (view: DataView, at: number): number =>
  view.getUint32(at, true) + view.getUint32(at + 4, true) * TWO_32
