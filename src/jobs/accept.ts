import { Failure } from '../base/failure.ts'
import type { Screened } from '../pipeline/call.ts'
import type { House } from '../pipeline/house.ts'
import { keepAnswer } from '../pipeline/idempotency.ts'
import { endCall } from '../pipeline/settle.ts'
import { giveCounts, takeCounts } from '../table/counts.ts'
import type { JobMeta } from './job-file.ts'
import { jobsSubject } from './job-places.ts'
import { jobObject } from './show.ts'
import type { OwnJob } from './store.ts'
import { webhookOf } from './webhook-url.ts'

/** Headers of the client that a later run needs. */
const KEPT = ['content-type', 'traceparent', 'tracestate', 'x-weir-session', 'x-weir-priority'] as const

/** What takes a job that is accepted. */
export type Jobs = {
  /** Bytes of all jobs of this worker on the disk. */
  bytes(): number
  add(meta: JobMeta, body: Uint8Array): Promise<OwnJob | Failure>
  push(job: OwnJob): void
}

/** True if a client prefers not to wait (RFC 7240 §4.1). */
export const respondAsync = (headers: Headers): boolean => {
  const prefer = headers.get('prefer')
  return prefer !== null && prefer.split(',').some((one) => one.split(';')[0]!.trim().toLowerCase() === 'respond-async')
}

/**
 * Accepts a call whose client does not wait: 202 with the job, once it is written down. Everything that the call held is
 * given back; its run takes it anew. Undefined if the client waits.
 */
export const acceptJob = (call: Screened, house: House, jobs: Jobs): Promise<Response | Failure> | undefined =>
  respondAsync(call.headers)
    ? accept(call, house, jobs)
    : call.headers.has('x-weir-webhook')
      ? Promise.resolve(NO_JOB)
      : undefined

const NO_JOB = new Failure('header_invalid', {
  says: 'x-weir-webhook is told the end of a job; the client of a call that is no job waits for it: send Prefer: respond-async, or leave the webhook out.',
  param: 'x-weir-webhook',
})

const accept = async (call: Screened, house: House, jobs: Jobs): Promise<Response | Failure> => {
  const settings = call.catalogue.config.jobs
  if (call.body.stream && call.arrival.endpoint.streams)
    return new Failure('field_invalid', {
      says: '"stream" is true; a job is answered whole: leave "stream" out, or the header Prefer: respond-async.',
      param: 'stream',
    })
  const webhook = webhookOf(call.headers, call.tenant.config.webhook, settings.webhook_private)
  if (webhook instanceof Failure) return webhook
  const subject = jobsSubject(house, call.tenant.name)
  if (subject === undefined) return new Failure('table_full', { retry_after_s: 60 })
  const place = { subject, limit: settings.queue_max }
  if (jobs.bytes() + call.body.bytes.length > settings.bytes_max)
    return full('The queue of jobs holds as many bytes as jobs.bytes_max allows.')
  if (takeCounts(house.table, house.worker, [place]) >= 0)
    return full(`This tenant has ${settings.queue_max} jobs that are not done (jobs.queue_max).`)
  const meta: JobMeta = {
    tenant: call.tenant.name,
    key_id: call.key.id,
    key_sha256: call.key.sha256,
    path: call.arrival.endpoint.path,
    model: call.model?.name ?? '',
    headers: keptHeaders(call.headers),
    ...(webhook !== undefined && { webhook }),
  }
  const job = await jobs.add(meta, call.body.bytes)
  if (job instanceof Failure) {
    giveCounts(house.table, house.worker, [place])
    return job
  }
  const bytes = jobObject(job.id, { ...job.status, ...job, cancel: false }, undefined)
  const headers = {
    'content-type': 'application/json',
    location: `/v1/jobs/${job.id}`,
    'preference-applied': 'respond-async',
    'x-weir-call-id': call.id,
  }
  await keepAnswer(call, house, 202, headers, bytes)
  endCall(call, house, { ending: 'whole', status: 202 })
  house.metrics.add('answers_2xx', 1)
  jobs.push(job)
  return new Response(bytes as BodyInit, { status: 202, headers })
}

const full = (says: string): Failure => new Failure('queue_full', { says, retry_after_s: 5 })

/** A job yields to calls whose clients wait, unless it says otherwise. */
const keptHeaders = (headers: Headers): [string, string][] => {
  const kept: [string, string][] = headers.has('x-weir-priority') ? [] : [['x-weir-priority', 'low']]
  for (const name of KEPT) {
    const value = headers.get(name)
    if (value !== null) kept.push([name, value])
  }
  return kept
}
