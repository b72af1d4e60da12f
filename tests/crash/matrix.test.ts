import { expect, setDefaultTimeout, test } from 'bun:test'
import { fsck } from '../../src/audit/fsck.ts'
import { openReader } from '../../src/ledger/database.ts'
import { findFaults } from '../../src/ledger/reconcile.ts'
import { budgetName } from '../../src/quota/budgets.ts'
import { budgetSlot, budgetUsed } from '../../src/table/budget-slot.ts'
import { openTable } from '../../src/table/table.ts'
import { type CallRow, startHouse, type TestHouse } from '../kit/house.ts'
import { eventually, tempFolder } from '../kit/wait.ts'
import { bodyOf, roundOf, strikeAt, strikingEngine, type Trigger, usageOf, type Victim } from './matrix.ts'
import { call, type Seen } from './traffic.ts'

setDefaultTimeout(60_000)

/** Every named point of a call's way, every process. `CRASH_ROUNDS=500` runs the matrix over and over. */

const ROUNDS = Number(process.env['CRASH_ROUNDS'] ?? 8)
/** For long runs: no round begins later. */
const SECONDS = Number(process.env['CRASH_SECONDS'] ?? 3_600)

const config = (engine_url: string) => ({
  engines: [{ name: 'e1', url: engine_url, probe_ms: 0 }],
  models: [{ name: 'm1', targets: [{ engine: 'e1' }], price: { input: '2.00', output: '8.00' } }],
  tenants: [{ name: 'acme', budgets: [{ usd: '1000' }] }],
})

const killer = (house: TestHouse, victim: Victim): (() => void) => {
  const all = (pids: readonly number[]) => () => {
    for (const pid of pids)
      try {
        process.kill(pid, 'SIGKILL')
      } catch {
        // It has ended already.
      }
  }
  if (victim === 'supervisor') return all([house.pid])
  if (victim === 'tree') return all([house.pid, ...house.pids('')])
  return all(house.pids(victim))
}

/** Money in the shared table: what is used of the budget, which is all that was charged once nothing runs. */
const usedIn = (house: TestHouse): bigint => {
  const table = openTable(`${house.data}/run/shared.table`)
  return budgetUsed(table, budgetSlot(table, budgetName('tenant:acme', 'total', 'UTC'), 1)!, 1)!
}

const expectSettled = (house: TestHouse, reached: ReadonlySet<string>, seen: readonly Seen[]): true => {
  const rows = house.rows()
  const by_user = Map.groupBy(rows, (row: CallRow) => String(row['end_user']))
  const wrong = [...reached].filter((user) => by_user.get(user)?.length !== 1)
  if (wrong.length > 0) throw new Error(`${wrong.length} calls without exactly one row, among them ${wrong[0]}`)
  // Whoever saw a whole answer is charged for just what the engine counted.
  for (const { body, whole, status } of seen) {
    if (!whole || status !== 200) continue
    const { user } = JSON.parse(body) as { user: string }
    const { prompt, completion } = usageOf(user)
    expect(by_user.get(user)![0]).toMatchObject({
      ...{ ending: 'whole', prompt_tokens: prompt, completion_tokens: completion },
      charge_nanodollars: prompt * 2_000 + completion * 8_000,
    })
  }
  const charged = rows.reduce((sum, row) => sum + BigInt(row['charge_nanodollars'] ?? 0), 0n)
  expect(usedIn(house)).toBe(charged)
  return true
}

test(
  `killed at every point of a call’s way, ${ROUNDS} rounds: nothing lost, nothing twice, nothing held`,
  async () => {
    const trigger: Trigger = { point: undefined, strike: () => undefined }
    await using engine = strikingEngine(trigger)
    using folder = tempFolder('weir-matrix')
    const settings = { config: config(engine.url), workers: 2, data: `${folder.path}/data` }
    let house = await startHouse(settings)
    const again = { ...settings, port: house.port, ops: house.ops }
    const key = await house.key('acme')
    const begun_ms = performance.now()
    const done = new Map<string, number>()
    let round = 0
    try {
      for (; round < ROUNDS && performance.now() - begun_ms < SECONDS * 1_000; round++) {
        const [point, victim] = roundOf(round)
        const name = `r${round}-${point}-${victim}`
        const first = engine.requests.length
        const seen = await strikeAt(point, { house, key, name, trigger, kill: killer(house, victim) })
        if (victim === 'tree' || victim === 'supervisor') {
          await house[Symbol.asyncDispose]()
          house = await startHouse(again)
        }
        await eventually(async () => {
          const probe = await call(house.url, key, bodyOf(`${name}-probe${seen.length}`, false))
          seen.push(probe)
          expect(probe.status).toBe(200)
        }, 15_000)
        const reached = new Set(engine.requests.slice(first).map((request) => String(request.json().user)))
        await eventually(() => expectSettled(house, reached, seen), 15_000).catch((cause: Error) => {
          throw new Error(`${name}: ${cause.message}`, { cause })
        })
        done.set(`${point}, ${victim}`, (done.get(`${point}, ${victim}`) ?? 0) + 1)
      }
      const ledger = openReader(house.data, 'ledger')
      expect(findFaults(ledger)).toEqual([])
      ledger.sqlite.close()
      const rows = house.rows()
      const recovered = rows.filter((row) => row['ending'] === 'recovered').length
      expect(await house.stop()).toBe(0)
      expect(fsck(house.data, { keys: [], saved: undefined }).fault).toBeUndefined()
      console.log(`${round} kills, ${rows.length} rows, ${recovered} recovered: ${JSON.stringify([...done])}`)
    } catch (cause) {
      throw new Error(`round ${round}: ${cause instanceof Error ? cause.message : String(cause)}\n${house.log()}`, {
        cause,
      })
    } finally {
      await house[Symbol.asyncDispose]()
    }
  },
  { timeout: 30_000 + ROUNDS * 30_000 },
)
