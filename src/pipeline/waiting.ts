import type { Model, Target } from '../balance/catalogue.ts'
import type { NoTarget } from '../balance/choose.ts'
import { keyOf, PRIORITIES, type Priority } from '../balance/fair-queue.ts'
import { flowOf, refund, startTag } from '../balance/fair-time.ts'
import { Failure } from '../base/failure.ts'
import { type Claim, giveCounts, takeCounts } from '../table/counts.ts'
import { SUBJECT } from '../table/layout.ts'
import type { Call, Enriched } from './call.ts'
import type { House } from './house.ts'
import { type Entry, ModelQueue, queueFull } from './model-queue.ts'

/** How far a full queue may grow beyond its size until those that give way have left it: a quarter, and so many at least. */
const OVERSHOOT = 0.25
const OVERSHOOT_MIN = 64

const queues = new WeakMap<House, Map<string, ModelQueue>>()

const queueOf = (house: House, model: Model): ModelQueue => {
  let by_model = queues.get(house)
  if (by_model === undefined) queues.set(house, (by_model = new Map()))
  let queue = by_model.get(model.name)
  if (queue === undefined) by_model.set(model.name, (queue = new ModelQueue(house, model)))
  // A queue that is never empty lasts longer than a configuration, and a call may be older than the newest.
  queue.update(house.catalogue.models.get(model.name) ?? model)
  return queue
}

/** True if calls for the model wait already, in any worker: a new one must not pass them. */
export const mustWait = (house: House, model: Model): boolean =>
  Atomics.load(house.table.i32, model.subject * 2 + SUBJECT.count) > 0

/**
 * Waits in the model's queue for a place. Refused at once if the queue is full or the call cannot make it in time; given
 * up when its time is over or its client leaves. Turns are fair between tenants, see `balance/fair-time.ts`.
 */
export const waitForPlace = (
  call: Enriched,
  house: House,
  model: Model,
  tryPlace: () => Target | NoTarget,
): Promise<Target | Failure> => {
  const { table, worker } = house
  const queue = queueOf(house, model)
  const since_tick_ms = house.tick()
  const due_tick_ms = Math.min(since_tick_ms + model.config.queue.wait_ms, call.deadline_tick_ms)
  const flow = flowOf(model.name, call.tenant.name)
  const cost = Math.max(1, Math.ceil(call.ask!.prompt_tokens + call.ask!.answer_tokens))
  const start = startTag(table, model.subject, flow, cost)
  const key = keyOf(start, priorityOf(call))
  const refuse = (failure: Failure): Promise<Failure> => {
    refund(table, flow, cost)
    return Promise.resolve(failure)
  }
  const expected_ms = queue.expectedMs(start)
  if (since_tick_ms + expected_ms > due_tick_ms) return refuse(tooLong(model, expected_ms))
  const { signal } = call.arrival.request
  if (signal.aborted) return refuse(new Failure('client_gone'))
  const claim: Claim = { subject: model.subject, limit: model.config.queue.size }
  if (!takeWaitingPlace(house, queue, claim, { start, flow, key })) return refuse(queueFull(model, expected_ms))

  const { promise, resolve } = Promise.withResolvers<Target | Failure>()
  let behind = 0
  const entry: Entry = {
    key,
    start,
    flow,
    cost,
    tryPlace,
    leave: (found) => {
      house.watch.remove(deadline)
      signal.removeEventListener('abort', gone)
      giveCounts(table, worker, [claim])
      note(call, house.tick() - since_tick_ms, behind)
      resolve(found)
    },
  }
  const giveUp = (why: Failure): void => {
    queue.drop(entry)
    entry.leave(why)
  }
  const deadline = {
    due_tick_ms,
    expire: () => giveUp(tooLate(queue.expectedMs(start))),
    cut: () => giveUp(new Failure('draining')),
  }
  const gone = (): void => {
    const open: Call = call
    open.client_gone = true
    giveUp(new Failure('client_gone'))
  }
  signal.addEventListener('abort', gone, { once: true })
  house.watch.add(deadline)
  behind = queue.push(entry)
  return promise
}

/**
 * One place in the queue. If it is full, the tenant gives way whose last call comes after most, by its start tag over all
 * workers, and that may be this one; of its calls the one whose turn comes last. What another worker has to turn away is
 * out within a moment; until then the queue holds some more.
 */
const takeWaitingPlace = (
  house: House,
  queue: ModelQueue,
  claim: Claim,
  call: Pick<Entry, 'start' | 'flow' | 'key'>,
): boolean => {
  const take = (limit: number) => takeCounts(house.table, house.worker, [{ ...claim, limit }]) < 0
  if (take(claim.limit)) return true
  const most = claim.limit + Math.max(OVERSHOOT_MIN, Math.ceil(claim.limit * OVERSHOOT))
  if (queue.isLast(call.start)) return queue.dropOf(call.flow, call.key) && take(most)
  return take(most) || (queue.dropAfter(call.start) && take(most))
}

/** The class that the caller asks for, no higher than its tenant and its key may have. Anything unknown is normal. */
const priorityOf = (call: Enriched): Priority => {
  const asked = PRIORITIES.indexOf((call.headers.get('x-weir-priority') ?? 'normal').trim().toLowerCase() as Priority)
  const { tenant, key } = call
  const of_tenant = PRIORITIES.indexOf(tenant.config.priority_max ?? 'normal')
  const most = Math.max(of_tenant, PRIORITIES.indexOf(key.priority_max ?? 'high'))
  return PRIORITIES[Math.max(asked < 0 ? PRIORITIES.indexOf('normal') : asked, most)]!
}

const note = (call: Call, queue_ms: number, behind: number): void => {
  call.queue_ms = queue_ms
  if (call.decision === undefined) return
  call.decision.queue_ms = queue_ms
  call.decision.queued_behind = behind
}

const seconds = (wait_ms: number): number => Math.max(1, Math.ceil(wait_ms / 1_000))

const tooLong = (model: Model, expected_ms: number): Failure =>
  new Failure('queue_timeout', {
    says: `A place for the model ${JSON.stringify(model.name)} is expected in ${seconds(expected_ms)} s, which is too late for this call.`,
    retry_after_s: seconds(expected_ms),
  })

const tooLate = (expected_ms: number): Failure => new Failure('queue_timeout', { retry_after_s: seconds(expected_ms) })
