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
  // One plain object: half the time of iterating over the headers. `__proto__` is an own key of it like any other.
  const all = request.headers.toJSON() as Readonly<Record<string, string | undefined>>
  const host = all['host']
  if (host === undefined || !HOST.test(host)) return fault('host', 'Host must name one host, with an optional port.')
  if (!request.url.startsWith('http') || request.url.includes('#'))
    return fault('target', 'The request target is not an absolute path.')
  const length = all['content-length']
  const coding = all['transfer-encoding']
  if (length !== undefined && !LENGTH.test(length)) return ambiguous('Content-Length must be one number, sent once.')
  if (length !== undefined && coding !== undefined)
    return ambiguous('Content-Length and Transfer-Encoding exclude each other.')
  if (coding !== undefined && coding.toLowerCase() !== 'chunked') return ambiguous('Transfer-Encoding must be chunked.')
  if (BODYLESS.has(request.method) && (coding !== undefined || (length !== undefined && length !== '0')))
    return ambiguous(`${request.method} must not have a body.`)
  for (const name in all)
    if (name.includes('_')) return fault(name, `Header names with an underscore are refused: ${name}.`)
  for (const [name, rule] of SINGLE) {
    const value = all[name]
    if (value !== undefined && !rule.test(value))
      return fault(name, `${name} must be sent once, in visible ASCII characters.`)
  }
  return undefined
}

/** The path of a request target as Bun gives it, decoded nowhere; `/` if there is none. Never throws, whatever the Host is. */
export const pathOf = (url: string): string => PATH.exec(url)?.[1] ?? '/'

const PATH = /^(?:[a-z]+:\/\/[^/?]*)?(\/[^?]*)/
const HOST = /^(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,255})(:\d{1,5})?$/
const LENGTH = /^(0|[1-9]\d{0,15})$/
const BODYLESS = new Set(['GET', 'HEAD', 'OPTIONS', 'DELETE', 'TRACE'])
const VISIBLE = /^[\x20-\x7e]*$/
const VISIBLE_WITHOUT_COMMA = /^[\x20-\x2b\x2d-\x7e]*$/

/** Headers whose value must be one: a comma in them means that the client sent two. */
const SINGLE: readonly (readonly [name: string, rule: RegExp])[] = [
  ['authorization', VISIBLE_WITHOUT_COMMA],
  ['x-api-key', VISIBLE_WITHOUT_COMMA],
  ['api-key', VISIBLE_WITHOUT_COMMA],
  ['idempotency-key', VISIBLE_WITHOUT_COMMA],
  ['content-type', VISIBLE_WITHOUT_COMMA],
  ['content-encoding', VISIBLE],
  ['x-weir-session', VISIBLE_WITHOUT_COMMA],
  ['x-weir-priority', VISIBLE_WITHOUT_COMMA],
  ['prefer', VISIBLE],
  ['traceparent', VISIBLE_WITHOUT_COMMA],
]

const ambiguous = (says: string): Failure => new Failure('framing_ambiguous', { says })
const fault = (param: string, says: string): Failure => new Failure('header_invalid', { says, param })
