/** Classes of `x-weir-priority`, best first. */
export const PRIORITIES = ['high', 'normal', 'low'] as const
export type Priority = (typeof PRIORITIES)[number]

/** A class goes before the next one until that has waited for so many tokens of others: no class starves. */
export const CLASS_TOKENS = 65_536

/** Where a call stands in the order of a queue: smaller goes first, never 0. */
export const keyOf = (start: number, priority: Priority): number =>
  1 + start + PRIORITIES.indexOf(priority) * CLASS_TOKENS

/** Calls in the order of their keys, or of another figure; equal ones in the order in which they came. */
export class KeyQueue<Item extends { readonly key: number }> {
  readonly #items: Item[] = []
  readonly #keyOf: (item: Item) => number

  constructor(keyOf: (item: Item) => number = ({ key }) => key) {
    this.#keyOf = keyOf
  }

  get size(): number {
    return this.#items.length
  }

  head(): Item | undefined {
    return this.#items[0]
  }

  /** The last one that passes. */
  findLast(passes: (item: Item) => boolean): Item | undefined {
    return this.#items.findLast(passes)
  }

  /** The one that waits longest for its turn. */
  last(): Item | undefined {
    return this.#items.at(-1)
  }

  /** Puts one in; answers how many go before it. */
  push(item: Item): number {
    const at = this.#place(this.#keyOf(item))
    this.#items.splice(at, 0, item)
    return at
  }

  /** Takes one out; false if it is not there. */
  remove(item: Item): boolean {
    const at = this.#items.lastIndexOf(item, this.#place(this.#keyOf(item)) - 1)
    if (at >= 0) this.#items.splice(at, 1)
    return at >= 0
  }

  /** The place behind all whose key is not larger. */
  #place(key: number): number {
    let low = 0
    let high = this.#items.length
    while (low < high) {
      const middle = (low + high) >> 1
      if (this.#keyOf(this.#items[middle]!) <= key) low = middle + 1
      else high = middle
    }
    return low
  }
}
