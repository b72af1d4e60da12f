import { FLOWS_AT, FLOWS_BYTES, MODEL } from '../table/layout.ts'
import type { Subject, Table } from '../table/table.ts'
import { hashOf, mix } from './rendezvous.ts'

/**
 * Start-time fair queueing (Goyal, Vin and Cheng 1996) whose state all workers share, so that turns are fair over the whole
 * machine and not only within a worker. A model's queue has a virtual time, in tokens. A call's start tag is that time, or
 * the finish tag of its tenant's call before it if that is later; its own finish tag is so many tokens after. Who has the
 * smallest tag is next, and the virtual time becomes the tag of who was served. A tenant that sends much so waits
 * behind itself only. Finish tags stand in 8,192 cells by hash; tenants that share a cell share their turn.
 */

const FLOWS = FLOWS_BYTES / 8

/** The cell of a tenant in a model's queue. */
export const flowOf = (model: string, tenant: string): number =>
  FLOWS_AT / 8 + (mix(hashOf(model), hashOf(tenant)) % FLOWS)

/** The virtual time of a model's queue. */
export const queueTime = (table: Table, model: Subject): number =>
  Number(Atomics.load(table.i64, model + MODEL.queue_time))

/** The start tag of a call that comes now; its tenant pays for it. */
export const startTag = (table: Table, model: Subject, flow: number, cost: number): number => {
  const time = Atomics.load(table.i64, model + MODEL.queue_time)
  for (let finish = Atomics.load(table.i64, flow); ;) {
    const start = finish > time ? finish : time
    const was = Atomics.compareExchange(table.i64, flow, finish, start + BigInt(cost))
    if (was === finish) return Number(start)
    finish = was
  }
}

/** A call that gave up before its turn: its tenant gets back what it paid. */
export const refund = (table: Table, flow: number, cost: number): void => {
  Atomics.sub(table.i64, flow, BigInt(cost))
}

/** A call with this start tag is served: the virtual time moves on to it, and never back. */
export const serve = (table: Table, model: Subject, start: number): void => {
  const cell = model + MODEL.queue_time
  const next = BigInt(start)
  for (let seen = Atomics.load(table.i64, cell); seen < next;) {
    const was = Atomics.compareExchange(table.i64, cell, seen, next)
    if (was === seen) return
    seen = was
  }
}

/** Says which key waits first in a worker, or with a subject of their own, last; 0 says that none does. */
export const showHead = (table: Table, subject: Subject, worker: number, key: number): void => {
  Atomics.store(table.i64, subject + MODEL.heads + worker, BigInt(key))
}

/** What {@link showHead} said last. */
export const headOf = (table: Table, subject: Subject, worker: number): number => {
  const cell = (subject + MODEL.heads + worker) * 2
  // Most workers have none, and to make a BigInt takes longer than to see that.
  if (table.i32[cell] === 0 && table.i32[cell + 1] === 0) return 0
  return Number(Atomics.load(table.i64, cell / 2))
}
