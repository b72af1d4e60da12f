import type { JobMeta, JobStatus } from './job-file.ts'
import type { AnswerMeta } from './segment.ts'

/** A job as it can be shown, whoever owns it. */
export type Shown = JobStatus & {
  readonly meta: JobMeta
  readonly accepted_at_ms: number
  readonly cancel: boolean
}

/** What a client is told of a state: a job that will never begin is cancelled already. */
export const stateOf = ({ state, cancel }: Pick<Shown, 'state' | 'cancel'>): string =>
  state === 'queued' && cancel ? 'cancelled' : state

/**
 * The JSON of a job. A JSON answer stands in it byte for byte as it came, under `answer`, or `error` if the job failed;
 * any other answer as a string.
 */
export const jobObject = (
  id: string,
  job: Shown,
  answer: { readonly meta: AnswerMeta; readonly body: Buffer } | undefined,
): Buffer => {
  const status = stateOf(job)
  const about = {
    id,
    object: 'job',
    status,
    created_at: iso(job.accepted_at_ms),
    started_at: iso(job.started_at_ms),
    finished_at: iso(job.finished_at_ms),
    attempts: job.attempts,
    endpoint: job.meta.path,
    model: job.meta.model === '' ? null : job.meta.model,
    ...(job.cancel && status === 'running' && { cancel_requested: true }),
    ...(job.meta.webhook !== undefined && { webhook: job.webhook }),
    ...(answer && { call_id: answer.meta.call_id ?? null, answer_status: answer.meta.status }),
    ...(answer && { answer_headers: weirHeaders(answer.meta.headers) }),
  }
  const text = JSON.stringify(about)
  if (answer === undefined) return Buffer.from(text)
  return Buffer.concat([
    Buffer.from(`${text.slice(0, -1)},"${status === 'done' ? 'answer' : 'error'}":`),
    isJson(answer) ? inner(answer.body, status) : Buffer.from(JSON.stringify(answer.body.toString('utf8'))),
    Buffer.from('}'),
  ])
}

const isJson = ({ meta }: { meta: AnswerMeta }): boolean => (meta.headers['content-type'] ?? '').includes('json')

/** `{"error":{…}}` is shown as the error itself, when it is one of the gateway's own or reads like one. */
const inner = (body: Buffer, status: string): Buffer => {
  if (status === 'done') return body
  try {
    const { error } = JSON.parse(body.toString('utf8')) as { error?: unknown }
    return error === undefined ? body : Buffer.from(JSON.stringify(error))
  } catch {
    return Buffer.from(JSON.stringify(body.toString('utf8'))) // It says that it is JSON and is not.
  }
}

const weirHeaders = (headers: Readonly<Record<string, string>>): Record<string, string> =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => name.startsWith('x-weir-')))

const iso = (at_ms: number): string | null => (at_ms === 0 ? null : new Date(at_ms).toISOString())
