import { afterAll, expect, setDefaultTimeout, test } from 'bun:test'
import { correctBudget, loadSpent, reapBudgets } from '../../src/table/budget-books.ts'
import {
  BUDGETS_HELD,
  BUDGETS_STALE,
  budgetSlot,
  budgetUsed,
  finishOpening,
  holdBudgets,
  openWindow,
  settleBudgets,
} from '../../src/table/budget-slot.ts'
import { reap } from '../../src/table/counts.ts'
import { BUDGET, WORKER } from '../../src/table/layout.ts'
import { createTable, type Table, workerI32 } from '../../src/table/table.ts'
import { forAll, rollFrom, tempFolder, eventually } from '../kit/wait.ts'
import { chargedIn, createLog, LOG } from './budget-log.ts'

setDefaultTimeout(60_000)

const CHILD = `${import.meta.dir}/budget-child.ts`
const children: Bun.Subprocess[] = []
afterAll(() => children.forEach((child) => child.kill('SIGKILL')))
/** Resolves when a child has begun. */
const begun = async (child: Bun.Subprocess<'ignore', 'pipe', 'inherit'>) => void (await child.stdout.getReader().read())

const opened = (path: string) => {
  const table = createTable(`${path}/table`, 256, 0)
  const log = createLog(`${path}/log`)
  const spawn = (worker: number, mode: string, seed: number) => {
    const child = Bun.spawn({
      cmd: [process.execPath, CHILD, `${path}/table`, `${path}/log`, `${worker}`, mode, `${seed}`],
      stdout: 'pipe',
      stderr: 'inherit',
    })
    children.push(child)
    return child
  }
  return { table, log, spawn }
}
const slotOf = (table: Table, name: string, window = 1) => budgetSlot(table, name, window)!
const used = (table: Table, name: string, window = 1) => budgetUsed(table, slotOf(table, name, window), window)
const claim = (table: Table, name: string, limit: bigint, window = 1) => ({
  slot: slotOf(table, name, window),
  window,
  limit,
})

test('a budget that pays for exactly N calls admits N from four processes, in 20 rounds', async () => {
  using folder = tempFolder()
  const { table, log, spawn } = opened(folder.path)
  const roll = rollFrom(11)
  const rounds = Array.from({ length: 20 }, () => ({ calls: 50 + roll(1_500), price: BigInt(1 + roll(2 ** 31)) }))
  log[LOG.rounds] = BigInt(rounds.length)
  rounds.forEach(({ calls, price }, round) => {
    log[LOG.price + round] = price
    log[LOG.limit + round] = BigInt(calls) * price + BigInt(roll(Number(price)))
  })
  const spenders = [0, 1, 2, 3].map((worker) => spawn(worker, 'exact', 20 + worker))
  expect(await Promise.all(spenders.map((child) => child.exited))).toEqual([0, 0, 0, 0])
  rounds.forEach(({ calls, price }, round) => {
    expect(Number(log[LOG.admitted + round])).toBe(calls)
    expect(used(table, `b${round}`)).toBe(BigInt(calls) * price)
  })
  expect(log[LOG.over]).toBe(0n)
})

test('processes killed at random instants leak nothing and are never over, in 40 rounds', async () => {
  using folder = tempFolder()
  const { table, log, spawn } = opened(folder.path)
  const roll = rollFrom(12)
  const names = ['b0', 'b1', 'b2', 'b3']
  const survivors = [1, 2].map((worker) => spawn(worker, 'calls', 30 + worker))
  await Promise.all(survivors.map(begun))
  log[LOG.rounds] = 40n
  let settled = 0n
  for (let round = 1; round <= 40; round++) {
    const victim = spawn(0, 'calls', 100 + round)
    await begun(victim)
    await Bun.sleep(roll(12))
    victim.kill('SIGKILL')
    await victim.exited
    reap(table, 0, [1, 2])
    settled += log[LOG.charged]!
    log[LOG.charged] = 0n
    await eventually(() => reapBudgets(table, 0, () => settled) !== undefined, 20_000)
    Atomics.store(log, LOG.pause, BigInt(round))
    await eventually(() => Atomics.load(log, LOG.paused) === BigInt(2 * round), 20_000)
    const charged = settled + log[LOG.charged + 1]! + log[LOG.charged + 2]!
    expect(names.map((name) => used(table, name))).toEqual([charged, charged, charged, charged])
    Atomics.store(log, LOG.resume, BigInt(round))
  }
  expect(await Promise.all(survivors.map((child) => child.exited))).toEqual([0, 0])
  expect(log[LOG.over]).toBe(0n)
  expect(Number(log[LOG.held])).toBeGreaterThan(1_000)
})

test('windows that roll under four processes, one of them killed and replaced, are never over, each for itself', async () => {
  using folder = tempFolder()
  const { table, log, spawn } = opened(folder.path)
  log[LOG.clock] = 1n
  log[LOG.rounds] = 101n
  const spenders = [0, 1, 2].map((worker) => spawn(worker, 'roll', 40 + worker))
  const dead = new Map<number, bigint>()
  let victim = spawn(3, 'roll', 43)
  await Promise.all([...spenders, victim].map(begun))
  const bury = async () => {
    victim.kill('SIGKILL')
    await victim.exited
    reap(table, 3, [0, 1, 2])
    for (let window = 1; window < 101; window++) {
      dead.set(window, (dead.get(window) ?? 0n) + log[chargedIn(window, 3)]!)
      log[chargedIn(window, 3)] = 0n
    }
    await eventually(() => reapBudgets(table, 3, (_slot, window) => dead.get(window)) !== undefined, 20_000)
  }
  const roll = rollFrom(13)
  for (let window = 2; window <= 101; window++) {
    await Bun.sleep(1 + roll(12))
    Atomics.store(log, LOG.clock, BigInt(window))
    if (window % 9 !== 0) continue
    await bury()
    victim = spawn(3, 'roll', 43 + window)
  }
  expect(await Promise.all(spenders.map((child) => child.exited))).toEqual([0, 0, 0])
  await bury()
  const charged = Array.from({ length: 100 }, (_, at) =>
    [0, 1, 2].reduce((sum, worker) => sum + log[chargedIn(at + 1, worker)]!, dead.get(at + 1)!),
  )
  expect(charged.filter((one) => one > 1_000n)).toEqual([])
  expect(charged.filter((one) => one > 0n).length).toBeGreaterThan(20)
  // A process that slept through a whole window may have left a little too much, never too little.
  for (const [name, window] of [
    ['b0', 99],
    ['b0', 100],
    ['b1', 99],
    ['b1', 100],
  ] as const) {
    expect(used(table, name, window)!).toBeGreaterThanOrEqual(charged[window - 1]!)
    expect(used(table, name, window)!).toBeLessThanOrEqual(1_000n)
    expect(correctBudget(table, slotOf(table, name, window), () => dead.get(window))).toBe(true)
    expect(used(table, name, window)!).toBe(charged[window - 1]!)
  }
})

test('all or none over four budgets, and the answer names the first that does not fit', () => {
  using folder = tempFolder()
  const { table } = opened(folder.path)
  const claims = [100n, 90n, 30n, 50n].map((limit, at) => claim(table, `b${at}`, limit))
  expect(holdBudgets(table, 0, claims, 30n)).toBe(BUDGETS_HELD)
  expect(holdBudgets(table, 1, claims, 1n)).toBe(2)
  expect([0, 1, 2, 3].map((at) => used(table, `b${at}`))).toEqual([30n, 30n, 30n, 30n])
  settleBudgets(table, 0, claims, 30n, 29n)
  expect(holdBudgets(table, 1, claims, 1n)).toBe(BUDGETS_HELD)
  settleBudgets(table, 1, claims, 1n, 45n)
  expect([0, 1, 2, 3].map((at) => used(table, `b${at}`))).toEqual([74n, 74n, 74n, 74n])
})

test('a budget of 0 blocks even what costs nothing; a spent one lets it pass', () => {
  using folder = tempFolder()
  const { table } = opened(folder.path)
  expect(holdBudgets(table, 0, [claim(table, 'none', 0n)], 0n)).toBe(0)
  expect(holdBudgets(table, 0, [claim(table, 'some', 5n)], 5n)).toBe(BUDGETS_HELD)
  expect(holdBudgets(table, 0, [claim(table, 'some', 5n)], 1n)).toBe(0)
  expect(holdBudgets(table, 0, [claim(table, 'some', 5n)], 0n)).toBe(BUDGETS_HELD)
  expect(holdBudgets(table, 0, [claim(table, 'some', 6n)], 1n)).toBe(BUDGETS_HELD)
})

test('whoever opened a window half and died is helped, and one that wakes late does no harm', () => {
  using folder = tempFolder()
  const { table } = opened(folder.path)
  const slot = slotOf(table, 'b')
  expect(holdBudgets(table, 0, [claim(table, 'b', 10n, 1)], 10n)).toBe(BUDGETS_HELD)
  Atomics.store(table.i32, slot * 2 + BUDGET.window, 7)
  expect(budgetUsed(table, slot, 3)).toBe(0n)
  expect(holdBudgets(table, 1, [claim(table, 'b', 10n, 3)], 4n)).toBe(BUDGETS_HELD)
  finishOpening(table, slot, 7)
  expect(used(table, 'b', 3)).toBe(4n)
  expect(holdBudgets(table, 1, [claim(table, 'b', 10n, 3)], 7n)).toBe(0)
  expect(holdBudgets(table, 1, [claim(table, 'b', 10n, 1)], 1n)).toBe(BUDGETS_STALE)
  expect(used(table, 'b', 3)).toBe(4n)
  Atomics.store(table.i32, slot * 2 + BUDGET.window, 11)
  expect(correctBudget(table, slot, () => 3n)).toBe(true)
  expect(used(table, 'b', 5)).toBe(3n)
})

test('a call that outlives the next window as well changes nothing when it settles', () => {
  using folder = tempFolder()
  const { table } = opened(folder.path)
  const late = [claim(table, 'b', 100n, 1)]
  expect(holdBudgets(table, 0, late, 60n)).toBe(BUDGETS_HELD)
  for (const worker of [0, 1]) expect(holdBudgets(table, worker, [claim(table, 'b', 100n, 3)], 50n)).toBe(BUDGETS_HELD)
  settleBudgets(table, 0, late, 60n, 10n)
  expect(used(table, 'b', 3)).toBe(100n)
})

test('a budget that the ledger does not know gives nothing back before its window ends', () => {
  using folder = tempFolder()
  const { table } = opened(folder.path)
  expect(holdBudgets(table, 0, [claim(table, 'b', 100n)], 60n)).toBe(BUDGETS_HELD)
  reap(table, 0, [])
  expect(reapBudgets(table, 0, () => undefined)).toBe(1)
  expect(used(table, 'b')).toBe(60n)
  expect(openWindow(table, slotOf(table, 'b'), 3)).toBe(true)
  expect(used(table, 'b', 3)).toBe(0n)
})

test('a stopped worker inside a bracket defers a correction', () => {
  using folder = tempFolder()
  const { table } = opened(folder.path)
  const slot = slotOf(table, 'b')
  openWindow(table, slot, 1)
  Atomics.add(table.i32, workerI32(3, WORKER.op_seq), 1)
  expect(correctBudget(table, slot, () => 1n)).toBe(false)
  reap(table, 3, [])
  expect(correctBudget(table, slot, () => 1n)).toBe(true)
})

/** The same in plain terms: what each worker was charged and holds, and what the ledger keeps of dead workers. */
type Plain = { window: number; settled: bigint; charged: bigint[]; flying: bigint[] }
const plainUsed = ({ settled, charged, flying }: Plain) =>
  [...charged, ...flying].reduce((sum, one) => sum + one, settled)

test('seeded: agrees with a plain model through holds, settlings, windows, credits and deaths', () => {
  using folder = tempFolder()
  const { table } = opened(folder.path)
  let run = 0
  let windows = 0
  forAll(60, (roll) => {
    const names = [0, 1, 2, 3].map((at) => `run${run}-${at}`)
    run = (run + 1) % 20
    const model = new Map<string, Plain>()
    const plain = (name: string, window: number): Plain => {
      const key = `${name}/${window & 1}`
      const found = model.get(key)
      if (found !== undefined && found.window === window) return found
      const fresh: Plain = { window, settled: 0n, charged: [0n, 0n, 0n], flying: [0n, 0n, 0n] }
      model.set(key, fresh)
      return fresh
    }
    let window = 4 + windows
    const calls: { names: string[]; worker: number; window: number; hold: bigint }[] = []
    const claims = (of: string[], at: number) => of.map((name) => claim(table, name, 1_000n, at))
    const posted = (slot: number, at: number) => {
      const name = names.find((name) => slotOf(table, name, at) === slot)
      return name === undefined ? undefined : plain(name, at).settled
    }
    for (let step = 0; step < 300; step++) {
      const worker = roll(3)
      const act = roll(20)
      if (act < 9) {
        const of = names.filter(() => roll(2) === 0)
        const hold = BigInt(roll(120))
        const wanted = of.findIndex((name) => plainUsed(plain(name, window)) + hold > 1_000n)
        const answer = holdBudgets(table, worker, claims(of, window), hold)
        if (answer !== wanted) throw new Error(`step ${step}: answered ${answer}, the model ${wanted}`)
        if (answer !== BUDGETS_HELD) continue
        for (const name of of) plain(name, window).flying[worker]! += hold
        calls.push({ names: of, worker, window, hold })
      } else if (act < 17 && calls.length > 0) {
        const call = calls.splice(roll(calls.length), 1)[0]!
        const charge = BigInt(roll(Number(call.hold) + 20))
        settleBudgets(table, call.worker, claims(call.names, call.window), call.hold, charge)
        for (const name of call.names) {
          const one = model.get(`${name}/${call.window & 1}`)!
          if (one.window !== call.window) continue
          one.flying[call.worker]! -= call.hold
          one.charged[call.worker]! += charge
        }
      } else if (act === 17) windows = window += 1 + roll(2)
      else if (act === 18) {
        const [name] = names as [string]
        const one = model.get(`${name}/${window & 1}`)
        if (one?.window !== window) continue
        one.settled -= BigInt(roll(50))
        if (!correctBudget(table, slotOf(table, name, window), posted)) throw new Error('no quiet moment')
      } else {
        reap(table, worker, [])
        for (const one of model.values()) {
          one.settled += one.charged[worker]!
          one.charged[worker] = one.flying[worker] = 0n
        }
        if (reapBudgets(table, worker, posted) === undefined) throw new Error('no quiet moment')
        for (let at = calls.length - 1; at >= 0; at--) if (calls[at]!.worker === worker) calls.splice(at, 1)
      }
      for (const [key, one] of model) {
        const name = key.split('/')[0]!
        const uses = used(table, name, one.window)
        if (uses !== plainUsed(one)) throw new Error(`step ${step}: ${key} uses ${uses}, the model ${plainUsed(one)}`)
      }
    }
  })
})

test('a cold start loads what was spent, and what the ledger says later counts', () => {
  using folder = tempFolder()
  const { table } = opened(folder.path)
  const slot = slotOf(table, 'b')
  expect(loadSpent(table, slot, 1, 40n)).toBe(true)
  expect(loadSpent(table, slot, 1, 40n)).toBe(true)
  expect(holdBudgets(table, 0, [claim(table, 'b', 50n)], 11n)).toBe(0)
  expect(holdBudgets(table, 0, [claim(table, 'b', 50n)], 10n)).toBe(BUDGETS_HELD)
  expect(used(table, 'b')).toBe(50n)
  expect(correctBudget(table, slot, () => 25n)).toBe(true)
  expect(used(table, 'b')).toBe(35n)
})
