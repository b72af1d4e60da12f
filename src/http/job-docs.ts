import type { FailureCode } from '../base/failure.ts'
import { errorResponses } from './api-errors.ts'
import type { OpenApi } from './swagger.ts'

/** What the description of the client API says of jobs. */

const JOB_EXAMPLE = {
  id: 'job_7f8d4ac7c2b52d9fb1a1a9d9c2d1e0f700000000010000000000020',
  object: 'job',
  status: 'queued',
  created_at: '2026-01-31T09:30:00.000Z',
  started_at: null,
  finished_at: null,
  attempts: 0,
  endpoint: '/v1/chat/completions',
  model: 'demo',
}

/** Headers with which any call becomes a job. */
export const JOB_HEADERS = [
  {
    in: 'header',
    name: 'Prefer',
    required: false,
    description:
      '`respond-async` (RFC 7240): do not wait. The answer is 202 with a job, which is kept over restarts, runs as soon as ' +
      'an engine has room, and is charged like any call. Not with `"stream": true`.',
    schema: { type: 'string', enum: ['respond-async'] },
  },
  {
    in: 'header',
    name: 'x-weir-webhook',
    required: false,
    description:
      'Where the end of the job is told: a POST of the job, tried again up to five times, signed in `x-weir-signature` as ' +
      '`t=SECONDS,v1=HEX` with HEX = HMAC-SHA256 of `SECONDS.BODY` under the tenant’s webhook secret.',
    schema: { type: 'string' },
  },
]

/** The answer of a call that has become a job. */
export const JOB_ACCEPTED = {
  '202': {
    description: 'The call was accepted as a job (`Prefer: respond-async`).',
    headers: { Location: { description: 'The job’s address.', schema: { type: 'string' } } },
    content: { 'application/json': { schema: { $ref: '#/components/schemas/Job' }, example: JOB_EXAMPLE } },
  },
}

export const JOB_SCHEMA = {
  type: 'object',
  properties: {
    id: { type: 'string' },
    object: { type: 'string', enum: ['job'] },
    status: { type: 'string', enum: ['queued', 'running', 'done', 'failed', 'cancelled'] },
    created_at: { type: 'string', format: 'date-time' },
    started_at: { type: 'string', format: 'date-time', nullable: true },
    finished_at: { type: 'string', format: 'date-time', nullable: true },
    attempts: { type: 'integer', description: 'Runs begun: a run that a dying process breaks off is begun again.' },
    endpoint: { type: 'string' },
    model: { type: 'string', nullable: true },
    cancel_requested: { type: 'boolean', description: 'The run is being broken off.' },
    webhook: { type: 'string', enum: ['due', 'delivered', 'given_up'] },
    call_id: { type: 'string', nullable: true, description: 'The call of the last run, as the ledger has it.' },
    answer_status: { type: 'integer', description: 'The status that a client which waits would have got.' },
    answer_headers: { type: 'object', description: 'The answer’s `x-weir-…` headers.' },
    answer: { description: 'The answer of a job that is done, byte for byte.' },
    error: { description: 'Why a job has failed.' },
  },
}

const ID = { in: 'path', name: 'id', required: true, description: 'The job’s id.', schema: { type: 'string' } }

const CODES: readonly FailureCode[] = [
  ...(['framing_ambiguous', 'header_invalid', 'key_missing', 'key_invalid', 'keys_differ'] as const),
  ...(['key_revoked', 'key_expired', 'not_found'] as const),
]

const content = (example: object) => ({
  'application/json': { schema: { $ref: '#/components/schemas/Job' }, example },
})

/** The addresses of jobs, under the security of all calls. */
export const jobPaths = (security: object[]): OpenApi['paths'] => ({
  '/v1/jobs/{id}': {
    get: {
      summary: 'A job, with its answer once it is done',
      tags: ['jobs'],
      security,
      parameters: [ID],
      responses: {
        '200': {
          description: 'The job. While it is not over, Retry-After says when to look again.',
          content: content({
            ...{ ...JOB_EXAMPLE, status: 'done', attempts: 1, answer_status: 200 },
            ...{ started_at: '2026-01-31T09:30:01.000Z', finished_at: '2026-01-31T09:30:02.000Z', answer: {} },
          }),
        },
        ...errorResponses(CODES),
      },
    },
    delete: {
      summary: 'Cancels a job',
      tags: ['jobs'],
      security,
      parameters: [ID],
      responses: {
        '200': {
          description: 'The job will not begin, or was over already: see its status.',
          content: content({ ...JOB_EXAMPLE, status: 'cancelled' }),
        },
        '202': {
          description: 'The job runs and is being broken off; what its engine made so far is charged.',
          content: content({ ...JOB_EXAMPLE, status: 'running', cancel_requested: true }),
        },
        ...errorResponses(CODES),
      },
    },
  },
})
