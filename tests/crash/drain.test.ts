import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import { housePids, startHouse } from '../kit/house.ts'
import { startHostileEngine } from '../kit/hostile-engine.ts'
import { connectRaw, requestBytes } from '../kit/raw-client.ts'
import { json, never, script, WHOLE } from '../kit/script.ts'
import { eventually, rollFrom, tempFolder } from '../kit/wait.ts'
import {
  call,
  expectOneRowEach,
  houseConfig,
  marked,
  markedEngine,
  markOf,
  rowsByBody,
  type Seen,
  startTraffic,
} from './traffic.ts'

setDefaultTimeout(60_000)

const isReady = async (ops_url: string): Promise<boolean> => (await fetch(`${ops_url}/ready`)).status === 200

describe('SIGTERM', () => {
  test('50 streams and short calls run to their end, readiness goes at once, exit 0, rows equal answers', async () => {
    await using engine = markedEngine()
    await using house = await startHouse({ config: houseConfig(engine.url), workers: 2 })
    const key = await house.key('acme')
    expect(await isReady(house.ops_url)).toBe(true)
    const bodies = Array.from({ length: 50 }, (_, n) => marked(`long-${n}`, true, 60, 25))
    const streams = Promise.all(bodies.map((body) => call(house.url, key, body)))
    const traffic = startTraffic(house, key, 'short', 4, rollFrom(1))
    await eventually(() => engine.calls.now >= 50, 5_000)
    await Bun.sleep(200)
    house.kill('SIGTERM')
    await eventually(async () => !(await isReady(house.ops_url)), 1_000)
    // Nobody accepts any more, long before the streams end.
    const late: Seen[] = []
    await eventually(async () => {
      late.push(await call(house.url, key, marked(`late-${late.length}`, false)))
      expect(late.at(-1)!.status).toBe(0)
    }, 1_000)
    expect(engine.calls.now).toBeGreaterThanOrEqual(50)
    await traffic.stop()

    const results = await streams
    const text = Array.from({ length: 60 }, (_, piece) => `p${piece} `).join('')
    expect(results.filter((result) => !result.whole || result.text !== text)).toEqual([])
    expect(await house.exited).toBe(0)
    expect(house.pids('')).toEqual([])

    // Short calls either got their whole answer, or were never taken: refused by a closed port, or told 503.
    const asked = [...results, ...traffic.seen, ...late]
    const half = asked.filter(({ status, whole }) => status === 200 && !whole)
    expect(half).toEqual([])
    const answered = asked.filter(({ status }) => status === 200)
    const rows = house.rows()
    expectOneRowEach(
      house.data,
      answered.map(({ body }) => body),
    )
    const in_ledger = rowsByBody(house.data)
    expect(asked.filter(({ status, body }) => status !== 200 && in_ledger.has(markOf(body)))).toEqual([])
    expect(rows.length).toBe(answered.length)
    expect(rows.length).toBe(engine.requests.length)
    expect(rows.filter((row) => row['ending'] !== 'whole')).toEqual([])
    const order = ['draining', 'stopped'].map((event) => house.logged(event).length)
    expect(order).toEqual([1, 1])
  })

  test('a stream longer than the grace is cut so that its client can tell, and has its row', async () => {
    await using engine = markedEngine()
    await using house = await startHouse({ config: houseConfig(engine.url, { grace_ms: 600 }), workers: 1 })
    const key = await house.key('acme')
    const long = marked('long', true, 400, 25)
    const short = marked('short', true, 10, 30)
    const plain = marked('plain', false, 1, 10_000)
    const calls = Promise.all([long, short, plain].map((body) => call(house.url, key, body)))
    await eventually(() => engine.calls.now === 3)
    house.kill('SIGTERM')
    const [cut, whole, refused] = await calls
    expect(refused).toMatchObject({ status: 503, error: 'draining' })
    expect(cut).toMatchObject({ status: 200, whole: false, error: 'draining' })
    expect(cut!.text.startsWith('p0 p1 ')).toBe(true)
    expect(whole).toMatchObject({ status: 200, whole: true })
    expect(await house.exited).toBe(0)
    expectOneRowEach(house.data, [long, short, plain])
    const endings = house.rows().map((row) => `${row['ending']} ${row['failure']}`)
    expect(endings.toSorted()).toEqual(['cut_by_engine draining', 'refused draining', 'whole '])
    // The engine was told.
    expect((await engine.hangUp(engine.requests.findIndex((request) => request.text().includes('long/')))).by).toBe(
      'peer',
    )
  })

  test('a call that waits for a place when the grace is over is told so, and holds nobody up', async () => {
    await using engine = startHostileEngine({ answers: [script(never)] })
    const config = {
      server: { grace_ms: 400 },
      engines: [{ name: 'e', url: engine.url, capacity: 1, probe_ms: 0, scrape_ms: 0 }],
      models: [{ name: 'm', free: true, targets: [{ engine: 'e' }], queue: { size: 8, wait_ms: 60_000 } }],
      tenants: [{ name: 'acme' }],
    }
    await using house = await startHouse({ config, workers: 1 })
    const key = await house.key('acme')
    const ask = () =>
      house.post('/v1/chat/completions', { model: 'm', messages: [{ role: 'user', content: 'hi' }] }, key)
    const running = ask()
    await eventually(() => engine.calls.now === 1)
    const waiting = [ask(), ask()]
    await Bun.sleep(100)
    house.kill('SIGTERM')
    for (const answer of await Promise.all([running, ...waiting])) {
      expect(answer.status).toBe(503)
      expect(((await answer.json()) as { error: { code: string } }).error.code).toBe('draining')
    }
    expect(await house.exited).toBe(0)
    expect(engine.requests).toHaveLength(1)
  })

  test('a second one stops at once and leaves nobody behind; what was open is recovered by the next house', async () => {
    await using engine = markedEngine()
    await using house = await startHouse({ config: houseConfig(engine.url), workers: 2 })
    const key = await house.key('acme')
    const bodies = Array.from({ length: 5 }, (_, n) => marked(`long-${n}`, true, 400, 25))
    const streams = Promise.all(bodies.map((body) => call(house.url, key, body)))
    await eventually(() => engine.calls.now === 5)
    house.kill('SIGTERM')
    await eventually(() => house.logged('draining').length === 1)
    house.kill('SIGTERM')
    expect(await house.exited).toBe(1)
    await eventually(() => house.pids('').length === 0, 1_000)
    expect((await streams).filter(({ whole }) => whole)).toEqual([])
    await using next = await startHouse({ config: houseConfig(engine.url), data: house.data })
    expectOneRowEach(next.data, bodies)
    expect(next.rows().map((row) => row['ending'])).toEqual(Array(5).fill('recovered'))
    expect(await next.stop()).toBe(0)
  })

  test.each([60, 150, 250, 350, 450, 600])('%p ms after the start: it ends, and nothing stays', async (delay_ms) => {
    await using engine = markedEngine()
    using folder = tempFolder('weir-early')
    const data = `${folder.path}/data`
    const starting = startHouse({ config: houseConfig(engine.url), workers: 2, data, signal_after_ms: delay_ms })
    const ended = await starting.then(
      async (house) => {
        await using open = house
        return await open.exited
      },
      (cause: Error) => cause.message,
    )
    // Before the process can hear it, a signal ends it as any program.
    if (typeof ended === 'string') expect(ended).toMatch(/the house ended with (0|143)/)
    else expect(ended).toBe(0)
    await eventually(() => housePids(data, '').length === 0, 4_000)
  })

  test('to the whole process group, as a terminal or a service manager sends it: drained all the same', async () => {
    await using engine = markedEngine()
    await using house = await startHouse({ config: houseConfig(engine.url), workers: 2 })
    const key = await house.key('acme')
    const body = marked('long', true, 40, 25)
    const stream = call(house.url, key, body)
    await eventually(() => engine.calls.now === 1)
    for (const pid of house.pids('')) process.kill(pid, 'SIGINT')
    expect(await stream).toMatchObject({ status: 200, whole: true })
    expect(await house.exited).toBe(0)
    expectOneRowEach(house.data, [body])
    expect(house.logged('process_died')).toEqual([])
  })

  test('with a dead accountant: another posts what is left before the house is done', async () => {
    await using engine = markedEngine()
    await using house = await startHouse({ config: houseConfig(engine.url), workers: 1 })
    const key = await house.key('acme')
    const bodies = Array.from({ length: 20 }, (_, n) => marked(`b-${n}`, false))
    await Promise.all(bodies.map((body) => call(house.url, key, body)))
    process.kill(house.pids('accountant')[0]!, 'SIGKILL')
    expect(await house.stop()).toBe(0)
    expectOneRowEach(house.data, bodies)
  })
})

test('a slow reader gets the last byte of an answer whose call is long over', async () => {
  const content = 'x'.repeat(8_000_000)
  await using engine = startHostileEngine({ answers: [json(200, WHOLE(content, 5, 1))] })
  await using house = await startHouse({ config: houseConfig(engine.url), workers: 1 })
  const key = await house.key('acme')
  const request = requestBytes('POST', '/v1/chat/completions', { authorization: `Bearer ${key}` }, marked('big', false))
  using client = await connectRaw(house.port)
  client.pause()
  await client.send(request)
  await house.rowsReach(1)
  house.kill('SIGTERM')
  await eventually(() => house.logged('draining').length === 1)
  await Bun.sleep(300)
  client.resume()
  const answer = await client.response()
  expect(answer).toMatchObject({ status: 200, ended: 'whole' })
  expect(answer.json().choices[0].message.content).toBe(content)
  expect(await house.exited).toBe(0)
})

test('a request that was half sent when the drain began is answered or refused, never left without a word', async () => {
  await using engine = markedEngine()
  await using house = await startHouse({ config: houseConfig(engine.url), workers: 1 })
  const key = await house.key('acme')
  const request = requestBytes(
    'POST',
    '/v1/chat/completions',
    { authorization: `Bearer ${key}` },
    marked('half', false),
  )
  using client = await connectRaw(house.port)
  await client.send(request.subarray(0, 60))
  // Something must keep the house open for a moment.
  const stream = call(house.url, key, marked('long', true, 20, 25))
  await eventually(() => engine.calls.now === 1)
  house.kill('SIGTERM')
  await eventually(() => house.logged('draining').length === 1)
  await Bun.sleep(50)
  await client.send(request.subarray(60))
  const answer = await client.response()
  expect(answer.status).toBe(503)
  expect(answer.json().error.code).toBe('draining')
  expect(answer.header('retry-after')).toBe('1')
  expect((await stream).whole).toBe(true)
  expect(await house.exited).toBe(0)
})
