import { Failure } from '../base/failure.ts'
import { type Admitted, type Framed, pass } from './call.ts'
import type { House } from './house.ts'

/**
 * Guards against requests that two readers would read differently: what Bun's parser lets through (it joins repeated
 * headers with a comma, accepts two Hosts, `_` in names, a body on GET). Decided from the head alone, before the body
 * is read. RFC 9110 §7.2, RFC 9112 §3.2 and §6.
 */
export const frame = (call: Admitted, _house: House): Framed | Failure => {
  const failure = headFault(call.arrival.request)
  if (failure) return failure
  return pass<Framed>(call, 'frame')
}

/** The first fault of a request's head, if any. */
export const headFault = (request: Request): Failure | undefined => {
  const headers = request.headers
  const host = headers.get('host')
  if (host === null || !HOST.test(host)) return fault('host', 'Host must name one host, with an optional port.')
  if (!request.url.startsWith('http') || request.url.includes('#'))
    return fault('target', 'The request target is not an absolute path.')
  const length = headers.get('content-length')
  const coding = headers.get('transfer-encoding')
  if (length !== null && !LENGTH.test(length)) return ambiguous('Content-Length must be one number, sent once.')
  if (length !== null && coding !== null) return ambiguous('Content-Length and Transfer-Encoding exclude each other.')
  if (coding !== null && coding.toLowerCase() !== 'chunked') return ambiguous('Transfer-Encoding must be chunked.')
  if (BODYLESS.has(request.method) && (coding !== null || (length !== null && Number(length) > 0)))
    return ambiguous(`${request.method} must not have a body.`)
  for (const [name, value] of headers as unknown as Iterable<[string, string]>) {
    if (name.includes('_')) return fault(name, `Header names with an underscore are refused: ${name}.`)
    const rule = SINGLE[name]
    if (rule !== undefined && !rule.test(value))
      return fault(name, `${name} must be sent once, in visible ASCII characters.`)
  }
  return undefined
}

const HOST = /^(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,255})(:\d{1,5})?$/
const LENGTH = /^(0|[1-9]\d{0,15})$/
const BODYLESS = new Set(['GET', 'HEAD', 'OPTIONS', 'DELETE'])
const VISIBLE = /^[\x20-\x7e]*$/
const VISIBLE_WITHOUT_COMMA = /^[\x20-\x2b\x2d-\x7e]*$/

/** Headers whose value must be one: a comma in them means that the client sent two. */
const SINGLE: Readonly<Record<string, RegExp | undefined>> = Object.assign(Object.create(null), {
  authorization: VISIBLE_WITHOUT_COMMA,
  'x-api-key': VISIBLE_WITHOUT_COMMA,
  'api-key': VISIBLE_WITHOUT_COMMA,
  'idempotency-key': VISIBLE_WITHOUT_COMMA,
  'content-type': VISIBLE_WITHOUT_COMMA,
  'content-encoding': VISIBLE,
  'x-weir-session': VISIBLE_WITHOUT_COMMA,
  'x-weir-priority': VISIBLE_WITHOUT_COMMA,
  prefer: VISIBLE,
  traceparent: VISIBLE_WITHOUT_COMMA,
})

const ambiguous = (says: string): Failure => new Failure('framing_ambiguous', { says })
const fault = (param: string, says: string): Failure => new Failure('header_invalid', { says, param })
