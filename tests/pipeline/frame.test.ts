import { expect, test } from 'bun:test'
import { Failure } from '../../src/base/failure.ts'
import { headFault, pathOf } from '../../src/pipeline/frame.ts'
import { arrival } from './unit-house.ts'

const BAD = 'header_invalid'
const AMBIGUOUS = 'framing_ambiguous'

// What Bun's parser lets through and hands in; what it refuses by itself stands in the raw requests' journey.
test.each([
  // header, value as JavaScript sees it, verdict
  ['host', 'localhost', 'ok'],
  ['host', 'api', 'ok'],
  ['host', 'gw:8080', 'ok'],
  ['host', 'under_score.example', 'ok'],
  ['host', '[2001:db8::1]:443', 'ok'],
  ['host', 'evil, localhost', BAD],
  ['host', 'a@b', BAD],
  ['host', 'a/b', BAD],
  ['host', 'a b', BAD],
  ['host', 'a?b', BAD],
  ['host', 'a#b', BAD],
  ['host', 'a\\b', BAD],
  ['host', '', BAD],
  ['host', 'a:', BAD],
  ['host', 'a:b', BAD],
  ['host', 'a:123456', BAD],
  ['host', '[::1', BAD],
  ['host', 'é', BAD],
  ['content-length', '0', 'ok'],
  ['content-length', '5', 'ok'],
  ['content-length', '5, 5', AMBIGUOUS],
  ['content-length', '05', AMBIGUOUS],
  ['content-length', '+5', AMBIGUOUS],
  ['content-length', '-5', AMBIGUOUS],
  ['content-length', '0x5', AMBIGUOUS],
  ['content-length', '5.0', AMBIGUOUS],
  ['content-length', '99999999999999999', AMBIGUOUS],
  ['transfer-encoding', 'chunked', 'ok'],
  ['transfer-encoding', 'Chunked', 'ok'],
  ['transfer-encoding', 'gzip, chunked', AMBIGUOUS],
  ['transfer-encoding', 'chunked, chunked', AMBIGUOUS],
  ['transfer-encoding', 'identity', AMBIGUOUS],
  ['content_length', '3', BAD],
  ['x_api_key', 'k', BAD],
  ['__proto__', 'x', BAD],
  ['authorization', 'Bearer a, Bearer b', BAD],
  ['authorization', 'Bearer k\xe9y', BAD],
  ['authorization', 'Bearer a\tb', BAD],
  ['x-api-key', 'a, b', BAD],
  ['api-key', 'a, b', BAD],
  ['idempotency-key', 'a, b', BAD],
  ['content-type', 'application/json; charset=utf-8', 'ok'],
  ['content-type', 'application/json, text/plain', BAD],
  ['content-encoding', 'gzip, br', 'ok'],
  ['traceparent', '00-a, 00-b', BAD],
  ['x-weir-session', 'a, b', BAD],
  ['x-weir-priority', 'high, low', BAD],
  ['x-forwarded-for', '1.1.1.1, 2.2.2.2', 'ok'],
  ['accept', 'a, b', 'ok'],
  ['cookie', 'a=1; b=2', 'ok'],
])('%s: %p → %s', (name, value, verdict) => {
  const fault = headFault(arrival({ headers: { [name]: value } }).request)
  expect(fault?.code ?? 'ok').toBe(verdict)
})

test.each([
  // method, header, verdict
  ['GET', { 'content-length': '0' }, 'ok'],
  ['GET', { 'content-length': '3' }, AMBIGUOUS],
  ['GET', { 'transfer-encoding': 'chunked' }, AMBIGUOUS],
  ['HEAD', { 'content-length': '3' }, AMBIGUOUS],
  ['DELETE', { 'content-length': '3' }, AMBIGUOUS],
  ['OPTIONS', { 'content-length': '3' }, AMBIGUOUS],
  ['POST', { 'content-length': '3', 'transfer-encoding': 'chunked' }, AMBIGUOUS],
] as const)('%s with %j → %s', (method, headers, verdict) => {
  const fault = headFault(arrival({ method, headers }).request)
  expect(fault?.code ?? 'ok').toBe(verdict)
})

test('the failure names the header and never its value', () => {
  const fault = headFault(arrival({ headers: { 'x-api-key': 'secret-one, secret-two' } }).request)
  expect(fault).toBeInstanceOf(Failure)
  expect(fault!.detail.param).toBe('x-api-key')
  expect(JSON.stringify(fault!.detail)).not.toContain('secret')
})

test.each([
  ['http://localhost/v1/models/a%2Fb?x=/1', '/v1/models/a%2Fb'],
  ['http://localhost', '/'],
  ['http://localhost?a=/b', '/'],
  ['http://1.2.3.999/v1/../x', '/v1/../x'],
  ['http://[:::]:99999//evil/v1', '//evil/v1'],
  ['/x', '/x'],
  ['evil:80', '/'],
])('path of %p is %p', (url, path) => {
  expect(pathOf(url)).toBe(path)
})
