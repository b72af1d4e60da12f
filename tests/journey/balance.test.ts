import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { type TestHouse, startHouse } from '../kit/house.ts'
import { eventually } from '../kit/wait.ts'
import { engineProcess, type EngineProcess, percentile, type Seen, steady, steadyFor } from './fleet.ts'

/** Real demo engines, killed, stopped and slow, under a steady load on a house with two workers. */

// Also when another file of the run has set another.
setDefaultTimeout(60_000)

let house: TestHouse
let key: string
const engines = new Map<string, EngineProcess>()

const names = ['kill-a', 'kill-b', 'kill-c', 'slow-a', 'slow-b', 'slow-c']

beforeAll(async () => {
  const made = await Promise.all(
    names.map((name) =>
      engineProcess({ ttft_ms: name === 'slow-a' ? 300 : 30, tokens_per_s: name.startsWith('kill') ? 200 : 0 }),
    ),
  )
  names.forEach((name, nth) => engines.set(name, made[nth]!))
  const model = (name: string, group: string, strategy = 'least_loaded') => ({
    name,
    free: true,
    strategy,
    targets: ['a', 'b', 'c'].map((one) => ({ engine: `${group}-${one}`, model: 'm' })),
    timeouts: { first_byte_ms: 500, between_tokens_ms: 500 },
  })
  house = await startHouse({
    workers: 2,
    config: {
      engines: names.map((name) => ({ name, url: engines.get(name)!.url, probe_ms: 500, scrape_ms: 500 })),
      models: [model('kill', 'kill'), model('slow', 'slow'), model('slow-by-weight', 'slow', 'weighted')],
      tenants: [{ name: 't' }],
    },
  })
  key = await house.key('t')
})

afterAll(async () => {
  await house[Symbol.asyncDispose]()
  for (const engine of engines.values()) await engine[Symbol.asyncDispose]()
})

const TOKENS = 12
const call = (model: string, stream = false) =>
  house.post(
    '/v1/chat/completions',
    {
      ...{ model, stream, messages: [{ role: 'user', content: 'hi' }], max_tokens: TOKENS },
      ...(stream && { stream_options: { include_usage: true } }),
    },
    key,
  )

/** Calls whose client did not get everything. */
const failed = (seen: readonly Seen[]) =>
  seen.filter(
    ({ status, body }) =>
      status !== 200 ||
      body.includes('"error"') ||
      !body.includes(`"completion_tokens":${TOKENS}`) ||
      (body.startsWith('data:') && !body.endsWith('data: [DONE]\n\n')),
  )
const by = (seen: readonly Seen[], engine: string) => seen.filter((one) => one.engine === engine)

test.each([
  ['SIGKILL', 'kill-a', (engine: EngineProcess) => engine.kill(), (engine: EngineProcess) => engine.start()],
  [
    'SIGSTOP',
    'kill-b',
    (engine: EngineProcess) => engine.signal('SIGSTOP'),
    (engine: EngineProcess) => engine.signal('SIGCONT'),
  ],
] as const)(
  'one of three engines gets %s at 200 calls a second, half of them streams: no call fails, and it comes back',
  async (_name, name, stop, go) => {
    const victim = engines.get(name)!
    let over = false
    let nth = 0
    let back_ms = 0
    let returned_ms = 0
    const since = performance.now()
    const load = steady(
      200,
      async () => {
        const response = await call('kill', nth++ % 2 === 1)
        if (back_ms > 0 && response.headers.get('x-weir-engine') === name) returned_ms ||= performance.now() - back_ms
        return response
      },
      () => over,
    )
    await Bun.sleep(1_000)
    const stopped_ms = performance.now()
    const failures_before = house.logged('engine_failed').length
    await stop(victim)
    await Bun.sleep(1_000)
    const failures_in_1s = house.logged('engine_failed').length
    await Bun.sleep(1_500)
    const failures_later = house.logged('engine_failed').length
    await go(victim)
    back_ms = performance.now()
    await eventually(() => returned_ms > 0, 5_000)
    over = true
    const seen = await load
    process.stderr.write(
      `  ${seen.length} calls in ${Math.round(performance.now() - since)} ms, ${failures_in_1s - failures_before} failed attempts in the first second, ${failures_later - failures_in_1s} later, back after ${Math.round(returned_ms)} ms, P99 ${Math.round(
        percentile(
          seen.map(({ took_ms }) => took_ms),
          0.99,
        ),
      )} ms\n`,
    )
    expect(failed(seen)).toEqual([])
    expect(by(seen, name).length).toBeGreaterThan(10)
    // Out within a second: after that only the trial of an ended bench may fail.
    expect(failures_later - failures_in_1s).toBeLessThanOrEqual(3)
    const answered_while_out = by(seen, name).filter(({ at_ms }) => at_ms > stopped_ms + 1_000 && at_ms < back_ms)
    expect(answered_while_out).toEqual([])
  },
)

test('one of three engines ten times slower: it gets next to nothing, and the 99th percentile is that of the others', async () => {
  // Every engine must have answered before there is anything to compare.
  await Promise.all(Array.from({ length: 30 }, () => call('slow', true)))
  const [balanced, blind] = await Promise.all([
    steadyFor(4_000, 60, () => call('slow', true)),
    steadyFor(4_000, 30, () => call('slow-by-weight', true)),
  ])
  const p99 = (seen: readonly Seen[]) =>
    percentile(
      seen.map(({ took_ms }) => took_ms),
      0.99,
    )
  process.stderr.write(
    `  P99 ${Math.round(p99(balanced))} ms against ${Math.round(p99(blind))} ms by weight; slow engine ${by(balanced, 'slow-a').length} of ${balanced.length} against ${by(blind, 'slow-a').length} of ${blind.length}\n`,
  )
  expect([failed(balanced), failed(blind)]).toEqual([[], []])
  expect(by(balanced, 'slow-a').length / balanced.length).toBeLessThan(0.05)
  expect(by(blind, 'slow-a').length / blind.length).toBeGreaterThan(0.1)
})
