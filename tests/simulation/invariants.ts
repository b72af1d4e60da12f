import { Failure } from '../../src/base/failure.ts'
import type { EndingKind } from '../../src/journal/record.ts'
import { findFaults } from '../../src/ledger/reconcile.ts'
import type { Routed } from '../../src/pipeline/call.ts'
import type { Budget } from '../../src/quota/budgets.ts'
import { budgetSlot, budgetUsed } from '../../src/table/budget-slot.ts'
import { BUDGET, SUBJECT, WORKER } from '../../src/table/layout.ts'
import { subjectOf, workerI32 } from '../../src/table/table.ts'
import type { Machine, SimWorker } from './machine.ts'
import { LIMITS } from './sim-house.ts'

/** A call as an observer who sees everything knows it. */
export type Known = {
  readonly call: Routed
  readonly worker: SimWorker
  readonly budgets: readonly Budget[]
  /** Of each budget its window. */
  readonly windows: readonly number[]
  readonly limits: readonly bigint[]
  hold: bigint
  charge: bigint
  kind: EndingKind | undefined
  tokens_held: number
  /** It holds, or was charged in the table. */
  counts: boolean
  settled: boolean
  /** Its ending may be in the journal, as it was written before the process died. */
  ended: boolean
  /** Told that it survives the loss of power. */
  acked: boolean
  over: boolean
  /** The table has of it what the ledger has. */
  from_ledger: boolean
}

type Taken = { readonly at_ms: number; readonly amount: number }

/** Keeps the truth in plain terms beside the machine, and compares. */
export class Books {
  readonly #machine: Machine
  readonly #calls: Known[] = []
  readonly #refunds: { tenant: string; at_ms: number; amount: bigint; seen: boolean }[] = []
  readonly #requests: Taken[] = []
  readonly #tokens = new Map<string, Taken[]>()
  readonly #budgets = new Map<string, Budget>()
  /** Time that has gone by forwards: a clock that is set back gives nothing back. */
  #elapsed_ms = 0
  #rate_fault: string | undefined

  constructor(machine: Machine) {
    this.#machine = machine
  }

  open(): Known[] {
    return this.#calls.filter(({ call, worker, over }) => worker.alive && call.intended && call.open && !over)
  }

  endedOf(worker: SimWorker): Known[] {
    return this.#calls.filter((known) => known.worker === worker && known.settled && known.kind !== undefined)
  }

  begin(call: Routed, worker: SimWorker, budgets: readonly Budget[]): Known {
    for (const budget of budgets) this.#budgets.set(budget.name, budget)
    const known: Known = {
      ...{ call, worker, budgets, windows: [], limits: [], hold: 0n, charge: 0n, kind: undefined, tokens_held: 0 },
      ...{ counts: false, settled: false, ended: false, acked: false, over: false, from_ledger: false },
    }
    this.#calls.push(known)
    return known
  }

  begun(known: Known, refused: Failure | undefined, killed: boolean): void {
    const { call } = known
    const says = refused?.detail.says ?? ''
    if (refused?.code !== 'concurrency_exceeded' && !says.includes('requests a minute')) this.#took(this.#requests, 1)
    this.#checkRate(this.#requests, LIMITS.requests_per_minute, 'requests')
    const { held } = call
    if (held !== undefined) {
      const claims = [...held.of_models.flatMap(({ budgets }) => budgets), ...held.budgets]
      Object.assign(known, {
        windows: claims.map(({ window }) => window),
        limits: claims.map(({ limit }) => limit),
        hold: held.nanodollars,
        tokens_held: held.tokens,
        counts: true,
      })
    }
    if (refused !== undefined && !killed) known.over = true
  }

  ended(known: Known, killed: boolean, tokens: number): void {
    known.ended = true
    known.settled = known.call.held === undefined
    if (killed) return
    known.over = true
    known.tokens_held = 0
    const { name } = known.call.tenant
    if (!this.#tokens.has(name)) this.#tokens.set(name, [])
    this.#took(this.#tokens.get(name)!, tokens)
    this.#checkRate(this.#tokens.get(name)!, LIMITS.tokens_per_minute, `tokens of ${name}`)
  }

  clockMoves(by_ms: number): void {
    if (by_ms > 0) this.#elapsed_ms += by_ms
  }

  #took(list: Taken[], amount: number): void {
    list.push({ at_ms: this.#elapsed_ms, amount })
  }

  /** In any span of t at most n + t·n/60 s. */
  #checkRate(list: readonly Taken[], per_minute: number, what: string): void {
    const end = list.at(-1)
    if (end === undefined) return
    let sum = 0
    for (let at = list.length - 1; at >= 0; at--) {
      const { at_ms, amount } = list[at]!
      sum += amount
      const span_ms = end.at_ms - at_ms
      if (sum * 60_000 > (60_000 + span_ms) * per_minute)
        this.#rate_fault ??= `${sum} ${what} in ${span_ms} ms, the limit is ${per_minute} a minute`
    }
  }

  /** A keeper has looked: dead workers that are owed nothing have left, refunds are seen. */
  kept(): void {
    const { i32 } = this.#machine.table
    for (const known of this.#calls)
      if (
        known.worker.reaped &&
        (Atomics.load(i32, workerI32(known.worker.index, WORKER.budgets_owed)) === 0 ||
          Atomics.load(i32, workerI32(known.worker.index, WORKER.incarnation)) !== known.worker.incarnation)
      )
        this.#leave(known)
    for (const refund of this.#refunds) refund.seen = true
  }

  /** From here on the ledger alone speaks for a call. What was promised of it must stand there. */
  #leave(known: Known, promised = true): void {
    if (known.from_ledger) return
    known.from_ledger = true
    known.over = true
    known.tokens_held = 0
    if (!promised) return
    const { call, kind, charge } = known
    const row = this.#machine.posted.get(call.id)
    if (call.intended && row === undefined) this.#lost ??= `${call.id} is lost`
    if (!known.settled || kind === undefined || !known.counts) return
    if (row?.ending !== kind || row.charge !== charge)
      this.#lost ??= `${call.id} ended ${kind} for ${charge}, the ledger has ${row?.ending} for ${row?.charge}`
  }

  /** All processes died. If the power failed, only what was acknowledged is promised. */
  restarted(power: boolean): void {
    for (const known of this.#calls) this.#leave(known, !power || known.acked)
    for (const refund of this.#refunds) refund.seen = true
    // What is used of a limit outlives a house, but not a power failure.
    if (!power) return
    this.#requests.length = 0
    this.#tokens.clear()
  }
  #lost: string | undefined

  refund(tenant: string, amount: bigint): void {
    this.#refunds.push({ tenant, at_ms: this.#machine.now_ms, amount, seen: false })
  }

  /** What the ledger has of a tenant today that was not refunded. */
  refundable(tenant: string): bigint {
    const daily = [...this.#budgets.values()].find(({ name }) => name.startsWith(`tenant:${tenant}\nday`))
    if (daily === undefined) return 0n
    const { index } = daily.windowAt(this.#machine.now_ms)
    let left = 0n
    for (const { call, budgets, windows } of this.#calls)
      if (budgets.some(({ name }, at) => name === daily.name && windows[at] === index))
        left += this.#machine.posted.get(call.id)?.charge ?? 0n
    for (const one of this.#refunds)
      if (one.tenant === tenant && daily.windowAt(one.at_ms).index === index) left -= one.amount
    return left
  }

  /** The first invariant that does not hold now. */
  fault(): string | undefined {
    return this.#rate_fault ?? this.#lost ?? this.#budgetFault() ?? this.#countFault() ?? this.#complaint()
  }

  #complaint(): string | undefined {
    return this.#machine.complaints[0]
  }

  #amount(known: Known): bigint {
    if (known.from_ledger) return this.#machine.posted.get(known.call.id)?.charge ?? 0n
    return known.settled ? known.charge : known.hold
  }

  /** Spent + held ≤ budget in every window, and the table says exactly that of those it has. */
  #budgetFault(): string | undefined {
    const { table } = this.#machine
    const sums = new Map<string, Map<number, { sum: bigint; limit: bigint }>>()
    for (const known of this.#calls) {
      if (!known.counts) continue
      const amount = this.#amount(known)
      known.budgets.forEach(({ name }, at) => {
        if (!sums.has(name)) sums.set(name, new Map())
        const windows = sums.get(name)!
        const window = known.windows[at]!
        const before = windows.get(window)?.sum ?? 0n
        windows.set(window, { sum: before + amount, limit: known.limits[at]! })
      })
    }
    for (const [name, windows] of sums) {
      const budget = this.#budgets.get(name)!
      for (const { tenant, at_ms, amount, seen } of this.#refunds) {
        const refunded = windows.get(budget.windowAt(at_ms).index)
        if (seen && refunded !== undefined && name.startsWith(`tenant:${tenant}\n`)) refunded.sum -= amount
      }
      for (const [window, { sum, limit }] of windows) {
        if (sum > limit) return `${JSON.stringify(name)} has ${sum} of ${limit} in window ${window}`
        const slot = budgetSlot(table, name, window)!
        if (Atomics.load(table.i32, slot * 2 + BUDGET.window) !== window * 2) continue
        const used = budgetUsed(table, slot, window)!
        if (used !== sum) return `${JSON.stringify(name)} uses ${used} in window ${window}, it should be ${sum}`
      }
    }
    return undefined
  }

  #countFault(): string | undefined {
    const { table } = this.#machine
    const model = subjectOf(table, 'model_limits', 'm0')!
    const at_once = this.#calls.filter(
      ({ call, worker }) => !worker.reaped && call.claims.some(({ subject }) => subject === model),
    )
    const here = at_once.filter(({ worker }) => this.#machine.workers.includes(worker)).length
    if (here > LIMITS.concurrent) return `${here} calls at once, the limit is ${LIMITS.concurrent}`
    const count = Atomics.load(table.i32, model * 2 + SUBJECT.count)
    return count === here ? undefined : `${here} calls at once, the table says ${count}`
  }

  /** What must hold when nothing runs any more. */
  endFault(): string | undefined {
    const { store, table, posted } = this.#machine
    const faults = findFaults(store)
    if (faults.length > 0) return faults[0]
    for (const { call, kind, charge, settled } of this.#calls) {
      const row = posted.get(call.id)
      if (settled && kind !== undefined && row !== undefined && row.ending === kind && row.charge !== charge)
        return `${call.id} cost ${charge}, the ledger has ${row.charge}`
    }
    for (const name of ['t0', 't1']) {
      const held = Atomics.load(table.i64, subjectOf(table, 'tenant', name)! + SUBJECT.amount)
      if (held !== 0n) return `${held} tokens of ${name} are held by nobody`
    }
    const open = store.sqlite.prepare<{ n: bigint }, []>('SELECT count(*) AS n FROM open_calls').get()!.n
    return open === 0n ? undefined : `${open} calls are open for ever`
  }
}
