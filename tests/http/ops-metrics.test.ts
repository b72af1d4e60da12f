import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { markFailed, markGood } from '../../src/balance/health.ts'
import { FAILURES } from '../../src/base/failure.ts'
import { printFamilies } from '../../src/http/prometheus.ts'
import { BUCKETS_MS, openMetrics, sumMetrics } from '../../src/observe/metrics.ts'
import { claimOn } from '../../src/quota/budgets.ts'
import { limitAt, liveBudgets } from '../../src/quota/live-budget.ts'
import { BUDGETS_HELD, holdBudgets } from '../../src/table/budget-slot.ts'
import { takeCounts } from '../../src/table/counts.ts'
import { HEADER, WORKER } from '../../src/table/layout.ts'
import { subjectOf, workerF64, workerI32 } from '../../src/table/table.ts'
import { type OpsTestHouse, openOpsHouse } from './ops-house.ts'
import { parsePrometheus } from './prometheus-parse.ts'

setDefaultTimeout(60_000)

let house: OpsTestHouse
beforeAll(() => void (house = openOpsHouse()))
afterAll(() => house.close())

const scrape = async () => {
  const answer = await house.ask('GET', '/metrics')
  expect([answer.status, answer.headers.get('content-type')]).toEqual([200, 'text/plain; version=0.0.4; charset=utf-8'])
  return parsePrometheus(answer.text)
}

const valueOf = (page: Awaited<ReturnType<typeof scrape>>, name: string, labels: Record<string, string> = {}) =>
  [...page.values()]
    .flatMap(({ samples }) => samples)
    .filter((sample) => sample.name === name)
    .find((sample) => Object.entries(labels).every(([label, value]) => sample.labels.get(label) === value))?.value

test('an idle house has a page that keeps to the format, every failure code at 0', async () => {
  const page = await scrape()
  for (const [code, row] of Object.entries(FAILURES))
    expect([code, valueOf(page, 'weir_failures_total', { code, status: String(row.status) })]).toEqual([code, 0])
  expect(valueOf(page, 'weir_call_seconds_count')).toBe(0)
})

test('what fills up shows before it refuses: queues, jobs, budgets; and reading claims nothing', async () => {
  const full = openOpsHouse(
    [
      'engines: [{ name: e, url: "http://127.0.0.1:9/v1" }]',
      'models: [{ name: m, targets: [{ engine: e }], free: true, queue: { size: 7 } }]',
      'tenants: [{ name: acme, budgets: [{ usd: "2.50", per: month }] }]',
    ].join('\n'),
  )
  try {
    const page = async () => parsePrometheus((await full.ask('GET', '/metrics')).text)
    await page()
    const used = full.table.i32[HEADER.subjects_used]
    const idle = await page()
    expect(full.table.i32[HEADER.subjects_used]).toBe(used!)
    const budget = { owner: 'tenant:acme', per: 'month', timezone: 'UTC' }
    expect(valueOf(idle, 'weir_build_info', { bun: Bun.version })).toBe(1)
    expect(valueOf(idle, 'weir_model_queue_size', { model: 'm' })).toBe(7)
    expect(valueOf(idle, 'weir_budget_limit_usd', budget)).toBe(2.5)
    expect(valueOf(idle, 'weir_budget_used_usd', budget)).toBe(0)
    const count = (kind: string, name: string) =>
      takeCounts(full.table, 0, [{ subject: subjectOf(full.table, kind, name)!, limit: 9 }])
    for (const [kind, name] of [
      ['model', 'm'],
      ['tenant', 'acme'],
      ['jobs', 'acme'],
      ['jobs', 'acme'],
    ] as const)
      count(kind, name)
    const [live] = liveBudgets('tenant:acme', full.config.tenants[0]!.budgets)
    const claim = claimOn(full.table, live!.budget, limitAt(live!, full.clock.now_ms), full.clock.now_ms)!
    expect(holdBudgets(full.table, 0, [claim], 1_250_000_000n)).toBe(BUDGETS_HELD)
    const busy = await page()
    expect(valueOf(busy, 'weir_model_waiting', { model: 'm' })).toBe(1)
    expect(valueOf(busy, 'weir_tenant_in_flight', { tenant: 'acme' })).toBe(1)
    expect(valueOf(busy, 'weir_tenant_jobs', { tenant: 'acme' })).toBe(2)
    expect(valueOf(busy, 'weir_budget_used_usd', budget)).toBe(1.25)
  } finally {
    full.close()
  }
})

test('the page tells the sum of all workers, engines, and the accountant, in seconds', async () => {
  const { table, clock } = house
  house.enliven(0)
  house.enliven(3)
  for (const [worker, values] of [
    [0, [0.4, 12]],
    [3, [1, 400_000]],
  ] as const) {
    const metrics = openMetrics(table, worker)
    metrics.add('requests', 2)
    metrics.add('completion_tokens', 100)
    metrics.failed('rate_exceeded')
    for (const value of values) metrics.observe('total_ms', value)
  }
  const engine = subjectOf(table, 'engine', 'vllm-a')!
  takeCounts(table, 0, [{ subject: engine, limit: 8 }])
  takeCounts(table, 3, [{ subject: engine, limit: 8 }])
  markGood(table, engine, 120)
  markFailed(table, engine, clock.now_ms)
  table.i32[workerI32(3, WORKER.in_flight)] = 7
  table.f64[workerF64(3, WORKER.heartbeat_ms)] = clock.now_ms - 2_500
  table.f64[workerF64(3, WORKER.loop_lag_ms)] = 1.5
  table.f64[workerF64(3, WORKER.rss_bytes)] = 1e8
  table.f64[HEADER.accountant_lag_ms] = 250
  table.f64[HEADER.auditor_seen_ms] = clock.now_ms - 500
  table.f64[HEADER.leaves_behind] = 17
  table.f64[HEADER.posted_calls] = 12_345_678_901

  const page = await scrape()
  const expected: readonly (readonly [name: string, labels: Record<string, string>, value: number])[] = [
    ['weir_requests_total', {}, 4],
    ['weir_tokens_total', { kind: 'completion' }, 200],
    ['weir_failures_total', { code: 'rate_exceeded', status: '429' }, 2],
    ['weir_call_seconds_bucket', { le: '0.001' }, 2],
    ['weir_call_seconds_bucket', { le: '0.01' }, 2],
    ['weir_call_seconds_bucket', { le: '0.025' }, 3],
    ['weir_call_seconds_bucket', { le: '300' }, 3],
    ['weir_call_seconds_bucket', { le: '+Inf' }, 4],
    ['weir_call_seconds_count', {}, 4],
    ['weir_call_seconds_sum', {}, 400.0134],
    ['weir_engine_in_flight', { engine: 'vllm-a' }, 2],
    ['weir_engine_capacity', { engine: 'vllm-a' }, 8],
    ['weir_engine_answered_total', { engine: 'vllm-a' }, 1],
    ['weir_engine_failed_total', { engine: 'vllm-a' }, 1],
    ['weir_engine_healthy', { engine: 'vllm-a' }, 0],
    ['weir_engine_cooling_seconds', { engine: 'vllm-a' }, 2],
    ['weir_engine_latency_seconds', { engine: 'vllm-a' }, 0.12],
    ['weir_engine_healthy', { engine: 'odd/name' }, 1],
    ['weir_worker_live', { worker: '0' }, 1],
    ['weir_worker_in_flight', { worker: '3' }, 7],
    ['weir_worker_heartbeat_age_seconds', { worker: '3' }, 2.5],
    ['weir_worker_loop_lag_seconds', { worker: '3' }, 0.0015],
    ['weir_worker_resident_bytes', { worker: '3' }, 1e8],
    ['weir_accountant_lag_seconds', {}, 0.25],
    ['weir_auditor_age_seconds', {}, 0.5],
    ['weir_audit_leaves_behind', {}, 17],
    ['weir_posted_calls_total', {}, 12_345_678_901],
  ]
  for (const [name, labels, value] of expected) {
    const found = valueOf(page, name, labels)
    expect([name, labels, found === undefined ? undefined : Number(found.toPrecision(12))]).toEqual([
      name,
      labels,
      value,
    ])
  }
  expect(valueOf(page, 'weir_engine_latency_seconds', { engine: 'odd/name' })).toBeUndefined()
})

test('every counter and histogram of the table stands on the page', async () => {
  const page = await scrape()
  const { counters, histograms } = sumMetrics(house.table)
  const told = [...page].flatMap(([name, { type, samples }]) =>
    name.startsWith('weir_engine_answered') || name.startsWith('weir_engine_failed') || name.startsWith('weir_posted')
      ? []
      : type === 'counter' && name !== 'weir_failures_total'
        ? samples
        : [],
  )
  expect(told).toHaveLength(Object.keys(counters).length)
  expect([...page.values()].filter(({ type }) => type === 'histogram')).toHaveLength(Object.keys(histograms).length)
  expect(page.get('weir_call_seconds')!.samples).toHaveLength(BUCKETS_MS.length + 1 + 2)
})

test('labels and help texts are escaped and read back', () => {
  const odd = 'a "quoted" \\ back\nslash\\n'
  const text = printFamilies([
    { name: 'a_total', help: odd, type: 'counter', samples: [{ labels: { odd, number: 3 }, value: 1e21 }] },
    {
      name: 'b',
      help: '',
      type: 'gauge',
      samples: [-0.5, Infinity, -Infinity].map((value, at) => ({ labels: { at }, value })),
    },
    { name: 'nothing', help: '', type: 'gauge', samples: [] },
  ])
  const page = parsePrometheus(text)
  expect(page.get('a_total')!.samples[0]!.labels.get('odd')).toBe(odd)
  expect(page.get('a_total')!.samples[0]!.value).toBe(1e21)
  expect(page.get('b')!.samples.map(({ value }) => value)).toEqual([-0.5, Infinity, -Infinity])
  expect(page.has('nothing')).toBe(false)
})

test.each([
  ['a name with a dash', { name: 'a-b', help: '', type: 'gauge', samples: [{ value: 1 }] }],
  ['a label with a dash', { name: 'a', help: '', type: 'gauge', samples: [{ labels: { 'a-b': 1 }, value: 1 }] }],
  [
    'a bucket too few',
    { name: 'a', help: '', type: 'histogram', bounds: [1], distributions: [{ buckets: [1], sum: 1 }] },
  ],
] as const)('the printer throws on %s', (_why, family) => {
  expect(() => printFamilies([family])).toThrow()
})

test.each([
  ['# HELP a_total x\n# TYPE a_total counter\na_total 1', 'no end'],
  ['# HELP a_total x\n# TYPE a_total counter\na_total 1\na_total 2\n', 'twice'],
  ['# HELP a x\n# TYPE a counter\na 1\n', 'without _total'],
  ['# HELP a_total x\n# TYPE a_total counter\na_total{b="c\\d"} 1\n', 'escape'],
  ['# HELP a_total x\n# TYPE a_total counter\nb_total 1\n', 'outside'],
  ['a_total 1\n', 'before any family'],
  ['# HELP a x\n# TYPE a histogram\na_bucket{le="1"} 2\na_bucket{le="+Inf"} 1\na_sum 1\na_count 1\n', 'cumulative'],
  ['# HELP a x\n# TYPE a histogram\na_bucket{le="1"} 1\na_sum 1\na_count 1\n', '+Inf'],
  ['# HELP a x\n# TYPE a histogram\na_bucket{le="+Inf"} 1\na_sum 1\na_count 2\n', '_count'],
])('the reader refuses %p', (text) => {
  expect(() => parsePrometheus(text)).toThrow()
})

test('ready says what is missing, live always answers', async () => {
  const asked = async () => {
    const { status, json, headers } = await house.ask('GET', '/ready')
    return [status, json.missing ?? json.status, headers.get('retry-after')]
  }
  const accountant = 'the accountant has not yet posted the old journals'
  expect(await asked()).toEqual([503, [accountant], '1'])
  house.makeReady()
  expect(await asked()).toEqual([200, 'ready', null])
  house.clock.now_ms += 60_000
  expect(await asked()).toEqual([503, ['no worker is live'], '1'])
  house.enliven(0)
  expect(await asked()).toEqual([200, 'ready', null])
  house.table.i32[HEADER.draining] = 1
  expect(await asked()).toEqual([503, ['the house is stopping'], '1'])
  expect((await house.ask('GET', '/live')).json).toEqual({ status: 'live' })
})
