import { Failure } from '../base/failure.ts'
import { BlobStore } from './blob-store.ts'
import { type Checkpoint, parseCheckpoint } from './checkpoint.ts'
import { NOTE_BYTES_MAX } from './note.ts'

/** A stored checkpoint: the note as it was signed, and what it says. */
export type StoredCheckpoint = { readonly note: string; readonly checkpoint: Checkpoint }

/**
 * All checkpoints that a log ever signed, in order of size, kept for ever. A checkpoint that got cosignatures is appended
 * again with them, so of several with one size the last says most. Opening reads the newest only; finding one by size
 * reads log2 of their number. Methods throw the operating system's errors and `RangeError`s for damaged files.
 */
export class CheckpointStore {
  readonly #blobs: BlobStore

  /** Opens the store, or makes it. A last checkpoint that a loss of power left unwritten is cut off. */
  constructor(folder: string, mode: 'read_write' | 'read_only' = 'read_write') {
    this.#blobs = new BlobStore(folder, 'checkpoints', NOTE_BYTES_MAX, mode)
    // A note has no zero bytes, pages that were never written have nothing else. Any other damage is not repaired.
    while (mode === 'read_write' && this.count > 0 && this.#blobs.read(this.count - 1).includes(0)) {
      this.#blobs.truncate(this.count - 1)
    }
  }

  /** How many checkpoints there are, doubles with more signatures counted. */
  get count(): number {
    return this.#blobs.count
  }

  /** Checkpoint `index`, from 0. */
  at(index: number): StoredCheckpoint {
    const note = new TextDecoder().decode(this.#blobs.read(index))
    const parsed = parseCheckpoint(note)
    if (parsed instanceof Failure) throw new RangeError(`checkpoint ${index} is damaged: ${parsed.detail.says}`)
    return { note, checkpoint: parsed.checkpoint }
  }

  /** The newest one, or undefined. */
  latest(): StoredCheckpoint | undefined {
    return this.count === 0 ? undefined : this.at(this.count - 1)
  }

  /** The last checkpoint of at most `size` leaves, or undefined. */
  atMost(size: number): StoredCheckpoint | undefined {
    const after = this.#firstAbove(size)
    return after === 0 ? undefined : this.at(after - 1)
  }

  /** The smallest checkpoint that covers leaf `index`, with the most signatures, or undefined where none does yet. */
  covering(index: number): StoredCheckpoint | undefined {
    const first = this.#firstAbove(index)
    return first === this.count ? undefined : this.atMost(this.at(first).checkpoint.size)
  }

  /** Appends a checkpoint and makes it durable. Requires a size that is not below the newest one's. */
  append(note: string): void {
    this.#blobs.append([new TextEncoder().encode(note)])
    this.#blobs.sync()
  }

  /** Looks at the files again: for a reader beside the writer. */
  refresh(): void {
    this.#blobs.refresh()
  }

  close(): void {
    this.#blobs.close()
  }

  #firstAbove(size: number): number {
    let low = 0
    let high = this.count
    while (low < high) {
      const middle = Math.floor((low + high) / 2)
      if (this.at(middle).checkpoint.size > size) high = middle
      else low = middle + 1
    }
    return low
  }
}
