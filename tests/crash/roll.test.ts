import { expect, setDefaultTimeout, test } from 'bun:test'
import { startHouse, type TestHouse } from '../kit/house.ts'
import { connectRaw, requestBytes, type RawClient } from '../kit/raw-client.ts'
import { eventually, rollFrom } from '../kit/wait.ts'
import { call, expectOneRowEach, houseConfig, marked, markedEngine, startTraffic } from './traffic.ts'

setDefaultTimeout(60_000)

/** A client that keeps its connection until it is told, or sees, that it goes. */
const startKeepAlive = (house: TestHouse, key: string, name: string) => {
  const counts = { answered: 0, asked_to_leave: 0, closed_while_idle: 0, broken: 0, refused: 0 }
  const bodies: string[] = []
  let made = 0
  let going = true
  const run = async () => {
    let client: RawClient | undefined
    let used = false
    while (going) {
      if (client === undefined) {
        client = await connectRaw(house.port)
        used = false
      }
      const body = marked(`${name}-${made++}`, false, 1, 5)
      const sent = await client.send(
        requestBytes('POST', '/v1/chat/completions', { authorization: `Bearer ${key}` }, body),
      )
      const answer = sent ? await client.response() : undefined
      if (answer?.status === 200 && answer.ended === 'whole') {
        bodies.push(body)
        counts.answered += 1
        used = true
        if (answer.header('connection') !== 'close') continue
        counts.asked_to_leave += 1
      } else if (answer === undefined || answer.status === 0) {
        // A connection that was used and is closed before any byte of an answer: the race that every keep-alive client
        // must be ready for. One that was never used must not meet it.
        if (used) counts.closed_while_idle += 1
        else counts.refused += 1
      } else counts.broken += 1
      client.close()
      client = undefined
    }
    client?.close()
  }
  const all = Array.from({ length: 8 }, run)
  return {
    counts,
    bodies,
    stop: async () => {
      going = false
      await Promise.all(all)
    },
  }
}

test('SIGUSR2 replaces every worker under load: no call fails on a fresh or a kept connection', async () => {
  await using engine = markedEngine()
  await using house = await startHouse({ config: houseConfig(engine.url, { grace_ms: 5_000 }), workers: 2 })
  const key = await house.key('acme')
  const before = house.pids('worker')
  const fresh = startTraffic(house, key, 'fresh', 6, rollFrom(7))
  const kept = startKeepAlive(house, key, 'kept')
  const long = Array.from({ length: 10 }, (_, n) => marked(`long-${n}`, true, 80, 25))
  const streams = Promise.all(long.map((body) => call(house.url, key, body)))
  await Bun.sleep(200)
  house.kill('SIGUSR2')
  // A second one while the first is under way is told, and does no harm.
  await eventually(() => house.pids('worker').length === 3, 5_000)
  house.kill('SIGUSR2')
  await eventually(() => house.logged('worker_replaced').length === 2, 20_000)
  await Promise.all([fresh.stop(), kept.stop()])

  const after = house.pids('worker')
  expect(after.length).toBe(2)
  expect(after.filter((pid) => before.includes(pid))).toEqual([])
  expect(house.logged('roll_under_way').length).toBe(1)
  expect(house.logged('process_died')).toEqual([])
  expect((await streams).filter(({ whole }) => !whole)).toEqual([])
  expect(fresh.seen.filter(({ status, whole }) => status !== 200 || !whole)).toEqual([])
  expect(kept.counts).toMatchObject({ broken: 0, refused: 0 })
  expect(kept.counts.asked_to_leave).toBeGreaterThan(0)
  console.log(`roll: ${fresh.seen.length} fresh calls, kept ${JSON.stringify(kept.counts)}`)
  const bodies = [...long, ...fresh.seen.map(({ body }) => body), ...kept.bodies]
  await eventually(() => expectOneRowEach(house.data, bodies), 5_000)
  expect(await house.stop()).toBe(0)
})

test('a connection that was opened and not yet used is served by a worker that is being replaced', async () => {
  await using engine = markedEngine()
  await using house = await startHouse({ config: houseConfig(engine.url, { grace_ms: 2_000 }), workers: 1 })
  const key = await house.key('acme')
  using client = await connectRaw(house.port)
  await Bun.sleep(50)
  house.kill('SIGUSR2')
  await eventually(() => house.pids('worker').length === 2, 5_000)
  await Bun.sleep(300)
  const request = requestBytes('POST', '/v1/chat/completions', { authorization: `Bearer ${key}` }, marked('x', false))
  await client.send(request)
  const answer = await client.response()
  expect(answer.status).toBe(200)
  await eventually(() => house.logged('worker_replaced').length === 1, 10_000)
  expect(await house.stop()).toBe(0)
})

test('a worker that cannot start stops the replacement; the old ones serve on', async () => {
  await using engine = markedEngine()
  await using house = await startHouse({ config: houseConfig(engine.url), workers: 1 })
  const key = await house.key('acme')
  const [old] = house.pids('worker')
  house.kill('SIGUSR2')
  // The successor is killed before it serves.
  const young = await eventually(() => {
    const pid = house.pids('worker').find((each) => each !== old)
    if (pid === undefined) throw new Error('no successor yet')
    return pid
  }, 3_000)
  process.kill(young, 'SIGKILL')
  await eventually(() => house.logged('roll_stopped').length + house.logged('worker_replaced').length > 0, 10_000)
  if (house.logged('roll_stopped').length > 0) expect(house.pids('worker')).toEqual([old!])
  expect((await call(house.url, key, marked('after', false))).status).toBe(200)
  expect(await house.stop()).toBe(0)
})
