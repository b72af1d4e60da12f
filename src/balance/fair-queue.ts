/** Classes of `x-weir-priority`, best first. */
export const PRIORITIES = ['high', 'normal', 'low'] as const
export type Priority = (typeof PRIORITIES)[number]

/** Tokens that a tenant is granted in a round. */
const QUANTUM = 1_024
/** Each so many picks one goes to the lowest class that waits, so that none starves. */
const LOWEST_EVERY = 8

export type Waiting = { readonly tenant: string; readonly priority: Priority; readonly cost: number }

type Line<Item> = { readonly tenant: string; readonly items: Item[]; deficit: number }
type Ring<Item> = { readonly lines: Line<Item>[]; at: number; granted: boolean }

/**
 * A queue that is fair to tenants by the tokens they ask for: deficit round robin (Shreedhar and Varghese 1995) in each
 * class of priority, the classes one before the other. A tenant that sends much waits behind itself only.
 */
export class FairQueue<Item extends Waiting> {
  size = 0
  readonly #rings: Record<Priority, Ring<Item>> = { high: newRing(), normal: newRing(), low: newRing() }
  #picks = 0

  push(item: Item): void {
    const { lines } = this.#rings[item.priority]
    const line = lines.find(({ tenant }) => tenant === item.tenant)
    if (line) line.items.push(item)
    else lines.push({ tenant: item.tenant, items: [item], deficit: 0 })
    this.size++
  }

  /** Whose turn it is; undefined if nobody waits. The same one until it is removed, another comes or leaves. */
  head(): Item | undefined {
    const ring = this.#ringOfTurn()
    return ring && headOf(ring)
  }

  /** Takes the head out: its tenant pays. */
  take(item: Item): void {
    const ring = this.#rings[item.priority]
    const line = ring.lines.find(({ tenant }) => tenant === item.tenant)
    if (line) line.deficit -= item.cost
    this.#picks++
    this.remove(item)
  }

  /** Takes out one that gave up. False if it is not there. */
  remove(item: Item): boolean {
    const ring = this.#rings[item.priority]
    const nth = ring.lines.findIndex(({ tenant }) => tenant === item.tenant)
    const line = ring.lines[nth]
    const at = line ? line.items.indexOf(item) : -1
    if (line === undefined || at < 0) return false
    line.items.splice(at, 1)
    this.size--
    if (line.items.length > 0) return true
    ring.lines.splice(nth, 1)
    if (nth < ring.at) ring.at--
    else if (nth === ring.at) ring.granted = false
    if (ring.at >= ring.lines.length) ring.at = 0
    return true
  }

  /** How many of a tenant wait in a class. */
  waitingOf(tenant: string, priority: Priority): number {
    return this.#rings[priority].lines.find((line) => line.tenant === tenant)?.items.length ?? 0
  }

  /** Calls that will go before one of this tenant that comes now. */
  before(tenant: string, priority: Priority): number {
    let count = 0
    for (const other of PRIORITIES) {
      if (other === priority) break
      for (const line of this.#rings[other].lines) count += line.items.length
    }
    const own = this.waitingOf(tenant, priority)
    for (const line of this.#rings[priority].lines)
      count += line.tenant === tenant ? own : Math.min(line.items.length, own + 1)
    return count
  }

  /** The newest of the tenant that waits most, for one who waits less to take its place; undefined if there is none. */
  pushOut(tenant: string, priority: Priority): Item | undefined {
    let longest: Line<Item> | undefined
    for (const one of PRIORITIES.toReversed()) {
      for (const line of this.#rings[one].lines) if (line.items.length > (longest?.items.length ?? 0)) longest = line
      if (one === priority) break
    }
    if (longest === undefined || longest.items.length <= this.waitingOf(tenant, priority) + 1) return undefined
    const item = longest.items.at(-1)!
    this.remove(item)
    return item
  }

  /** Everybody who waits, in no order. */
  *[Symbol.iterator](): Generator<Item> {
    for (const priority of PRIORITIES) for (const { items } of this.#rings[priority].lines) yield* items
  }

  #ringOfTurn(): Ring<Item> | undefined {
    const order = this.#picks % LOWEST_EVERY === LOWEST_EVERY - 1 ? PRIORITIES.toReversed() : PRIORITIES
    for (const priority of order) if (this.#rings[priority].lines.length > 0) return this.#rings[priority]
    return undefined
  }
}

const newRing = <Item>(): Ring<Item> => ({ lines: [], at: 0, granted: false })

const headOf = <Item extends Waiting>(ring: Ring<Item>): Item => {
  const { lines } = ring
  for (let step = 0; step <= lines.length * 2; step++) {
    const line = lines[ring.at]!
    if (!ring.granted) {
      line.deficit += QUANTUM
      ring.granted = true
    }
    if (line.deficit >= line.items[0]!.cost) return line.items[0]!
    ring.at = (ring.at + 1) % lines.length
    ring.granted = false
    // After a round in which nobody could pay, as many rounds at once as the nearest needs.
    if (step === lines.length) skipRounds(lines)
  }
  return lines[ring.at]!.items[0]!
}

const skipRounds = <Item extends Waiting>(lines: readonly Line<Item>[]): void => {
  const rounds = Math.min(...lines.map(({ items, deficit }) => Math.ceil((items[0]!.cost - deficit) / QUANTUM)))
  for (const line of lines) line.deficit += Math.max(0, rounds - 1) * QUANTUM
}
