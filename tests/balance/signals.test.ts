import { afterEach, expect, setDefaultTimeout, test } from 'bun:test'
import { claimProbe, coolMs, markAlive, markFailed } from '../../src/balance/health.ts'
import { type Signals, startSignals } from '../../src/balance/signals.ts'
import { TableField } from '../../src/balance/table-field.ts'
import { nowMs } from '../../src/base/clock.ts'
import type { Config } from '../../src/config/schema.ts'
import { SUBJECT } from '../../src/table/layout.ts'
import { subjectOf, type Table } from '../../src/table/table.ts'
import { startHostileEngine } from '../kit/hostile-engine.ts'
import { json, never, script } from '../kit/script.ts'
import { eventually, freePort, tempFolder } from '../kit/wait.ts'
import { tableIn, targetOf } from './kit.ts'

setDefaultTimeout(60_000)

const FAST_MS = 20
let running: Signals | undefined
afterEach(() => running?.stop())

const configOf = (url: string, more: object = {}): Config =>
  ({ engines: [{ name: 'e', url, probe_ms: FAST_MS, scrape_ms: 0, idle_ms: 4_000, ...more }] }) as unknown as Config

const start = (table: Table, config: Config, lines: object[] = []): Signals =>
  (running = startSignals({
    config,
    table,
    fetch,
    now: nowMs,
    log: (_level, event, more) => void lines.push({ event, ...more }),
  }))

const engineIn = (table: Table) => subjectOf(table, 'engine', 'e')!

test('probes cost no tokens: an idle engine sees GET requests only, of /health', async () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  await using engine = startHostileEngine({ answers: [json(200, {})] })
  start(table, configOf(engine.url, { key: 'k', scrape_ms: FAST_MS }))
  await eventually(() => engine.probes.filter(({ target }) => target === '/health').length >= 5)
  expect(engine.requests).toEqual([])
  expect(new Set(engine.probes.map(({ target }) => target))).toEqual(new Set(['/health', '/metrics']))
})

test.each([
  // status of /health, status of /v1/models, is it in rotation
  [200, 200, true],
  [404, 200, true],
  [404, 404, true],
  [401, 200, true],
  [429, 200, true],
  [501, 200, true],
  [503, 200, false],
  [500, 200, false],
  [404, 503, false],
])('/health answers %p, /v1/models %p: in rotation %p', async (health, models, rotates) => {
  using folder = tempFolder()
  const table = tableIn(folder)
  await using engine = startHostileEngine({
    script_gets: true,
    answers: ({ target }) => json(target === '/health' ? health : models, {}),
  })
  start(table, configOf(engine.url))
  await eventually(() => engine.requests.length >= 6)
  expect(coolMs(table, engineIn(table), nowMs()) === 0).toBe(rotates)
})

test('an engine that is not there is out, and its return lets one call try', async () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  const port = freePort()
  const lines: { event?: string; found?: { is: string } }[] = []
  start(table, configOf(`http://127.0.0.1:${port}/v1`), lines)
  const subject = engineIn(table)
  await eventually(() => coolMs(table, subject, nowMs()) > 0)
  expect(lines.map(({ found }) => found?.is)).toEqual(['refused'])
  await using _engine = startHostileEngine({ port, answers: [json(200, {})] })
  await eventually(() => coolMs(table, subject, nowMs()) === 0)
  expect(claimProbe(table, subject, nowMs())).toBe(true)
})

test('an engine that accepts and says nothing is out after the second probe', async () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  await using engine = startHostileEngine({ script_gets: true, answers: [script(never)] })
  start(table, configOf(engine.url))
  await eventually(() => engine.requests.length >= 2)
  expect(coolMs(table, engineIn(table), nowMs())).toBe(0)
  await eventually(() => coolMs(table, engineIn(table), nowMs()) > 0)
})

test('an engine that answers calls while its probes wait is busy and stays in; when those end it is out', async () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  await using engine = startHostileEngine({ script_gets: true, answers: [script(never)] })
  const lines: object[] = []
  start(table, configOf(engine.url), lines)
  const subject = engineIn(table)
  // Parts of streams that began long ago, as the relay notes them.
  const answering = setInterval(() => markAlive(table, subject, nowMs()), 10)
  await eventually(() => engine.requests.length >= 5, 5_000)
  clearInterval(answering)
  expect([coolMs(table, subject, nowMs()), lines]).toEqual([0, []])
  await eventually(() => coolMs(table, subject, nowMs()) > 0, 5_000)
})

test('calls do not excuse an engine that says itself that it cannot serve', async () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  await using engine = startHostileEngine({ script_gets: true, answers: [json(503, {})] })
  start(table, configOf(engine.url))
  const subject = engineIn(table)
  const answering = setInterval(() => markAlive(table, subject, nowMs()), 10)
  await eventually(() => coolMs(table, subject, nowMs()) > 0, 5_000)
  clearInterval(answering)
})

test('an engine whose probes are good and whose calls fail stays benched', async () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  await using engine = startHostileEngine({ answers: [json(500, {})] })
  markFailed(table, engineIn(table), nowMs(), undefined, 'bad')
  start(table, configOf(engine.url))
  await eventually(() => engine.probes.length >= 5)
  expect(coolMs(table, engineIn(table), nowMs())).toBeGreaterThan(0)
})

test('queue and cache are read; what vanishes or grows old is unknown, not zero', async () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  let page = 'vllm:num_requests_waiting 7\nvllm:kv_cache_usage_perc 0.5\n'
  await using engine = startHostileEngine({ script_gets: true, answers: () => json(200, page) })
  start(table, configOf(engine.url, { probe_ms: 0, scrape_ms: FAST_MS }))
  const target = targetOf(table, 'e')
  const field = new TableField(table)
  const waiting = (at_ms: number) => {
    field.reset(at_ms)
    field.add(target, target.engine.subject, 0)
    return field.waiting(0)
  }
  await eventually(() => waiting(nowMs()) === 7)
  expect(table.f64[target.engine.subject + SUBJECT.cache_usage]).toBe(0.5)
  page = 'vllm:kv_cache_usage_perc 0.5\n'
  await eventually(() => waiting(nowMs()) === undefined)
  page = 'vllm:num_requests_waiting 3\n'
  await eventually(() => waiting(nowMs()) === 3)
  // Three intervals of the target's own configuration.
  expect(waiting(nowMs() + 2_000)).toBe(3)
  expect(waiting(nowMs() + 3_100)).toBeUndefined()
})

test('an engine without figures is not asked for them again and again', async () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  await using engine = startHostileEngine({ script_gets: true, answers: [json(404, {})] })
  start(table, configOf(engine.url, { scrape_ms: FAST_MS }))
  await eventually(() => engine.requests.filter(({ target }) => target !== '/metrics').length >= 6)
  expect(engine.requests.filter(({ target }) => target === '/metrics')).toHaveLength(1)
})

test('another configuration ends what is gone and keeps what stays', async () => {
  using folder = tempFolder()
  const table = tableIn(folder)
  await using engine = startHostileEngine({ answers: [json(200, {})] })
  const signals = start(table, configOf(engine.url))
  await eventually(() => engine.probes.length >= 2)
  signals.reload({ engines: [] } as unknown as Config)
  await Bun.sleep(2 * FAST_MS)
  const seen = engine.probes.length
  await Bun.sleep(5 * FAST_MS)
  expect(engine.probes.length).toBe(seen)
})
