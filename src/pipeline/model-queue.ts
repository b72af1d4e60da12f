import type { Model, Target } from '../balance/catalogue.ts'
import type { NoTarget } from '../balance/choose.ts'
import { KeyQueue } from '../balance/fair-queue.ts'
import { headOf, queueTime, refund, serve, showHead } from '../balance/fair-time.ts'
import { Failure } from '../base/failure.ts'
import { limits } from '../base/limits.ts'
import { SUBJECT, WORKER } from '../table/layout.ts'
import { type Subject, subjectOf, workerF64 } from '../table/table.ts'
import type { House } from './house.ts'
import { onPlaceLeft } from './place.ts'

/** How often a queue looks for places that calls of other workers have left. */
const LOOK_MS = 1
/** How long a worker leaves a free place to another whose call is due first: it looks far more often, unless it is stuck. */
const YIELD_MS = 20
/** A worker that was passed as stuck, as it was then: one that has moved since is not stuck. */
type Stuck = { readonly head: number; readonly beat_ms: number }
/** Over what time the pace of the queue is averaged. */
const PACE_MS = 1_000

/** A call that waits. */
export type Entry = {
  /** Its place in the order, over all workers. */
  readonly key: number
  readonly start: number
  readonly flow: number
  readonly cost: number
  /** Tries to take a place. */
  readonly tryPlace: () => Target | NoTarget
  /** Told once what it got. */
  readonly leave: (found: Target | Failure) => void
}

/**
 * The calls of this worker that wait for a place at a model's engines. Whose turn it is, is decided over all workers: each
 * shows the key of its first call, and leaves a free place to the worker with the smallest.
 */
export class ModelQueue {
  readonly #entries = new KeyQueue<Entry>()
  readonly #by_start = new KeyQueue<Entry>(({ start }) => start)
  /** Where each worker shows the last start tag, plus one; without it, as the table is full, each sees its own alone. */
  readonly #lasts: Subject | undefined
  readonly #house: House
  #model: Model
  #timer: Timer | undefined
  #stopListening: () => void = () => undefined
  /** Since when a free place is left to another worker. */
  #yields_tick_ms: number | undefined
  readonly #stuck = new Map<number, Stuck>()
  #pace = { tokens_per_ms: 0, time: 0, tick_ms: 0 }

  constructor(house: House, model: Model) {
    this.#house = house
    this.#model = model
    this.#lasts = subjectOf(house.table, 'queue_lasts', model.name)
  }

  /** Takes the model as it is now; calls that wait keep what they knew of it. */
  update(model: Model): void {
    this.#model = model
  }

  /** Expected wait of a call with this start tag; 0 if there is nothing to tell from. */
  expectedMs(start: number): number {
    const ahead = start - queueTime(this.#house.table, this.#model.subject)
    return this.#pace.tokens_per_ms > 0 && ahead > 0 ? ahead / this.#pace.tokens_per_ms : 0
  }

  /** Puts a call in; answers how many of this worker go before it. It may have its place when this returns. */
  push(entry: Entry): number {
    if (this.#entries.size === 0) this.#open()
    const before = this.#entries.push(entry)
    this.#by_start.push(entry)
    this.#show()
    this.#give()
    return before
  }

  /** Takes one out that gave up. */
  drop(entry: Entry): void {
    if (!this.#remove(entry)) return
    refund(this.#house.table, entry.flow, entry.cost)
    this.#show()
  }

  /** True if no call of any worker has a later start tag: of all tenants, this one has the most before it. */
  isLast(start: number): boolean {
    return (this.#by_start.last()?.start ?? -1) <= start && this.#othersLast() <= start
  }

  /** Turns a call of the tenant away that has the last start tag, if that is later than this; false if it is not. */
  dropAfter(start: number): boolean {
    const last = this.#by_start.last()
    return last !== undefined && last.start > start && this.dropOf(last.flow, 0)
  }

  /** Turns the call of a tenant away whose turn comes last, if it comes after `key`; false if there is none. */
  dropOf(flow: number, key: number): boolean {
    const last = this.#entries.findLast((entry) => entry.flow === flow)
    if (last === undefined || last.key <= key) return false
    this.drop(last)
    last.leave(queueFull(this.#model, this.expectedMs(last.start)))
    return true
  }

  #remove(entry: Entry): boolean {
    return this.#entries.remove(entry) && this.#by_start.remove(entry)
  }

  /** The last start tag of the other workers; -1 if nobody waits there. */
  #othersLast(): number {
    let last = -1
    if (this.#lasts === undefined) return last
    for (let worker = 0; worker < limits.workers_max; worker++)
      if (worker !== this.#house.worker) last = Math.max(last, headOf(this.#house.table, this.#lasts, worker) - 1)
    return last
  }

  /** Whoever has the last start tag of all turns a call away while more wait than may. */
  #trim(): void {
    const { table } = this.#house
    const { subject, config } = this.#model
    while (Atomics.load(table.i32, subject * 2 + SUBJECT.count) > config.queue.size)
      if (!this.dropAfter(this.#othersLast() - 1)) return
  }

  #open(): void {
    this.#pace = { ...this.#pace, time: queueTime(this.#house.table, this.#model.subject), tick_ms: this.#house.tick() }
    this.#timer = setInterval(() => this.#give(), LOOK_MS)
    this.#stopListening = onPlaceLeft(this.#house, () => this.#give())
  }

  #show(): void {
    const head = this.#entries.head()
    const { table, worker } = this.#house
    showHead(table, this.#model.subject, worker, head?.key ?? 0)
    const last = this.#by_start.last()
    if (this.#lasts !== undefined) showHead(table, this.#lasts, worker, last === undefined ? 0 : last.start + 1)
    if (head !== undefined) return
    clearInterval(this.#timer)
    this.#stopListening()
    this.#yields_tick_ms = undefined
  }

  /** Gives out places in turn as long as there are any. */
  #give(): void {
    this.#notePace()
    this.#trim()
    const { table } = this.#house
    for (let entry = this.#entries.head(); entry !== undefined; entry = this.#entries.head()) {
      showHead(table, this.#model.subject, this.#house.worker, entry.key)
      if (!this.#hasRoom()) {
        this.#yields_tick_ms = undefined
        return
      }
      if (this.#othersTurn(entry.key)) return
      const found = entry.tryPlace()
      if ('why' in found && found.why === 'full') return
      this.#remove(entry)
      this.#yields_tick_ms = undefined
      serve(table, this.#model.subject, entry.start)
      this.#show()
      entry.leave('why' in found ? notNow(this.#model, found) : found)
    }
  }

  /** True if an engine of the model seems to have a place; only the claim can tell. */
  #hasRoom(): boolean {
    const { i32 } = this.#house.table
    return this.#model.targets.some(({ engine }) => i32[engine.subject * 2 + SUBJECT.count]! < engine.config.capacity)
  }

  /**
   * True while a worker whose first call is due before this one has had no time to see that a place is free. One that had
   * it is passed until it shows that it runs: a frozen one would hold each place up anew.
   */
  #othersTurn(key: number): boolean {
    for (let worker = 0; worker < limits.workers_max; worker++) {
      if (worker === this.#house.worker) continue
      const head = headOf(this.#house.table, this.#model.subject, worker)
      if (head === 0 || head > key || (head === key && worker > this.#house.worker)) continue
      const beat_ms = this.#house.table.f64[workerF64(worker, WORKER.heartbeat_ms)]!
      const stuck = this.#stuck.get(worker)
      if (stuck?.head === head && stuck.beat_ms === beat_ms) continue
      const now = this.#house.tick()
      this.#yields_tick_ms ??= now
      if (now - this.#yields_tick_ms < YIELD_MS) return true
      this.#stuck.set(worker, { head, beat_ms })
      this.#yields_tick_ms = undefined
    }
    return false
  }

  /** Tokens of virtual time that pass in a millisecond: what stands between a start tag and its turn. */
  #notePace(): void {
    const tick_ms = this.#house.tick()
    const passed_ms = tick_ms - this.#pace.tick_ms
    if (passed_ms < PACE_MS / 10) return
    const time = queueTime(this.#house.table, this.#model.subject)
    const sample = (time - this.#pace.time) / passed_ms
    const weight = Math.min(1, passed_ms / PACE_MS)
    const before = this.#pace.tokens_per_ms
    this.#pace = { tokens_per_ms: before === 0 ? sample : before + (sample - before) * weight, time, tick_ms }
  }
}

/** A queue in which there is no place for a call. */
export const queueFull = (model: Model, expected_ms: number): Failure =>
  new Failure('queue_full', {
    says: `The queue for the model ${JSON.stringify(model.name)} holds ${model.config.queue.size} calls and is full.`,
    retry_after_s: Math.max(1, Math.ceil(expected_ms / 1_000)),
  })

const notNow = (model: Model, found: NoTarget): Failure =>
  new Failure('no_engine', {
    says: `No engine for the model ${JSON.stringify(model.name)} can take this call any more (${found.why}).`,
    retry_after_s: Math.max(1, Math.ceil(found.wait_ms / 1_000)),
  })
