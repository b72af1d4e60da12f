import type { UpstreamRequest } from './transport.ts'

const NAME = /^[!#$%&'*+\-.^_`|~0-9a-z]+$/
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/
const OWN = new Set(['host', 'content-length', 'connection', 'transfer-encoding', 'upgrade', 'te', 'trailer', 'expect'])

/**
 * Throws a TypeError unless every header is one that may go to an engine: a lower-case token, not one of the transport's
 * own (framing, host, hop-by-hop), and a value without control characters (RFC 9110 §5.5), so that nothing can be injected.
 */
export const assertHeaders = (headers: UpstreamRequest['headers']): void => {
  for (const [name, value] of headers) {
    if (!NAME.test(name) || OWN.has(name)) throw new TypeError(`not a header for an engine: ${JSON.stringify(name)}`)
    if (!VALUE.test(value)) throw new TypeError(`the value of ${name} holds characters that a header cannot carry`)
  }
}

/** Lines of header lists that never change, which are sent with every call. */
const printed = new WeakMap<UpstreamRequest['headers'], string>()

const headerLines = (headers: UpstreamRequest['headers']): string => {
  const known = printed.get(headers)
  if (known !== undefined) return known
  assertHeaders(headers)
  let lines = ''
  for (const [name, value] of headers) lines += `${name}: ${value}\r\n`
  if (Object.isFrozen(headers)) printed.set(headers, lines)
  return lines
}

/** A longer head is a bug of the caller. */
export const REQUEST_HEAD_BYTES_MAX = 64 * 1024

/**
 * The head of a request as it goes on the wire, to be encoded as latin1 (RFC 9112 §3). `target` is path and query,
 * `host` is host and port. A body length is declared for every POST and for any other request that has a body. Throws a
 * TypeError for headers that may not go out ({@link assertHeaders}; a frozen list is checked once) and for a head beyond {@link REQUEST_HEAD_BYTES_MAX}.
 */
export const requestHead = (request: UpstreamRequest, target: string, host: string): string => {
  let body_bytes = 0
  for (const piece of request.body) body_bytes += piece.length
  let head = `${request.method} ${target} HTTP/1.1\r\nhost: ${host}\r\n${headerLines(request.headers)}`
  if (body_bytes > 0 || request.method === 'POST') head += `content-length: ${body_bytes}\r\n`
  head += '\r\n'
  if (head.length > REQUEST_HEAD_BYTES_MAX) throw new TypeError(`a request head of ${head.length} bytes`)
  return head
}
