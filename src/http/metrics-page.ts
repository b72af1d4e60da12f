import {
  type EngineView,
  engineViews,
  type HouseView,
  houseView,
  type WorkerView,
  workerViews,
} from '../admin/machine.ts'
import { budgetDemand, modelDemand, tenantDemand } from '../admin/demand.ts'
import { FAILURES, type FailureCode } from '../base/failure.ts'
import type { Config } from '../config/schema.ts'
import { BUCKETS_MS, type Counter, type Histogram, type Summed, sumMetrics } from '../observe/metrics.ts'
import type { Table } from '../table/table.ts'
import { version } from '../../package.json'
import { type Family, type Labels, printFamilies, type Sample } from './prometheus.ts'

/** `GET /metrics`: the whole machine, read from the shared table. */
export const metricsPage = (table: Table, config: Config, now_ms: number): string =>
  printFamilies(metricFamilies(table, config, now_ms))

/** Every family that the page has. */
export const metricFamilies = (table: Table, config: Config, now_ms: number): Family[] => {
  const summed = sumMetrics(table)
  return [
    ...counterFamilies(summed),
    failureFamily(summed),
    ...histogramFamilies(summed),
    ...houseFamilies(houseView(table, now_ms)),
    ...workerFamilies(workerViews(table, now_ms)),
    ...engineFamilies(engineViews(table, config, now_ms)),
    ...demandFamilies(table, config, now_ms),
  ]
}

/** A counter of the table as a series of a family. */
type Series = readonly [family: string, counter: Counter, labels?: Labels]

const FAMILY_HELP: Readonly<Record<string, string>> = {
  weir_requests_total: 'Calls that arrived.',
  weir_answers_total: 'Answers by class of status.',
  weir_streams_total: 'Calls that asked for a stream.',
  weir_endings_total: 'How forwarded calls ended.',
  weir_retries_total: 'Calls sent to a further engine.',
  weir_tokens_total: 'Tokens; cached ones are among the prompt’s.',
  weir_estimated_calls_total: 'Calls whose usage was counted by Weir as the engine did not tell it.',
  weir_bytes_total: 'Bytes of request bodies in and of answers out.',
  weir_pings_total: 'Comment lines sent on silent streams.',
}

const SERIES: readonly Series[] = [
  ['weir_requests_total', 'requests'],
  ['weir_answers_total', 'answers_2xx', { class: '2xx' }],
  ['weir_answers_total', 'answers_4xx', { class: '4xx' }],
  ['weir_answers_total', 'answers_5xx', { class: '5xx' }],
  ['weir_streams_total', 'streams'],
  ['weir_endings_total', 'whole', { ending: 'whole' }],
  ['weir_endings_total', 'cut_by_client', { ending: 'cut_by_client' }],
  ['weir_endings_total', 'cut_by_engine', { ending: 'cut_by_engine' }],
  ['weir_endings_total', 'refused_by_engine', { ending: 'refused' }],
  ['weir_retries_total', 'retries'],
  ['weir_tokens_total', 'prompt_tokens', { kind: 'prompt' }],
  ['weir_tokens_total', 'cached_tokens', { kind: 'cached' }],
  ['weir_tokens_total', 'completion_tokens', { kind: 'completion' }],
  ['weir_estimated_calls_total', 'estimated_calls'],
  ['weir_bytes_total', 'bytes_in', { direction: 'in' }],
  ['weir_bytes_total', 'bytes_out', { direction: 'out' }],
  ['weir_pings_total', 'pings'],
]

const counterFamilies = ({ counters }: Summed): Family[] => {
  const told = new Set(SERIES.map(([, counter]) => counter))
  // A counter that is new in the table shows under its own name until it has a family.
  const others = (Object.keys(counters) as Counter[]).filter((counter) => !told.has(counter))
  const series = [...SERIES, ...others.map((counter): Series => [`weir_${counter}_total`, counter])]
  return [...Map.groupBy(series, ([family]) => family)].map(([name, members]) => ({
    name,
    help: FAMILY_HELP[name] ?? `Counter ${members[0]![1]}.`,
    type: 'counter',
    samples: members.map(([, counter, labels]) => ({ labels: labels ?? {}, value: counters[counter] })),
  }))
}

const failureFamily = ({ failures }: Summed): Family => ({
  name: 'weir_failures_total',
  help: 'Calls that Weir refused or failed, by code and status.',
  type: 'counter',
  samples: (Object.keys(FAILURES) as FailureCode[]).map((code) => ({
    labels: { code, status: FAILURES[code].status },
    value: failures[code] ?? 0,
  })),
})

const HISTOGRAM_NAMES: Readonly<Record<Histogram, readonly [name: string, help: string]>> = {
  total_ms: ['weir_call_seconds', 'From the arrival of a call to the end of its answer.'],
  first_token_ms: ['weir_first_token_seconds', 'From the arrival of a call to the first token of its answer.'],
  engine_ms: ['weir_engine_seconds', 'What the engine took of a call.'],
  overhead_ms: ['weir_overhead_seconds', 'What Weir itself took of a call.'],
}

const histogramFamilies = ({ histograms }: Summed): Family[] =>
  (Object.keys(histograms) as Histogram[]).map((histogram) => ({
    name: HISTOGRAM_NAMES[histogram][0],
    help: HISTOGRAM_NAMES[histogram][1],
    type: 'histogram',
    bounds: BUCKETS_MS.map(seconds),
    distributions: [{ buckets: histograms[histogram].buckets, sum: seconds(histograms[histogram].sum_ms) }],
  }))

const houseFamilies = (house: HouseView): Family[] => [
  {
    name: 'weir_build_info',
    help: 'What runs.',
    type: 'gauge',
    samples: [{ labels: { version, bun: Bun.version }, value: 1 }],
  },
  one('weir_started_timestamp_seconds', 'When the house started.', seconds(house.started_at_ms)),
  one('weir_config_generation', 'Number of the configuration in force.', house.generation),
  one('weir_draining', '1 while the house stops.', Number(house.draining)),
  one('weir_subjects_used', 'Slots of the shared table in use.', house.subjects_used),
  one('weir_subjects_max', 'Slots of the shared table.', house.subjects_max),
  one('weir_accountant_ready', '1 once the journals of earlier runs are posted.', Number(house.accountant_ready)),
  one('weir_accountant_age_seconds', 'Time since the accountant’s last turn.', seconds(house.accountant_age_ms)),
  one(
    'weir_accountant_lag_seconds',
    'From the end of a call to its row in the ledger.',
    seconds(house.accountant_lag_ms),
  ),
  one('weir_auditor_age_seconds', 'Time since the auditor’s last report.', seconds(house.auditor_age_ms)),
  one('weir_audit_leaves_behind', 'Rows of the ledger without their leaf of the audit log.', house.leaves_behind),
  { ...one('weir_posted_calls_total', 'Calls posted to the ledger.', house.posted_calls), type: 'counter' } as Family,
]

const workerFamilies = (workers: readonly WorkerView[]): Family[] => {
  const gauge = gaugeOf(workers, ({ worker }) => ({ worker }))
  return [
    gauge('weir_worker_live', '1 if the worker takes calls.', ({ live }) => Number(live)),
    gauge('weir_worker_in_flight', 'Calls in the worker.', ({ in_flight }) => in_flight),
    gauge('weir_worker_open_streams', 'Streams open in the worker.', ({ open_streams }) => open_streams),
    gauge('weir_worker_journal_full', '1 if the journal has no room.', ({ journal_full }) => Number(journal_full)),
    gauge('weir_worker_heartbeat_age_seconds', 'Time since the worker’s last heartbeat.', (worker) =>
      seconds(worker.heartbeat_age_ms),
    ),
    gauge('weir_worker_loop_lag_seconds', 'How late the worker’s timer fires.', ({ loop_lag_ms }) =>
      seconds(loop_lag_ms),
    ),
    gauge('weir_worker_resident_bytes', 'Resident memory of the worker.', ({ rss_bytes }) => rss_bytes),
    gauge('weir_worker_incarnation', 'Number of the worker’s present process.', ({ incarnation }) => incarnation),
  ]
}

const engineFamilies = (engines: readonly EngineView[]): Family[] => {
  const gauge = gaugeOf(engines, ({ name }) => ({ engine: name }))
  const counter = (...args: Parameters<typeof gauge>) => ({ ...gauge(...args), type: 'counter' }) as Family
  return [
    gauge('weir_engine_in_flight', 'Calls at the engine.', ({ in_flight }) => in_flight),
    gauge('weir_engine_capacity', 'Calls the engine takes at once.', ({ capacity }) => capacity),
    gauge('weir_engine_healthy', '1 unless the engine failed last.', ({ health }) => Number(health === 'healthy')),
    gauge('weir_engine_cooling_seconds', 'Time until the engine is tried again.', (engine) =>
      seconds(engine.cooling_ms),
    ),
    counter('weir_engine_answered_total', 'Answers of the engine.', ({ answered }) => answered),
    counter('weir_engine_failed_total', 'Failures of the engine.', ({ failed }) => failed),
    gauge('weir_engine_tokens_in_flight', 'Tokens at the engine.', ({ tokens_in_flight }) => tokens_in_flight),
    gauge('weir_engine_latency_seconds', 'Moving average until the first byte.', ({ latency_ms }) =>
      latency_ms === null ? null : seconds(latency_ms),
    ),
    gauge('weir_engine_waiting', 'Calls waiting inside the engine.', ({ waiting }) => waiting),
    gauge('weir_engine_cache_usage_ratio', 'Share of the KV cache in use.', ({ cache_usage }) => cache_usage),
  ]
}

const demandFamilies = (table: Table, config: Config, now_ms: number): Family[] => {
  const model = gaugeOf(modelDemand(table, config), (view) => ({ model: view.model }))
  const tenant = gaugeOf(tenantDemand(table, config), (view) => ({ tenant: view.tenant }))
  const budget = gaugeOf(budgetDemand(table, config, now_ms), ({ owner, per, timezone }) => ({ owner, per, timezone }))
  return [
    model('weir_model_waiting', 'Calls that wait for a place at an engine of the model.', ({ waiting }) => waiting),
    model('weir_model_queue_size', 'Calls that may wait for the model.', ({ queue_size }) => queue_size),
    tenant('weir_tenant_in_flight', 'Calls of the tenant.', ({ in_flight }) => in_flight),
    tenant('weir_tenant_jobs', 'Jobs of the tenant that are not over.', ({ jobs }) => jobs),
    budget('weir_budget_limit_usd', 'What may be spent in the window that is open.', ({ limit_nanodollars }) =>
      dollars(limit_nanodollars),
    ),
    budget('weir_budget_used_usd', 'What is charged and held in the window that is open.', ({ used_nanodollars }) =>
      dollars(used_nanodollars),
    ),
  ]
}

/** For a chart: a double holds 15 digits. */
const dollars = (nanodollars: bigint): number => Number(nanodollars) / 1e9

const gaugeOf =
  <View>(views: readonly View[], labelsOf: (view: View) => Labels) =>
  (name: string, help: string, value: (view: View) => number | null): Family => ({
    name,
    help,
    type: 'gauge',
    samples: views.flatMap((view): Sample[] => {
      const found = value(view)
      return found === null ? [] : [{ labels: labelsOf(view), value: found }]
    }),
  })

const one = (name: string, help: string, value: number): Family => ({ name, help, type: 'gauge', samples: [{ value }] })

const seconds = (ms: number): number => ms / 1000
