import type { FailureCode } from '../base/failure.ts'
import { ERROR_SCHEMA, errorResponses } from './api-errors.ts'
import { ANSWER_HEADERS, REQUEST_HEADERS } from './client-headers.ts'
import { CLIENT_EXAMPLES, CLIENT_SCHEMAS } from './client-schemas.ts'
import { PROOF_EXAMPLE, PROOF_PARAMETERS } from './proof-details.ts'
import { JOB_ACCEPTED, JOB_HEADERS, JOB_SCHEMA, jobPaths } from './job-docs.ts'
import { docsPages, type OpenApi, type Operation } from './swagger.ts'

/**
 * The client API as an OpenAPI 3 document, written as data: the addresses of the data plane carry no schemas, since
 * bodies pass through them unread. A test holds both together.
 */

const HEAD_FAILURES: readonly FailureCode[] = ['framing_ambiguous', 'header_invalid']
const KEY_FAILURES: readonly FailureCode[] = ['key_missing', 'key_invalid', 'keys_differ', 'key_expired', 'key_revoked']
const CALL_FAILURES: readonly FailureCode[] = [
  ...HEAD_FAILURES,
  ...KEY_FAILURES,
  'draining',
  'overloaded',
  'journal_full',
  'table_full',
  'body_too_large',
  'body_timeout',
  'body_cut',
  'encoding_unsupported',
  'encoding_invalid',
  'json_invalid',
  'field_invalid',
  'rate_exceeded',
  'concurrency_exceeded',
  'budget_exceeded',
  'conflict',
  'idempotency_mismatch',
  'answer_not_kept',
  'internal',
]
const ENGINE_FAILURES: readonly FailureCode[] = [
  ...CALL_FAILURES,
  'blocked',
  'forbidden',
  'model_unknown',
  'unpriced',
  'no_engine',
  'queue_full',
  'queue_timeout',
  'deadline_passed',
  'engine_unreachable',
  'engine_failed',
  'engine_invalid',
  'engine_cut',
  'engine_timeout',
  'engine_credential',
]

const STREAMING =
  'With `"stream": true` the answer is `text/event-stream`: the engine’s events, byte for byte, then `data: [DONE]`. ' +
  'A comment line (`: ping`) may stand between events while the engine is silent. The first event is in hand before the ' +
  'status goes out, so an engine that fails before it still yields a plain error, or another engine’s answer. After that ' +
  'a failure is one `error` event in the shape below and no `[DONE]`: an answer without `[DONE]` is not whole.'

type Exchange = { readonly asked: unknown; readonly answered: unknown; readonly streamed?: string }

const call = (
  summary: string,
  description: string,
  schema: string,
  exchange: Exchange,
  codes: readonly FailureCode[],
): Operation => ({
  summary,
  description: exchange.streamed === undefined ? description : `${description}\n\n${STREAMING}`,
  tags: ['calls'],
  security: SECURITY,
  parameters: [...REQUEST_HEADERS, ...JOB_HEADERS],
  requestBody: {
    required: true,
    content: {
      'application/json': { schema: { $ref: `#/components/schemas/${schema}Request` }, example: exchange.asked },
    },
  },
  responses: {
    '200': {
      description: 'The engine’s answer, unchanged.',
      headers: ANSWER_HEADERS,
      content: {
        'application/json': { schema: { $ref: `#/components/schemas/${schema}Answer` }, example: exchange.answered },
        ...(exchange.streamed !== undefined && {
          'text/event-stream': { schema: { type: 'string' }, example: exchange.streamed },
        }),
      },
    },
    ...JOB_ACCEPTED,
    ...errorResponses(codes),
  },
})

const read = (
  summary: string,
  type: string,
  schema: object,
  example: unknown,
  codes: readonly FailureCode[],
  more: object = {},
): Operation => ({
  summary,
  tags: ['reads'],
  security: [],
  responses: { '200': { description: summary, content: { [type]: { schema, example } } }, ...errorResponses(codes) },
  ...more,
})

const SECURITY = [{ bearer: [] }, { x_api_key: [] }, { api_key: [] }]

const MODEL_PARAMETER = {
  in: 'path',
  name: 'model',
  required: true,
  description: 'Name of a model; its slashes may stand as they are.',
  schema: { type: 'string' },
  example: 'demo',
}

const ECHO_EXAMPLE: Exchange = {
  asked: { hello: 'river' },
  answered: { status: 'success', received: { hello: 'river' } },
}

const PATHS: OpenApi['paths'] = {
  '/v1/chat/completions': {
    post: call('Chat completion', 'The next message.', 'Chat', CLIENT_EXAMPLES.chat, ENGINE_FAILURES),
  },
  '/v1/completions': {
    post: call('Completion', 'The continuation of a text.', 'Completion', CLIENT_EXAMPLES.completions, ENGINE_FAILURES),
  },
  '/v1/embeddings': {
    post: call('Embeddings', 'Vectors of texts.', 'Embedding', CLIENT_EXAMPLES.embeddings, ENGINE_FAILURES),
  },
  '/data': {
    post: call(
      'Echo of the body',
      'Through the whole pipeline to no engine, for load tests.',
      'Echo',
      ECHO_EXAMPLE,
      CALL_FAILURES,
    ),
  },
  '/v1/models': {
    get: read(
      'Models that this key may use',
      'application/json',
      {
        type: 'object',
        properties: {
          object: { type: 'string' },
          data: { type: 'array', items: { $ref: '#/components/schemas/Model' } },
        },
      },
      { object: 'list', data: [CLIENT_EXAMPLES.model] },
      [...HEAD_FAILURES, ...KEY_FAILURES],
      { security: SECURITY },
    ),
  },
  '/v1/models/{model}': {
    get: read(
      'One model',
      'application/json',
      { $ref: '#/components/schemas/Model' },
      CLIENT_EXAMPLES.model,
      [...HEAD_FAILURES, ...KEY_FAILURES, 'model_unknown'],
      { security: SECURITY, parameters: [MODEL_PARAMETER] },
    ),
  },
  '/v1/calls/{id}/proof': {
    get: read(
      'Proof that one of your calls is in the ledger',
      'application/json',
      { type: 'object' },
      PROOF_EXAMPLE,
      [...HEAD_FAILURES, ...KEY_FAILURES, 'field_invalid', 'not_found', 'overloaded'],
      { security: SECURITY, parameters: PROOF_PARAMETERS },
    ),
  },
  ...jobPaths(SECURITY),
  '/health': { get: read('This worker is up', 'text/plain', { type: 'string' }, 'OK', ['internal']) },
  '/': { get: read('Where to look', 'text/plain', { type: 'string' }, 'Weir. …', ['internal']) },
}

/** The OpenAPI 3 document of the client API. */
export const clientDocument = (): OpenApi => ({
  openapi: '3.0.3',
  info: {
    title: 'Weir: client API',
    version: '1',
    description:
      'OpenAI-compatible. Any address not listed answers 404 `address_unknown`, another method 405 `method_not_allowed`.',
  },
  tags: [
    { name: 'calls', description: 'Limited, recorded and billed.' },
    { name: 'jobs', description: 'Calls whose clients do not wait.' },
    { name: 'reads', description: 'Free.' },
  ],
  paths: PATHS,
  components: {
    securitySchemes: {
      bearer: { type: 'http', scheme: 'bearer', description: 'Authorization: Bearer KEY' },
      x_api_key: { type: 'apiKey', in: 'header', name: 'x-api-key' },
      api_key: { type: 'apiKey', in: 'header', name: 'api-key' },
    },
    schemas: {
      ...CLIENT_SCHEMAS,
      Job: JOB_SCHEMA,
      EchoRequest: { description: 'Any JSON.' },
      EchoAnswer: {
        type: 'object',
        properties: {
          status: { type: 'string', enum: ['success'] },
          received: { description: 'The body, byte for byte.' },
        },
      },
      Error: ERROR_SCHEMA,
    },
  },
})

/** `GET /docs`, `/docs/json` and the page's files for the data plane. */
export const clientDocs = () => docsPages('Weir: client API', clientDocument)
