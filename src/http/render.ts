import { errorBody, type Failure, type FailureCode, FAILURES } from '../base/failure.ts'

/** The only place that turns a failure into a response: its row's status, the OpenAI error body, Retry-After. */
export const renderFailure = (failure: Failure, call_id?: string): Response => {
  const headers = new Headers(failure.detail.headers)
  headers.set('content-type', 'application/json')
  if (call_id !== undefined) headers.set('x-weir-call-id', call_id)
  if (FAILURES[failure.code].retry === 'after')
    headers.set('retry-after', String(Math.max(1, Math.ceil(failure.detail.retry_after_s ?? 1))))
  if (failure.status === 401) headers.set('www-authenticate', 'Bearer')
  // What follows on this connection could be taken for the next request, or comes from a sender that is not to be trusted.
  if (CLOSING.has(failure.code)) headers.set('connection', 'close')
  return new Response(JSON.stringify(errorBody(failure)), { status: failure.status, headers })
}

const CLOSING: ReadonlySet<FailureCode> = new Set<FailureCode>([
  'body_too_large',
  'body_timeout',
  'body_cut',
  'framing_ambiguous',
  'header_invalid',
  'draining',
])
