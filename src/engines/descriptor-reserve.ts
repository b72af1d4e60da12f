import { closeSync, openSync } from 'node:fs'

/**
 * File descriptors held back for connections to engines. Clients that come in thousands take every descriptor there is;
 * then no engine could be dialled, and each would look as if it were down. So places are taken at the start, by files
 * that are never read, and one is let go just before a dial.
 */
export class DescriptorReserve {
  readonly #held: number[] = []
  #lent = 0

  /** Holds up to `size` back; fewer if the system gives no more. */
  constructor(size: number) {
    this.#lent = size
    this.#refill()
  }

  /** How many are held back now. */
  get held(): number {
    return this.#held.length
  }

  /** Lets one go, to be taken in the same turn of the loop. */
  lend(): void {
    const fd = this.#held.pop()
    if (fd === undefined) return
    closeSync(fd)
    this.#lent++
  }

  /** One that was lent is free again, or will be in a moment. */
  giveBack(): void {
    if (this.#lent > 0) setImmediate(() => this.#refill(1))
  }

  /** Takes back what could not be taken when it was due. */
  #refill(most = this.#lent): void {
    // One more than is due: an earlier one may have found nothing free.
    for (let taken = 0; this.#lent > 0 && taken <= most; taken++) {
      try {
        this.#held.push(openSync('/dev/null', 'r'))
      } catch {
        return // Somebody was faster; the next that comes back is taken.
      }
      this.#lent--
    }
  }
}
