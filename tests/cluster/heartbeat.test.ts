import { expect, setDefaultTimeout, test } from 'bun:test'
import { startHouse } from '../kit/house.ts'
import { startHostileEngine } from '../kit/hostile-engine.ts'
import { json, never, WHOLE } from '../kit/script.ts'
import { eventually } from '../kit/wait.ts'
import { call, houseConfig, marked, markedEngine } from '../crash/traffic.ts'

setDefaultTimeout(60_000)

test('a frozen worker is replaced within its limit; its share of counts goes back; the others serve', async () => {
  await using engine = startHostileEngine({
    answers: (request) => (request.text().includes('hold') ? [never] : json(200, WHOLE('hi', 5, 1))),
  })
  await using house = await startHouse({ config: houseConfig(engine.url), workers: 2 })
  const key = await house.key('acme', { concurrent: 6 })
  const roomy = await house.key('acme')
  // Six calls that never end take all there is; some are held by each worker.
  const held = Array.from({ length: 6 }, (_, n) => call(house.url, key, marked(`hold-${n}`, true)))
  await eventually(() => engine.calls.now === 6)
  expect((await call(house.url, key, marked('one-more', false))).status).toBe(429)

  const [frozen, other] = house.pids('worker')
  const share = await inFlight(house.ops_url)
  const frozen_at = performance.now()
  process.kill(frozen!, 'SIGSTOP')
  // Meanwhile about every second new connection meets the other worker, and is served as ever.
  const meanwhile = await Promise.all(
    Array.from({ length: 20 }, (_, n) => quick(house.url, roomy, marked(`meanwhile-${n}`, false))),
  )
  expect(meanwhile.filter((status) => status === 200).length).toBeGreaterThan(0)
  expect(meanwhile.filter((status) => status !== 200 && status !== 0)).toEqual([])
  expect(house.logged('worker_frozen')).toEqual([])
  await eventually(() => house.logged('worker_frozen').length === 1, 8_000)
  const seen_ms = performance.now() - frozen_at
  expect(house.logged('worker_frozen')[0]!['pid']).toBe(frozen!)
  const died = await eventually(() => {
    const line = house.logged('process_died')[0]
    if (line === undefined) throw new Error('no process_died')
    return line
  })
  expect(died['given_back']).toBeGreaterThanOrEqual(0)
  // The key's, the tenant's and the engine's place of each of its calls.
  expect(died['given_back']).toBe(3 * share[died['index']]!)
  await eventually(() => house.pids('worker').length === 2)
  expect(house.pids('worker')).toContain(other!)
  if (share[died['index']]! > 0) {
    const answer = await eventually(async () => {
      const { status } = await call(house.url, key, marked(`after-${performance.now()}`, false))
      expect(status).toBe(200)
      return status
    }, 2_000)
    expect(answer).toBe(200)
  }
  console.log(`frozen worker replaced after ${Math.round(seen_ms)} ms, shares ${JSON.stringify(share)}`)
  house.kill('SIGTERM')
  await eventually(() => house.logged('draining').length === 1)
  house.kill('SIGTERM')
  expect(await house.exited).toBe(1)
  await Promise.all(held)
})

test('what a killed worker held is free within 2 s, again and again', async () => {
  await using engine = startHostileEngine({
    answers: (request) => (request.text().includes('hold') ? [never] : json(200, WHOLE('hi', 5, 1))),
  })
  await using house = await startHouse({ config: houseConfig(engine.url), workers: 1 })
  const key = await house.key('acme', { concurrent: 4 })
  const times: number[] = []
  for (let round = 0; round < 3; round++) {
    const held = Array.from({ length: 4 }, (_, n) => call(house.url, key, marked(`hold-${round}-${n}`, true)))
    await eventually(() => engine.calls.now === 4)
    expect((await call(house.url, key, marked(`more-${round}`, false))).status).toBe(429)
    const killed_at = performance.now()
    process.kill(house.pids('worker')[0]!, 'SIGKILL')
    await Promise.all(held)
    let n = 0
    await eventually(async () => {
      // All four places, not just one.
      const four = Array.from({ length: 4 }, () => call(house.url, key, marked(`free-${round}-${n++}`, false)))
      expect((await Promise.all(four)).map(({ status }) => status)).toEqual([200, 200, 200, 200])
    }, 2_000)
    times.push(Math.round(performance.now() - killed_at))
  }
  console.log(`concurrency back after ${times.join(', ')} ms`)
  expect(await house.stop()).toBe(0)
})

test('two workers killed at once: both shares go back', async () => {
  await using engine = startHostileEngine({
    answers: (request) => (request.text().includes('hold') ? [never] : json(200, WHOLE('hi', 5, 1))),
  })
  await using house = await startHouse({ config: houseConfig(engine.url), workers: 3 })
  const key = await house.key('acme', { concurrent: 9 })
  const held = Array.from({ length: 9 }, (_, n) => call(house.url, key, marked(`hold-${n}`, true)))
  await eventually(() => engine.calls.now === 9)
  for (const pid of house.pids('worker')) process.kill(pid, 'SIGKILL')
  await Promise.all(held)
  let n = 0
  await eventually(async () => {
    const all = Array.from({ length: 9 }, () => call(house.url, key, marked(`free-${n++}`, false)))
    expect((await Promise.all(all)).filter(({ status }) => status === 200).length).toBe(9)
  }, 4_000)
  const died = house.logged('process_died')
  expect(died.length).toBe(3)
  expect(died.reduce((sum, line) => sum + line['given_back'], 0)).toBe(27)
  expect(await house.stop()).toBe(0)
})

test('a pause of everything, as of a sleeping machine, is nobody’s fault: no worker is replaced', async () => {
  await using engine = markedEngine()
  await using house = await startHouse({ config: houseConfig(engine.url), workers: 2 })
  const before = house.pids('')
  const all = [house.pid, ...before.filter((pid) => pid !== house.pid)]
  for (const pid of all) process.kill(pid, 'SIGSTOP')
  await Bun.sleep(6_000)
  // The supervisor first: it must not blame those that have not run yet.
  for (const pid of all) process.kill(pid, 'SIGCONT')
  await Bun.sleep(1_000)
  expect(house.logged('worker_frozen')).toEqual([])
  expect(house.pids('').toSorted()).toEqual(before.toSorted())
  expect(await house.stop()).toBe(0)
})

/** The status of a call that is given up after a second: 0. */
const quick = (url: string, key: string, body: string): Promise<number> =>
  fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}` },
    body,
    keepalive: false,
    signal: AbortSignal.timeout(1_000),
  }).then(
    ({ status }) => status,
    () => 0,
  )

/** Calls in flight by worker, as the metrics page has them. */
const inFlight = async (ops_url: string): Promise<number[]> => {
  const page = await (await fetch(`${ops_url}/metrics`)).text()
  return [0, 1].map((worker) =>
    Number(new RegExp(`^weir_worker_in_flight\\{[^}]*worker="${worker}"[^}]*\\} (\\d+)`, 'm').exec(page)?.[1] ?? NaN),
  )
}
