/**
 * Every way in which Weir refuses or fails a call: one table that drives the status code, the OpenAI error body, the
 * retry advice, the metrics label and the documented error list. `http/render.ts` is the only place that renders it.
 *
 * `retry`: `never` (the same request fails again), `after` (later; a Retry-After is sent), `now` (at once may work).
 */
export const FAILURES = {
  // admit
  address_unknown: { status: 404, type: 'invalid_request_error', retry: 'never', says: 'No such address.' },
  method_not_allowed: {
    status: 405,
    type: 'invalid_request_error',
    retry: 'never',
    says: 'This address does not take that method.',
  },
  body_too_large: {
    status: 413,
    type: 'invalid_request_error',
    retry: 'never',
    says: 'The request body exceeds the limit.',
  },
  overloaded: {
    status: 503,
    type: 'server_error',
    retry: 'after',
    says: 'Too many calls are in flight in this gateway.',
  },
  draining: { status: 503, type: 'server_error', retry: 'after', says: 'This gateway is stopping.' },
  journal_full: {
    status: 503,
    type: 'server_error',
    retry: 'after',
    says: 'The gateway cannot record the call, so it does not make it.',
  },
  deadline_passed: { status: 504, type: 'timeout_error', retry: 'now', says: 'The call did not finish in time.' },
  body_timeout: {
    status: 408,
    type: 'invalid_request_error',
    retry: 'now',
    says: 'The request body did not arrive in time.',
  },
  body_cut: {
    status: 400,
    type: 'invalid_request_error',
    retry: 'now',
    says: 'The request body ended before its declared end.',
  },
  // frame
  framing_ambiguous: {
    status: 400,
    type: 'invalid_request_error',
    retry: 'never',
    says: 'The request can be read in two ways.',
  },
  header_invalid: {
    status: 400,
    type: 'invalid_request_error',
    retry: 'never',
    says: 'A request header is not acceptable.',
  },
  // identify
  key_missing: { status: 401, type: 'authentication_error', retry: 'never', says: 'No API key was given.' },
  key_invalid: { status: 401, type: 'authentication_error', retry: 'never', says: 'The API key is not valid.' },
  keys_differ: {
    status: 400,
    type: 'invalid_request_error',
    retry: 'never',
    says: 'The request carries two different API keys.',
  },
  key_expired: { status: 401, type: 'authentication_error', retry: 'never', says: 'The API key has expired.' },
  key_revoked: { status: 401, type: 'authentication_error', retry: 'never', says: 'The API key was revoked.' },
  forbidden: { status: 403, type: 'permission_error', retry: 'never', says: 'This key may not do that.' },
  // limit
  rate_exceeded: { status: 429, type: 'rate_limit_error', retry: 'after', says: 'The rate limit is exceeded.' },
  concurrency_exceeded: { status: 429, type: 'rate_limit_error', retry: 'after', says: 'Too many calls at once.' },
  budget_exceeded: {
    status: 429,
    type: 'insufficient_quota',
    retry: 'after',
    says: 'The budget does not cover this call.',
  },
  table_full: {
    status: 503,
    type: 'server_error',
    retry: 'after',
    says: 'The gateway tracks as many keys and tenants as it can hold.',
  },
  // body
  encoding_unsupported: {
    status: 415,
    type: 'invalid_request_error',
    retry: 'never',
    says: 'This content encoding is not supported.',
  },
  encoding_invalid: {
    status: 400,
    type: 'invalid_request_error',
    retry: 'never',
    says: 'The compressed request body is damaged.',
  },
  json_invalid: {
    status: 400,
    type: 'invalid_request_error',
    retry: 'never',
    says: 'The request body is not valid JSON.',
  },
  field_invalid: {
    status: 400,
    type: 'invalid_request_error',
    retry: 'never',
    says: 'A field of the request is not acceptable.',
  },
  model_unknown: {
    status: 404,
    type: 'invalid_request_error',
    retry: 'never',
    says: 'The model does not exist or this key may not use it.',
  },
  not_found: { status: 404, type: 'invalid_request_error', retry: 'never', says: 'Not found.' },
  conflict: {
    status: 409,
    type: 'invalid_request_error',
    retry: 'after',
    says: 'A request with this Idempotency-Key is in progress.',
  },
  idempotency_mismatch: {
    status: 422,
    type: 'invalid_request_error',
    retry: 'never',
    says: 'This Idempotency-Key was used with another request.',
  },
  answer_not_kept: {
    status: 410,
    type: 'invalid_request_error',
    retry: 'never',
    says: 'The call with this Idempotency-Key is done, but its answer could not be kept. Use a new key to run it again.',
  },
  // screen
  blocked: {
    status: 403,
    type: 'content_policy_violation',
    retry: 'never',
    says: 'The request was blocked by a rule.',
  },
  // route
  no_engine: { status: 503, type: 'server_error', retry: 'after', says: 'No engine can take this call now.' },
  queue_full: { status: 429, type: 'rate_limit_error', retry: 'after', says: 'The queue for this model is full.' },
  queue_timeout: { status: 503, type: 'server_error', retry: 'after', says: 'The call waited too long for an engine.' },
  unpriced: {
    status: 400,
    type: 'invalid_request_error',
    retry: 'never',
    says: 'The model has no price and is not declared free.',
  },
  // forward
  engine_unreachable: { status: 502, type: 'server_error', retry: 'now', says: 'The engine could not be reached.' },
  engine_failed: { status: 502, type: 'server_error', retry: 'now', says: 'The engine failed.' },
  engine_invalid: {
    status: 502,
    type: 'server_error',
    retry: 'now',
    says: 'The engine sent an answer that cannot be understood.',
  },
  engine_cut: {
    status: 502,
    type: 'server_error',
    retry: 'now',
    says: 'The engine ended its answer before it was whole.',
  },
  engine_timeout: { status: 504, type: 'timeout_error', retry: 'now', says: 'The engine did not answer in time.' },
  engine_credential: {
    status: 502,
    type: 'server_error',
    retry: 'never',
    says: 'The engine refused the credential of the gateway.',
  },
  client_gone: { status: 499, type: 'invalid_request_error', retry: 'now', says: 'The client left.' },
  // a bug
  internal: { status: 500, type: 'server_error', retry: 'now', says: 'Internal error.' },
} as const satisfies Record<string, FailureRow>

type FailureRow = { status: number; type: string; retry: 'never' | 'after' | 'now'; says: string }

/** The code of a failure: a row of {@link FAILURES}. */
export type FailureCode = keyof typeof FAILURES

/** What a failure may add to its row. `cause` is logged and never sent; everything else reaches the client. */
export type FailureDetail = {
  /** Replaces the row's sentence. */
  readonly says?: string
  /** The request field or header at fault. */
  readonly param?: string
  /** Whole seconds until a retry can work, at least 1. */
  readonly retry_after_s?: number
  /** Headers that go out with the refusal (rate-limit headers). */
  readonly headers?: Readonly<Record<string, string>>
  readonly cause?: unknown
}

/** A refusal as a value: stages return it, only bugs throw. */
export class Failure {
  readonly code: FailureCode
  readonly detail: FailureDetail
  constructor(code: FailureCode, detail: FailureDetail = {}) {
    this.code = code
    this.detail = detail
  }

  get status(): number {
    return FAILURES[this.code].status
  }
}

/** The OpenAI error object of a failure, without its cause. */
export const errorBody = (failure: Failure) => {
  const row = FAILURES[failure.code]
  return {
    error: {
      message: failure.detail.says ?? row.says,
      type: row.type,
      param: failure.detail.param ?? null,
      code: failure.code,
    },
  }
}

/** A failure that ends a process or its start, as what is thrown. */
export const errorOf = ({ code, detail }: Failure): Error => new Error(detail.says ?? code, { cause: detail.cause })
