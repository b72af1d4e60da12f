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
    const had: Had = { pieces: [], size: 0, bytes_max }
    for (let piece = this.#head.inHand(); piece !== undefined; piece = this.#head.inHand()) {
      const rest = this.#add(had, piece)
      if (rest !== undefined) return rest
    }
    return this.#collect(had)
  }

  async #collect(had: Had): Promise<Rest> {
    for (;;) {
      const piece = await this.next()
      this.arrived()
      const rest = this.#add(had, piece)
      if (rest !== undefined) return rest
    }
  }

  /** Adds a piece; answers the rest once nothing is to be added any more. */
  #add(had: Had, piece: Piece): Rest | undefined {
    const { pieces } = had
    if (piece === null) return pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces, had.size)
    if (!(piece instanceof Uint8Array)) {
      this.half = Buffer.concat(pieces, had.size)
      return piece
    }
    pieces.push(piece)
    had.size += piece.length
    return had.size > had.bytes_max ? 'too_large' : undefined
  }
}

/** What of a rest is there. */
type Had = { readonly pieces: Uint8Array[]; size: number; readonly bytes_max: number }

/** What is left of a body. */
export type Rest = Uint8Array | TransportFailure | 'too_large'

/** How long the end of a body may come after its `[DONE]`. */
const REST_MS = 250

/** Reads to the end of a body that said all it had to say, so that its connection can serve another call. */
export const giveBack = async (reading: Reading, cancel: () => void): Promise<void> => {
  const timer = setTimeout(cancel, REST_MS)
  for (let piece = await reading.next(); piece instanceof Uint8Array;) piece = await reading.next()
  clearTimeout(timer)
}
