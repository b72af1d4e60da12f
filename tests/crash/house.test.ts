import { expect, setDefaultTimeout, test } from 'bun:test'
import { findFaults } from '../../src/ledger/reconcile.ts'
import { openReader } from '../../src/ledger/database.ts'
import { startHouse, type TestHouse } from '../kit/house.ts'
import { eventually, rollFrom, tempFolder } from '../kit/wait.ts'
import { call, expectOneRowEach, houseConfig, marked, markedEngine, rowsByBody, startTraffic } from './traffic.ts'

setDefaultTimeout(60_000)

/** Each takes about a second. */
const ROUNDS = Number(process.env['CRASH_ROUNDS'] ?? 10)
const VICTIMS = ['worker', 'accountant', 'auditor', 'control', 'tree'] as const

test(
  `kill -9 under load, ${ROUNDS} times: every call that reached the engine has exactly one row, and the house serves`,
  async () => {
    const seed = Number(process.env['SEED'] ?? Math.floor(Math.random() * 2 ** 31))
    const roll = rollFrom(seed)
    await using engine = markedEngine()
    using folder = tempFolder('weir-crash')
    const settings = { config: houseConfig(engine.url), workers: 2, data: `${folder.path}/data` }
    let house: TestHouse = await startHouse(settings)
    const again = { ...settings, port: house.port, ops: house.ops }
    const key = await house.key('acme')
    // The engine hears our bytes with some spliced in; the marker is what both have in common.
    const sent = new Map<string, string>()
    const counts = { calls: 0, cut: 0, reached: 0 }
    try {
      for (let round = 0; round < ROUNDS; round++) {
        const victim = VICTIMS[round % VICTIMS.length]!
        const traffic = startTraffic(house, key, `s${seed}-r${round}`, 10, roll)
        await Bun.sleep(150 + roll(300))
        if (victim === 'tree') {
          await house.killTree()
          // On the same ports, at once.
          house = await startHouse(again)
        } else {
          const pids = house.pids(victim)
          expect(pids.length).toBeGreaterThan(0)
          process.kill(pids[roll(pids.length)]!, 'SIGKILL')
          await Bun.sleep(roll(200))
        }
        await traffic.stop()
        const probes: string[] = []
        await eventually(async () => {
          probes.push(marked(`s${seed}-r${round}-probe${probes.length}`, false))
          expect((await call(house.url, key, probes.at(-1)!)).status).toBe(200)
        }, 5_000)
        await eventually(async () => (await fetch(`${house.ops_url}/ready`)).status === 200, 5_000)

        for (const { body, status } of traffic.seen) {
          sent.set(JSON.parse(body).user, body)
          counts.calls += 1
          if (status === 0) counts.cut += 1
        }
        for (const probe of probes) sent.set(JSON.parse(probe).user, probe)
        const reached = new Set(engine.requests.map((request) => sent.get(request.json().user)!))
        counts.reached = reached.size
        await eventually(() => expectOneRowEach(house.data, reached), 8_000)
        expect([...rowsByBody(house.data).values()].filter((n) => n !== 1)).toEqual([])
      }
      const ledger = openReader(house.data, 'ledger')
      expect(findFaults(ledger)).toEqual([])
      ledger.sqlite.close()
      expect(counts.reached).toBeGreaterThan(ROUNDS * 20)
      const recovered = house.rows().filter((row) => row['ending'] === 'recovered').length
      expect(recovered).toBeGreaterThan(0)
      console.log(`${ROUNDS} kills: ${JSON.stringify({ ...counts, rows: house.rows().length, recovered, seed })}`)
      expect(await house.stop()).toBe(0)
    } catch (cause) {
      throw new Error(`seed ${seed}: ${cause instanceof Error ? cause.message : String(cause)}\n${house.log()}`, {
        cause,
      })
    } finally {
      await house[Symbol.asyncDispose]()
    }
  },
  { timeout: 20_000 + ROUNDS * 8_000 },
)
