import { Failure, type FailureCode } from '../base/failure.ts'
import { admit } from '../pipeline/admit.ts'
import { type Arrival, type Call, type Identified, pass } from '../pipeline/call.ts'
import { type Endpoint, ENDPOINTS } from '../pipeline/endpoints.ts'
import { enrich } from '../pipeline/enrich.ts'
import { forward } from '../pipeline/forward.ts'
import type { House } from '../pipeline/house.ts'
import { keyFault, tenantOf } from '../pipeline/identify.ts'
import { limit } from '../pipeline/limit.ts'
import { route } from '../pipeline/route.ts'
import { screen } from '../pipeline/screen.ts'
import { endCall } from '../pipeline/settle.ts'
import type { AnswerMeta } from './segment.ts'
import type { JobStore, OwnJob } from './store.ts'

/** What became of a run. `kept`: its answer is with the job already. */
export type Ran =
  | { readonly kind: 'kept' }
  | { readonly kind: 'answered'; readonly meta: AnswerMeta; readonly body: Uint8Array }
  | { readonly kind: 'failed'; readonly failure: Failure; readonly call_id: string | undefined }

/** What a run is given: where its answer goes, what breaks it off, and what is called once it has a place at an engine. */
export type Run = { readonly store: JobStore; readonly signal: AbortSignal; placed(): void }

const BY_PATH: ReadonlyMap<string, Endpoint> = new Map(Object.values(ENDPOINTS).map((one) => [one.path, one]))

/**
 * Runs a job as a call of its own: the stages of the hot path, with the key that it was accepted under, as that key and the
 * configuration are now. Its request was counted when it was accepted. The answer is with the job before the call's
 * ending is in the journal, so a process that is killed in between has charged nothing that a second run adds to.
 */
export const runJob = async (job: OwnJob, body: Uint8Array, house: House, run: Run): Promise<Ran> => {
  const endpoint = BY_PATH.get(job.meta.path)
  if (endpoint === undefined) return failed(new Failure('address_unknown'))
  const admitted = admit(arrivalOf(job, body, endpoint, run.signal), house)
  if (admitted instanceof Failure) return failed(admitted)
  const call: Call = admitted
  const answer = await guarded(call, job, house, run)
  if (answer instanceof Failure) {
    if (call.open) endCall(call, house, { ending: 'refused', status: answer.status, failure: answer.code })
    if (answer.code === 'internal')
      house.log('error', 'internal_error', { call_id: call.id, job: job.id, cause: answer.detail.cause })
    return job.status.state === 'running' ? failed(answer, call.id) : { kind: 'kept' }
  }
  if (job.status.state !== 'running') return { kind: 'kept' }
  const meta = { status: answer.status, headers: Object.fromEntries(answer.headers), call_id: call.id }
  return { kind: 'answered', meta, body: new Uint8Array(await answer.arrayBuffer()) }
}

const failed = (failure: Failure, call_id?: string): Ran => ({ kind: 'failed', failure, call_id })

const guarded = async (call: Call, job: OwnJob, house: House, run: Run): Promise<Response | Failure> => {
  try {
    return await throughStages(call, job, house, run)
  } catch (cause) {
    return new Failure('internal', { cause })
  }
}

const throughStages = async (call: Call, job: OwnJob, house: House, run: Run): Promise<Response | Failure> => {
  const identified = identifyById(call, job, house)
  if (identified instanceof Failure) return identified
  const limited = await limit(identified, house)
  if (limited instanceof Failure || limited instanceof Response) return limited
  const screened = screen(limited, house)
  if (screened instanceof Failure) return screened
  const enriched = enrich(screened, house)
  if (enriched instanceof Failure) return enriched
  const routed = await route(enriched, house)
  if (routed instanceof Failure) return routed
  run.placed()
  call.keeping = keepingOf(call, job, run.store, house)
  return forward(routed, house)
}

const identifyById = (call: Call, job: OwnJob, house: House): Identified | Failure => {
  const key = house.keys.by_sha256.get(job.meta.key_sha256)
  if (key === undefined) return new Failure('key_invalid')
  const fault = keyFault(key, call.received_at_ms)
  if (fault) return fault
  const tenant = tenantOf(key, house)
  if (tenant instanceof Failure) return tenant
  call.key = key
  call.tenant = tenant
  return pass<Identified>(call, 'identify')
}

/** Keeps the answer with the job, at the moment at which an answer to a repeatable call is kept. */
const keepingOf = (call: Call, job: OwnJob, store: JobStore, house: House): Call['keeping'] => {
  const pieces: Uint8Array[] = []
  return {
    trouble: undefined,
    add: (bytes) => void pieces.push(bytes),
    complete: (status, headers) => {
      try {
        store.finish(job, status < 400 ? 'done' : 'failed', { status, headers, call_id: call.id }, pieces)
      } catch (cause) {
        house.log('error', 'job_answer_not_kept', { job: job.id, call_id: call.id, cause })
      }
    },
    release: () => undefined,
  }
}

const arrivalOf = (job: OwnJob, body: Uint8Array, endpoint: Endpoint, signal: AbortSignal): Arrival => ({
  request: new Request(`http://weir${job.meta.path}`, {
    method: 'POST',
    headers: [
      ...job.meta.headers.map(([name, value]): [string, string] => [name, value]),
      ['content-length', String(body.length)],
    ],
    body: body as BodyInit,
    signal,
  }),
  endpoint,
  keepOpen: () => undefined,
  counted: true,
})

/** Failures that say nothing of the job: it waits and tries again, and the run does not count. */
export const WAITS: ReadonlySet<FailureCode> = new Set<FailureCode>([
  'rate_exceeded',
  'concurrency_exceeded',
  'overloaded',
  'draining',
  'journal_full',
  'table_full',
  'no_engine',
  'queue_full',
  'queue_timeout',
])

/** Failures after which another run may succeed; it counts. */
export const TRIES_AGAIN: ReadonlySet<FailureCode> = new Set<FailureCode>([
  'engine_unreachable',
  'engine_failed',
  'engine_invalid',
  'engine_cut',
  'engine_timeout',
  'deadline_passed',
  'internal',
])
