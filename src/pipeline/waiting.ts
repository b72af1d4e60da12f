import type { Model, Target } from '../balance/catalogue.ts'
import type { NoTarget } from '../balance/choose.ts'
import { FairQueue, PRIORITIES, type Priority, type Waiting } from '../balance/fair-queue.ts'
import { Failure } from '../base/failure.ts'
import { limits } from '../base/limits.ts'
import { type Claim, giveCounts, takeCounts } from '../table/counts.ts'
import { SUBJECT } from '../table/layout.ts'
import type { Call, Enriched } from './call.ts'
import type { House } from './house.ts'
import { onPlaceLeft } from './place.ts'

/** How often a queue looks for places that calls of other workers have left. */
const LOOK_MS = 4
/** How long a worker leaves a place it gave back to another that waits and holds fewer. */
const YIELD_MS = 12
/** Weight of a new sample in the time between two places. */
const PACE_WEIGHT = 0.1

type Entry = Waiting & {
  readonly since_tick_ms: number
  readonly behind: number
  due_tick_ms: number
  expire(now_tick_ms: number): void
  readonly tryPlace: () => Target | NoTarget
  readonly leave: (found: Target | Failure) => void
}

/** The calls of this worker that wait for a place at a model's engines. Their number is exact over all workers. */
class ModelQueue {
  readonly entries = new FairQueue<Entry>()
  readonly #house: House
  readonly #model: Model
  #timer: Timer | undefined
  #stopListening: () => void = () => undefined
  /** Moving average of the time between two places given out; undefined before the second. */
  #pace_ms: number | undefined
  #last_tick_ms: number | undefined
  /** When a place was left that another worker may take first. */
  #yields_tick_ms: number | undefined

  constructor(house: House, model: Model) {
    this.#house = house
    this.#model = model
  }

  /** Expected wait of a tenant's next call; 0 if there is nothing to tell from. */
  expectedMs(tenant: string, priority: Priority): number {
    return (this.entries.before(tenant, priority) + 1) * (this.#pace_ms ?? 0)
  }

  push(entry: Entry): void {
    if (this.entries.size === 0) this.#open()
    this.entries.push(entry)
  }

  /** Takes one out that gave up, or was pushed out. */
  drop(entry: Entry): void {
    this.entries.remove(entry)
    if (this.entries.size === 0) this.#close()
  }

  #open(): void {
    this.#last_tick_ms = undefined
    this.#timer = setInterval(() => this.#give(), LOOK_MS)
    this.#stopListening = onPlaceLeft(this.#house, () => {
      this.#yields_tick_ms ??= this.#house.tick()
      this.#give()
    })
  }

  #close(): void {
    clearInterval(this.#timer)
    this.#stopListening()
  }

  /** Gives out places in turn as long as there are any. */
  #give(): void {
    const yields = this.#yields_tick_ms !== undefined && this.#house.tick() - this.#yields_tick_ms < YIELD_MS
    if (yields && this.#othersFirst()) return
    this.#yields_tick_ms = undefined
    for (let entry = this.entries.head(); entry !== undefined; entry = this.entries.head()) {
      const found = entry.tryPlace()
      if ('why' in found && found.why === 'full') return
      this.entries.take(entry)
      if (this.entries.size === 0) this.#close()
      this.#notePace()
      entry.leave('why' in found ? notNow(this.#model, found) : found)
    }
  }

  #notePace(): void {
    const now = this.#house.tick()
    if (this.#last_tick_ms !== undefined) {
      const sample = now - this.#last_tick_ms
      this.#pace_ms = this.#pace_ms === undefined ? sample : this.#pace_ms + (sample - this.#pace_ms) * PACE_WEIGHT
    }
    this.#last_tick_ms = now
  }

  /** True if another worker has calls waiting and holds fewer places than this one: its calls would starve. */
  #othersFirst(): boolean {
    const { i32 } = this.#house.table
    const held = (worker: number): number =>
      this.#model.targets.reduce(
        (sum, { engine }) => sum + Atomics.load(i32, engine.subject * 2 + SUBJECT.count_columns + worker),
        0,
      )
    const mine = held(this.#house.worker)
    for (let worker = 0; worker < limits.workers_max; worker++) {
      if (worker === this.#house.worker) continue
      if (Atomics.load(i32, this.#model.subject * 2 + SUBJECT.count_columns + worker) === 0) continue
      if (held(worker) < mine) return true
    }
    return false
  }
}

const queues = new WeakMap<House, Map<string, ModelQueue>>()

const queueOf = (house: House, model: Model): ModelQueue => {
  let by_model = queues.get(house)
  if (by_model === undefined) queues.set(house, (by_model = new Map()))
  let queue = by_model.get(model.name)
  if (queue === undefined) by_model.set(model.name, (queue = new ModelQueue(house, model)))
  return queue
}

/** True if calls for the model wait already in this worker: a new one must not pass them. */
export const mustWait = (house: House, model: Model): boolean => {
  const queue = queues.get(house)?.get(model.name)
  return queue !== undefined && queue.entries.size > 0
}

/**
 * Waits in the model's queue for a place. Refused at once if the queue is full or the call cannot make it in time; given
 * up when its time is over or its client leaves. Places are given in fair turns, see {@link FairQueue}.
 */
export const waitForPlace = async (
  call: Enriched,
  house: House,
  model: Model,
  tryPlace: () => Target | NoTarget,
): Promise<Target | Failure> => {
  const queue = queueOf(house, model)
  const { size, wait_ms } = model.config.queue
  const priority = priorityOf(call)
  const tenant = call.tenant.name
  const since_tick_ms = house.tick()
  const due_tick_ms = Math.min(since_tick_ms + wait_ms, call.deadline_tick_ms)
  const expected_ms = queue.expectedMs(tenant, priority)
  if (since_tick_ms + expected_ms > due_tick_ms) return tooLong(model, expected_ms)
  const claim: Claim = { subject: model.subject, limit: size }
  if (!takeWaitingPlace(house, queue, claim, tenant, priority)) return full(model, size, expected_ms)
  const { promise, resolve } = Promise.withResolvers<Target | Failure>()
  const behind = queue.entries.before(tenant, priority)
  const entry: Entry = {
    tenant,
    priority,
    cost: Math.max(1, call.ask!.prompt_tokens + call.ask!.answer_tokens),
    since_tick_ms,
    behind,
    due_tick_ms,
    expire: () => giveUp(new Failure('queue_timeout', { retry_after_s: seconds(queue.expectedMs(tenant, priority)) })),
    tryPlace,
    leave: (found) => {
      house.watch.remove(entry)
      signal.removeEventListener('abort', gone)
      giveCounts(house.table, house.worker, [claim])
      note(call, house.tick() - since_tick_ms, behind)
      resolve(found)
    },
  }
  const giveUp = (why: Failure): void => {
    queue.drop(entry)
    entry.leave(why)
  }
  const { signal } = call.arrival.request
  const gone = (): void => {
    const open: Call = call
    open.client_gone = true
    giveUp(new Failure('client_gone'))
  }
  if (signal.aborted) {
    giveCounts(house.table, house.worker, [claim])
    return new Failure('client_gone')
  }
  signal.addEventListener('abort', gone, { once: true })
  house.watch.add(entry)
  queue.push(entry)
  return promise
}

/** One place in the queue. If it is full the tenant that waits most gives up its newest call to one that waits less. */
const takeWaitingPlace = (
  house: House,
  queue: ModelQueue,
  claim: Claim,
  tenant: string,
  priority: Priority,
): boolean => {
  if (takeCounts(house.table, house.worker, [claim]) < 0) return true
  const out = queue.entries.pushOut(tenant, priority)
  if (out === undefined) return false
  out.leave(new Failure('queue_full', { retry_after_s: seconds(queue.expectedMs(out.tenant, out.priority)) }))
  return takeCounts(house.table, house.worker, [claim]) < 0
}

/** The class that the caller asks for, no higher than its tenant may have. Anything unknown is normal. */
const priorityOf = (call: Enriched): Priority => {
  const asked = PRIORITIES.indexOf((call.headers.get('x-weir-priority') ?? 'normal').trim().toLowerCase() as Priority)
  const most = PRIORITIES.indexOf(call.tenant.config.priority_max ?? 'normal')
  return PRIORITIES[Math.max(asked < 0 ? PRIORITIES.indexOf('normal') : asked, most)]!
}

const note = (call: Call, queue_ms: number, behind: number): void => {
  call.queue_ms = queue_ms
  if (call.decision === undefined) return
  call.decision.queue_ms = queue_ms
  call.decision.queued_behind = behind
}

const seconds = (wait_ms: number): number => Math.max(1, Math.ceil(wait_ms / 1_000))

const full = (model: Model, size: number, expected_ms: number): Failure =>
  new Failure('queue_full', {
    says: `The queue for the model ${JSON.stringify(model.name)} holds ${size} calls and is full.`,
    retry_after_s: seconds(expected_ms),
  })

const tooLong = (model: Model, expected_ms: number): Failure =>
  new Failure('queue_timeout', {
    says: `A place for the model ${JSON.stringify(model.name)} is expected in ${seconds(expected_ms)} s, which is too late for this call.`,
    retry_after_s: seconds(expected_ms),
  })

const notNow = (model: Model, found: NoTarget): Failure =>
  new Failure('no_engine', {
    says: `No engine for the model ${JSON.stringify(model.name)} can take this call any more (${found.why}).`,
    retry_after_s: seconds(found.wait_ms),
  })
