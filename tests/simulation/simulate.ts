import { type Roll, rollFrom } from '../kit/wait.ts'
import { Failure } from '../../src/base/failure.ts'
import { liveBudgets } from '../../src/quota/live-budget.ts'
import { takeHold, settleHold } from '../../src/pipeline/hold.ts'
import { recordIntent } from '../../src/pipeline/intent.ts'
import { endCall } from '../../src/pipeline/settle.ts'
import { settleBudgets } from '../../src/table/budget-slot.ts'
import type { Routed } from '../../src/pipeline/call.ts'
import { chargeNanodollars } from '../../src/pipeline/charge.ts'
import type { EndingKind } from '../../src/journal/record.ts'
import { priceAt } from '../../src/balance/catalogue.ts'
import { Books } from './invariants.ts'
import { Machine, type SimWorker } from './machine.ts'
import type { Plant } from './plant.ts'
import { KILLED, simCall } from './sim-house.ts'

export type Simulated = {
  readonly calls: number
  readonly refused: number
  readonly worker_kills: number
  readonly restarts: number
  readonly power_losses: number
  readonly acked: number
  /** Calls that were refused, by the reason. */
  readonly reasons: Readonly<Record<string, number>>
}

const HOUR_MS = 3_600_000
const turn = () => new Promise((done) => setImmediate(done))

/**
 * One life of a house: a hundred and fifty steps that the seed decides, each checked; then quiescence, and the books. Throws at
 * the first invariant that does not hold.
 */
export const simulate = async (seed: number, plant?: Plant, steps = 150): Promise<Simulated> => {
  const roll = rollFrom(seed)
  const life = new Life(roll, plant)
  try {
    await life.begin()
    for (let step = 0; step < steps; step++) {
      const what = await life.step()
      life.check(`step ${step}, ${what}`)
    }
    await life.end()
    return life.stats
  } finally {
    life.machine.close()
    await turn()
  }
}

class Life {
  readonly machine: Machine
  readonly books: Books
  readonly roll: Roll
  readonly stats = {
    calls: 0,
    refused: 0,
    worker_kills: 0,
    restarts: 0,
    power_losses: 0,
    acked: 0,
    reasons: {} as Record<string, number>,
  }
  readonly #plant: Plant | undefined
  /** Killed, and the supervisor does not know yet. */
  readonly #unburied: SimWorker[] = []

  constructor(roll: Roll, plant: Plant | undefined) {
    this.roll = roll
    this.#plant = plant
    this.machine = new Machine(plant === 'ack_early' || plant === 'disk_lies' || roll(2) === 0, plant)
    this.books = new Books(this.machine)
  }

  async begin(): Promise<void> {
    this.machine.startAccountant()
    this.machine.ready()
    for (let worker = 0; worker < 3; worker++) await this.machine.startWorker()
  }

  check(when: string): void {
    const fault = this.books.fault()
    if (fault !== undefined) throw new Error(`${when}: ${fault}`)
  }

  async step(): Promise<string> {
    const { roll } = this
    const at = roll(100)
    for (const [share, name, act] of this.#acts) if (at < share) return (await act.call(this), name)
    return 'nothing'
  }

  readonly #acts: readonly (readonly [below: number, name: string, act: () => Promise<void> | void])[] = [
    [32, 'call', this.#call],
    [54, 'end', this.#end],
    [60, 'progress', this.#progress],
    [72, 'account', this.#account],
    [82, 'disk', this.#disk],
    [89, 'clock', this.#clock],
    [92, 'keeper', () => this.#keep()],
    [96, 'supervise', this.#supervise],
    [98, 'kill', this.#kill],
    [99, 'restart', this.#restart],
    [100, 'refund', this.#refund],
  ]

  #alive(): SimWorker[] {
    return this.machine.workers.filter(({ alive }) => alive)
  }

  /** Does something in a worker, which now and then is killed on the way; true if it was. */
  #within(worker: SimWorker, act: () => void): boolean {
    const { roll } = this
    worker.fuse.left = roll(25) === 0 ? roll(8) : Number.POSITIVE_INFINITY
    try {
      act()
      worker.fuse.left = Number.POSITIVE_INFINITY
      return false
    } catch (cause) {
      if (cause !== KILLED) throw cause
      this.#killed(worker)
      return true
    }
  }

  #killed(worker: SimWorker): void {
    this.machine.killWorker(worker)
    this.#unburied.push(worker)
    this.stats.worker_kills++
  }

  #call(): void {
    const { roll, machine, books } = this
    const alive = this.#alive()
    if (alive.length === 0) return
    const worker = alive[roll(alive.length)]!
    if (!worker.journal.has_room()) return
    const tenant = `t${roll(2)}`
    const user = roll(3) === 0 ? '' : `u${roll(3)}`
    const call = simCall(`call_${this.stats.calls++}`, worker.house, machine.now_ms, tenant, user, 100 + roll(1_400))
    const of_user = user === '' ? [] : liveBudgets(`end_user:${tenant}/${user}`, call.tenant.config.end_user!.budgets)
    const budgets = [...call.model!.budgets, ...call.tenant.budgets, ...of_user].map(({ budget }) => budget)
    const known = books.begin(call, worker, budgets)
    let refused: Failure | undefined
    const killed = this.#within(worker, () => {
      refused = takeHold(call as never, worker.house)
      if (refused === undefined && this.#plant === 'hold_nothing') {
        const held = call.held!
        for (const { budgets, nanodollars } of [held, ...held.of_models])
          settleBudgets(machine.table, worker.index, budgets, nanodollars, 0n)
        const of_models = held.of_models.map((one) => ({ ...one, nanodollars: 0n }))
        ;(call as { held: unknown }).held = { ...held, of_models, nanodollars: 0n }
      }
      if (refused === undefined) refused = recordIntent(call, worker.house)
      if (refused === undefined) return
      if (call.open) endCall(call, worker.house, { ending: 'refused', status: refused.status })
    })
    books.begun(known, refused, killed)
    if (refused === undefined) return
    this.stats.refused++
    const { reasons } = this.stats
    reasons[refused.code] = (reasons[refused.code] ?? 0) + 1
  }

  #end(): void {
    const open = this.books.open()
    if (open.length === 0) return
    const { roll, machine, books } = this
    const known = open[roll(open.length)]!
    const { call, worker } = known
    const kind = (['whole', 'whole', 'whole', 'cut_by_client', 'cut_by_engine', 'refused'] as const)[roll(6)]!
    const usage = usageOf(roll, call, kind)
    const tokens = usage.prompt_tokens + usage.completion_tokens
    const price = priceAt(call.model!, call.received_at_ms)!
    known.charge = tokens === 0 && kind !== 'whole' ? 0n : chargeNanodollars(price, usage, call.images)
    known.kind = kind
    const { held } = call
    if (this.#plant === 'skip_settle') call.held = undefined
    let position: number | undefined
    const killed = this.#within(worker, () => {
      position = endCall(call, worker.house, { ending: kind, status: 200, usage })
      if (this.#plant !== 'double_settle' || held === undefined) return
      call.held = held
      settleHold(call, worker.house, known.charge, tokens)
    })
    books.ended(known, killed, tokens)
    if (killed || position === undefined) return
    const ack = () => {
      if (!worker.alive || known.acked) return
      known.acked = true
      this.stats.acked++
    }
    if (!machine.strict) return
    if (this.#plant === 'ack_early') return ack()
    void worker.journal.synced(position)?.then((failed) => {
      if (failed === undefined) ack()
    })
  }

  #progress(): void {
    const open = this.books.open()
    if (open.length === 0) return
    const { roll, machine } = this
    const { call, worker } = open[roll(open.length)]!
    if (!worker.journal.has_room()) return
    const base = { call_id: call.id, at_ms: machine.now_ms }
    const completion_tokens = 1 + roll(call.body.tokens_max! - 1)
    this.#within(worker, () => {
      if (roll(3) > 0)
        worker.house.journal.append({
          kind: 'progress',
          ...base,
          prompt_tokens: 20,
          completion_tokens,
          usage_source: 'estimated',
          engine: '',
          engine_model: '',
          serves: '',
        })
      // Long ones make segments end.
      else
        worker.house.journal.append({
          kind: 'attempt',
          ...base,
          engine: 'e'.repeat(1 + roll(4_000)),
          engine_model: 'm'.repeat(1 + roll(4_000)),
          because: 'x',
          serves: '',
        })
    })
  }

  #account(): void {
    const { roll, machine } = this
    const dies = roll(8) === 0 ? (['before_commit', 'after_commit'] as const)[roll(2)] : undefined
    machine.account(1 + roll(40), dies, roll(6) === 0)
    if (machine.accountant === undefined) machine.startAccountant()
  }

  async #disk(): Promise<void> {
    const { roll, machine } = this
    const { disk } = machine
    for (const worker of this.#alive()) {
      if (roll(3) !== 0) continue
      // A flush promises what strict mode promises; for standard it is the one promise there is.
      const ended = this.books.endedOf(worker)
      void worker.journal.flush().then((failed) => {
        if (failed === undefined && worker.alive) for (const known of ended) known.acked = true
      })
    }
    await turn()
    disk.full = roll(12) === 0
    while (disk.syncs.length > 0 && roll(4) > 0) {
      disk.answer(roll(disk.syncs.length), roll(8) > 0)
      await turn()
    }
  }

  #clock(): void {
    const { roll, machine } = this
    const by_ms = [1 + roll(50), roll(20_000), roll(2 * HOUR_MS), roll(30 * HOUR_MS), -roll(HOUR_MS)][roll(5)]!
    this.#keep()
    this.books.clockMoves(by_ms)
    machine.now_ms += by_ms
  }

  #keep(): void {
    const { accountant } = this.machine
    if (accountant === undefined) return
    accountant.keeper.turn()
    this.books.kept()
  }

  async #supervise(): Promise<void> {
    const { machine } = this
    for (const worker of this.#unburied.splice(0)) machine.bury(worker)
    if (this.#alive().length < 3) await machine.startWorker()
  }

  #kill(): void {
    const alive = this.#alive()
    if (alive.length > 1) this.#killed(alive[this.roll(alive.length)]!)
  }

  async #restart(): Promise<void> {
    const { roll, machine, books } = this
    const power = roll(2) === 0
    this.stats[power ? 'power_losses' : 'restarts']++
    await turn()
    this.#unburied.length = 0
    await machine.restart(power, roll)
    books.restarted(power)
    if (roll(2) === 0) {
      // A clock that was set right after the start.
      const by_ms = roll(2) === 0 ? -roll(HOUR_MS) : roll(HOUR_MS)
      books.clockMoves(by_ms)
      machine.now_ms += by_ms
    }
    for (let worker = 0; worker < 3; worker++) await machine.startWorker()
  }

  #refund(): void {
    const { roll, machine, books } = this
    const tenant = `t${roll(2)}`
    const most = books.refundable(tenant)
    if (most <= 0n) return
    const amount = 1n + BigInt(roll(Number(most)))
    const entry = { call_id: null, at_ms: machine.now_ms, kind: 'refund', reason: 'r' } as const
    machine.poster.transfer({ ...entry, debit: 'revenue', credit: `tenant:${tenant}`, amount_nanodollars: amount })
    machine.accountant?.keeper.refunded()
    books.refund(tenant, amount)
    this.#keep()
  }

  /** All calls end, all is synced, posted and given back: then the table says what the ledger says. */
  async end(): Promise<void> {
    const { machine, books } = this
    machine.disk.full = false
    while (books.open().length > 0) this.#end()
    for (const worker of this.#unburied.splice(0)) machine.bury(worker)
    await turn()
    while (machine.disk.syncs.length > 0) {
      machine.disk.answer(0, true)
      await turn()
    }
    machine.drain()
    this.#keep()
    this.check('at the end')
    const fault = books.endFault()
    if (fault !== undefined) throw new Error(`at the end: ${fault}`)
    // And once more from nothing.
    await machine.restart(false, this.roll)
    books.restarted(false)
    this.check('after a cold start')
  }
}

const usageOf = (roll: Roll, call: Routed, kind: EndingKind) => {
  const nothing = kind === 'refused' || roll(6) === 0
  const prompt_tokens = nothing ? 0 : 1 + roll(300)
  const completion_tokens = nothing ? 0 : roll(call.body.tokens_max! + 1)
  return {
    prompt_tokens,
    cached_tokens: roll(prompt_tokens + 1),
    completion_tokens,
    reasoning_tokens: roll(completion_tokens + 1),
    audio_input_tokens: 0,
    audio_output_tokens: 0,
  }
}
