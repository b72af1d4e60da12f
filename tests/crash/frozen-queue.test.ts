import { expect, setDefaultTimeout, test } from 'bun:test'
import { houseFiles } from '../../src/cluster/house-files.ts'
import { SUBJECT, WORKER } from '../../src/table/layout.ts'
import { findSubject, openTable, workerI32 } from '../../src/table/table.ts'
import { startHostileEngine } from '../kit/hostile-engine.ts'
import { startHouse } from '../kit/house.ts'
import { connectRaw, type RawResponse, requestBytes } from '../kit/raw-client.ts'
import { json, script, until, WHOLE } from '../kit/script.ts'
import { eventually, gate } from '../kit/wait.ts'

setDefaultTimeout(60_000)

/** Two workers whose calls wait for the same engine, and one of them stops in the middle (SIGSTOP): the other's go on. */

const CALLS = 800
const CAPACITY = 16
/** The kernel spreads connections by chance: hardly ever has one of two workers fewer. Fifty a second would be 266 in five. */
const OF_ONE_WORKER = CALLS / 2 - 100

/** The process that has the fewest places at the engine: those of the other become free. */
const workerWithFewest = (data: string): number => {
  const table = openTable(houseFiles(data).table)
  const engine = findSubject(table, 'engine', 'e')!
  const places = [0, 1].map((worker) => table.i32[engine * 2 + SUBJECT.count_columns + worker]!)
  expect(places[0]! + places[1]!).toBe(CAPACITY)
  return table.i32[workerI32(places[0]! < places[1]! ? 0 : 1, WORKER.pid)]!
}

test('a frozen worker with the first call of the queue holds the others up once, and goes on when it is woken', async () => {
  const open = gate()
  const engine = startHostileEngine({
    answers: [script(until(open.opened), json(200, WHOLE('ok', 3, 1)))],
  })
  await using house = await startHouse({
    workers: 2,
    config: {
      engines: [{ name: 'e', url: engine.url, capacity: CAPACITY, probe_ms: 0, scrape_ms: 0 }],
      models: [{ name: 'm', targets: [{ engine: 'e' }], free: true, queue: { size: 1_000, wait_ms: 60_000 } }],
      tenants: [{ name: 'acme' }],
    },
  })
  const key = await house.key('acme')
  const clients = await Promise.all(Array.from({ length: CALLS }, () => connectRaw(house.port)))
  const answers: RawResponse[] = []
  const calls = clients.map(async (client, nth) => {
    const body = { model: 'm', user: `u${nth}`, max_tokens: 16, messages: [{ role: 'user', content: 'hi' }] }
    await client.send(requestBytes('POST', '/v1/chat/completions', { authorization: `Bearer ${key}` }, body))
    const answer = await client.response({ within_ms: 40_000 })
    answers.push(answer)
  })
  const waitingCalls = async () => {
    const text = await (await fetch(`${house.ops_url}/metrics`)).text()
    return Number(/^weir_model_waiting\{[^}]*\} (\d+)$/m.exec(text)?.[1] ?? -1)
  }
  await eventually(async () => expect(await waitingCalls()).toBe(CALLS - CAPACITY), 10_000)

  await eventually(() => expect(engine.calls.now).toBe(CAPACITY), 10_000)

  const frozen = workerWithFewest(house.data)
  const stopped = performance.now()
  process.kill(frozen, 'SIGSTOP')
  open.open()
  await eventually(() => expect(answers.length).toBeGreaterThanOrEqual(OF_ONE_WORKER), 15_000)
  process.stderr.write(
    `  ${answers.length} answered beside a frozen worker in ${Math.round(performance.now() - stopped)} ms\n`,
  )
  // Nobody had to end it before: its calls are still there.
  expect(house.logged('worker_frozen')).toEqual([])
  process.kill(frozen, 'SIGCONT')
  await Promise.all(calls)
  expect(answers.filter(({ status }) => status !== 200)).toEqual([])
  // Each was asked for once, and never more at a time than the engine takes.
  const users = engine.requests.map((request) => request.json().user as string)
  expect([users.length, new Set(users).size]).toEqual([CALLS, CALLS])
  expect(engine.calls.max).toBe(CAPACITY)
  for (const client of clients) client.close()
  await engine.stop()
})
