import type { TransportFailure, UpstreamResponse } from '../engines/transport.ts'
import type { Vigil } from './vigil.ts'

/** What a read of an answer gives: see `UpstreamResponse.read`. */
export type Piece = Uint8Array | null | TransportFailure

/**
 * Reads one answer under its call's vigil. The clock of silence runs only while a read is waiting: an engine that was
 * not asked for more, because the client is slow, is not silent.
 */
export class Reading {
  readonly #head: UpstreamResponse
  readonly #vigil: Vigil
  readonly #tick: () => number
  readonly #between_ms: number
  /** How long reads may still wait, all together. */
  #left_ms = Number.POSITIVE_INFINITY
  #asked_tick_ms = 0
  /** What came of a body that did not come whole. */
  half: Uint8Array | undefined

  constructor(head: UpstreamResponse, vigil: Vigil, tick: () => number, between_ms: number) {
    this.#head = head
    this.#vigil = vigil
    this.#tick = tick
    this.#between_ms = between_ms
  }

  /** The next piece. `arrived` must follow once it is in. */
  next(): Promise<Piece> {
    this.#asked_tick_ms = this.#tick()
    this.#vigil.awaitByte(this.#asked_tick_ms + Math.min(this.#left_ms, this.#between_ms))
    return this.#head.read()
  }

  /** Stops the clock of silence. */
  arrived(): void {
    this.#vigil.awaitByte()
    if (this.#left_ms !== Number.POSITIVE_INFINITY)
      this.#left_ms = Math.max(0, this.#left_ms - (this.#tick() - this.#asked_tick_ms))
  }

  /** From now on all reads together may wait so long at most. */
  hurry(left_ms: number): void {
    this.#left_ms = Math.min(this.#left_ms, left_ms)
  }

  /** The rest of the body; `too_large` past the limit, and then it must be cancelled. At once if it is in hand. */
  all(bytes_max: number): Rest | Promise<Rest> {
    const pieces: Uint8Array[] = []
    let size = 0
    for (let piece = this.#head.inHand(); piece !== undefined; piece = this.#head.inHand()) {
      if (piece === null) return joined(pieces, size)
      if (!(piece instanceof Uint8Array)) {
        this.half = Buffer.concat(pieces, size)
        return piece
      }
      pieces.push(piece)
      size += piece.length
      if (size > bytes_max) return 'too_large'
    }
    return this.#collect(pieces, size, bytes_max)
  }

  async #collect(pieces: Uint8Array[], had_bytes: number, bytes_max: number): Promise<Rest> {
    for (let size = had_bytes; ;) {
      const piece = await this.next()
      this.arrived()
      if (piece === null) return joined(pieces, size)
      if (!(piece instanceof Uint8Array)) {
        this.half = Buffer.concat(pieces, size)
        return piece
      }
      pieces.push(piece)
      size += piece.length
      if (size > bytes_max) return 'too_large'
    }
  }
}

/** What is left of a body. */
export type Rest = Uint8Array | TransportFailure | 'too_large'

const joined = (pieces: readonly Uint8Array[], size: number): Uint8Array =>
  pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces, size)

/** How long the end of a body may come after its `[DONE]`. */
const REST_MS = 250

/** Reads to the end of a body that said all it had to say, so that its connection can serve another call. */
export const giveBack = async (reading: Reading, cancel: () => void): Promise<void> => {
  const timer = setTimeout(cancel, REST_MS)
  for (let piece = await reading.next(); piece instanceof Uint8Array;) piece = await reading.next()
  clearTimeout(timer)
}
