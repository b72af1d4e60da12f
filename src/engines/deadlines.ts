import { tickMs } from '../base/clock.ts'

/** Something that waits until a moment. The two numbers belong to {@link Deadlines}. */
export type Timed = {
  due_tick_ms: number
  /** Place in the list; -1 when not waiting. */
  slot: number
  /** Called once, after the moment has passed. */
  expire(): void
}

/** Two firings are at least this far apart, so many deadlines that pass together cost one scan. */
const GRAIN_MS = 5
const DELAY_MS_MAX = 2_147_483_647

/**
 * Many deadlines on one timer. Setting and clearing one costs a few writes to an array: the timer is armed for the
 * earliest known moment and not touched when that deadline is cleared; it then fires for nothing and looks for the next.
 * A deadline is never early and late by at most 5 ms and the delay of the event loop. The timer keeps no process alive.
 */
export class Deadlines {
  readonly #waiting: Timed[] = []
  #timer: Timer | undefined
  #fires_at_tick_ms = Infinity

  /** Sets or moves the deadline of `entry` to `delay_ms` from now. */
  set(entry: Timed, delay_ms: number): void {
    const due = tickMs() + delay_ms
    entry.due_tick_ms = due
    if (entry.slot < 0) entry.slot = this.#waiting.push(entry) - 1
    if (due < this.#fires_at_tick_ms) this.#arm(due, delay_ms)
  }

  /** Forgets the deadline of `entry`; harmless if it has none. */
  clear(entry: Timed): void {
    const slot = entry.slot
    if (slot < 0) return
    entry.slot = -1
    const last = this.#waiting.pop()!
    if (last === entry) return
    this.#waiting[slot] = last
    last.slot = slot
  }

  /** How many deadlines are set. */
  get size(): number {
    return this.#waiting.length
  }

  #arm(due_tick_ms: number, delay_ms: number): void {
    clearTimeout(this.#timer)
    this.#fires_at_tick_ms = due_tick_ms
    this.#timer = setTimeout(this.#fire, Math.min(Math.ceil(delay_ms), DELAY_MS_MAX))
    this.#timer.unref()
  }

  readonly #fire = (): void => {
    const now = tickMs()
    this.#fires_at_tick_ms = Infinity
    const due: Timed[] = []
    let next = Infinity
    for (const entry of this.#waiting) {
      if (entry.due_tick_ms <= now) due.push(entry)
      else if (entry.due_tick_ms < next) next = entry.due_tick_ms
    }
    // Armed before any `expire` runs, since that may set new deadlines.
    if (next !== Infinity) this.#arm(next, Math.max(next - now, GRAIN_MS))
    for (const entry of due) {
      // An earlier `expire` of this round may have cleared or moved it.
      if (entry.slot < 0 || entry.due_tick_ms > now) continue
      this.clear(entry)
      entry.expire()
    }
  }
}
