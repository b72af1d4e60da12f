import { describe, expect, test } from 'bun:test'
import type { ResponseHead } from '../../src/engines/http1-head.ts'
import { Http1Response, type ResponseState } from '../../src/engines/http1-response.ts'

type Outcome = { state: ResponseState; status: number | undefined; body: string; whole_at_close: boolean }

/** What a parser makes of the pieces, then of an orderly close. */
const parsed = (...pieces: Uint8Array[]): Outcome & { head: ResponseHead | undefined } => {
  let head: ResponseHead | undefined
  let body = ''
  const parser = new Http1Response({
    onHead: (found) => void (head = found),
    onBody: (bytes) => {
      if (bytes.length === 0) throw new Error('an empty piece')
      body += Buffer.from(bytes).toString('latin1')
    },
  })
  let state = parser.state
  for (const piece of pieces) {
    // What comes after the end is the connection's business, as it closes there.
    if (state === 'invalid' || state === 'surplus') break
    if (state === 'end') {
      state = 'surplus'
      break
    }
    state = parser.feed(Uint8Array.from(piece))
  }
  return { state, status: head?.status, body, whole_at_close: state === 'body' && parser.ended(), head }
}

const OK = 'HTTP/1.1 200 OK\r\n'
const CHUNKED = `${OK}transfer-encoding: chunked\r\n\r\n`
const many = (count: number, line: (n: number) => string) => Array.from({ length: count }, (_, n) => line(n)).join('')

// Each is fed whole, byte by byte and cut in two at every place (long ones at some): the outcome must be the same.
const cases: { why: string; text: string; state: ResponseState; body?: string; status?: number; at_close?: true }[] = [
  { why: 'length', text: `${OK}content-length: 3\r\n\r\nabc`, state: 'end', body: 'abc' },
  { why: 'length 0', text: `${OK}content-length: 0\r\n\r\n`, state: 'end' },
  { why: 'short', text: `${OK}content-length: 3\r\n\r\nab`, state: 'body', body: 'ab' },
  { why: 'surplus', text: `${OK}content-length: 3\r\n\r\nabcd`, state: 'surplus', body: 'abc' },
  {
    why: 'a second answer',
    text: `${OK}content-length: 1\r\n\r\na${OK}content-length: 1\r\n\r\nb`,
    state: 'surplus',
    body: 'a',
  },
  { why: 'no reason', text: 'HTTP/1.1 200\r\ncontent-length: 1\r\n\r\na', state: 'end', body: 'a' },
  { why: 'empty reason', text: 'HTTP/1.1 200 \r\ncontent-length: 1\r\n\r\na', state: 'end', body: 'a' },
  { why: 'latin1 reason', text: 'HTTP/1.1 404 pas trouv\xe9\r\ncontent-length: 0\r\n\r\n', state: 'end', status: 404 },
  { why: 'HTTP/1.0 to the close', text: 'HTTP/1.0 200 OK\r\n\r\nabc', state: 'body', body: 'abc', at_close: true },
  { why: 'to the close, empty', text: `${OK}\r\n`, state: 'body', at_close: true },
  { why: 'chunked', text: `${CHUNKED}3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n`, state: 'end', body: 'abcde' },
  {
    why: 'Chunked in capitals, size in hex',
    text: `${OK}Transfer-Encoding: CHUNKED\r\n\r\n00C\r\nabcdefghijkl\r\n0\r\n\r\n`,
    state: 'end',
    body: 'abcdefghijkl',
  },
  { why: 'extensions', text: `${CHUNKED}1;a=b\r\nx\r\n1 ; c="d;e"\r\ny\r\n0;z\r\n\r\n`, state: 'end', body: 'xy' },
  { why: 'trailers', text: `${CHUNKED}1\r\nx\r\n0\r\na: b\r\nc: d\r\n\r\n`, state: 'end', body: 'x' },
  { why: 'surplus after chunks', text: `${CHUNKED}1\r\nx\r\n0\r\n\r\nH`, state: 'surplus', body: 'x' },
  { why: 'surplus after trailers', text: `${CHUNKED}1\r\nx\r\n0\r\na: b\r\n\r\nH`, state: 'surplus', body: 'x' },
  { why: 'last chunk without its end', text: `${CHUNKED}1\r\nx\r\n0\r\n`, state: 'body', body: 'x' },
  {
    why: '1xx are skipped',
    text: `HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n${OK}content-length: 1\r\n\r\na`,
    state: 'end',
    body: 'a',
  },
  {
    why: '16 interim answers',
    text: `${many(16, () => 'HTTP/1.1 102 P\r\n\r\n')}${OK}content-length: 0\r\n\r\n`,
    state: 'end',
  },
  { why: '204', text: 'HTTP/1.1 204 No Content\r\n\r\n', state: 'end', status: 204 },
  { why: '304', text: 'HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n', state: 'end', status: 304 },
  { why: 'repeated other header', text: `${OK}x: 1\r\nx: 2\r\ncontent-length: 0\r\n\r\n`, state: 'end' },
  {
    why: 'a header named like the end of another',
    text: `${OK}x-content-length: 9\r\ncontent-length: 1\r\n\r\na`,
    state: 'end',
    body: 'a',
  },
  {
    why: 'a length in a value',
    text: `${OK}x: content-length: 9\r\ncontent-length: 1\r\n\r\na`,
    state: 'end',
    body: 'a',
  },
  { why: '256 lines', text: `${OK}${many(255, (n) => `h${n}: v\r\n`)}content-length: 0\r\n\r\n`, state: 'end' },

  { why: 'not HTTP', text: 'NOPE\r\n\r\n', state: 'invalid' },
  { why: 'not HTTP, seen at the first byte', text: '{', state: 'invalid' },
  { why: 'HTTP/2 preface', text: 'HTTP/2 200 OK\r\n\r\n', state: 'invalid' },
  { why: 'HTTP/1.2', text: 'HTTP/1.2 200 OK\r\n\r\n', state: 'invalid' },
  { why: 'lower-case http', text: 'http/1.1 200 OK\r\n\r\n', state: 'invalid' },
  { why: 'a line before the status line', text: `\r\n${OK}content-length: 0\r\n\r\n`, state: 'invalid' },
  { why: 'two digits', text: 'HTTP/1.1 20 OK\r\n\r\n', state: 'invalid' },
  { why: 'four digits', text: 'HTTP/1.1 2000 OK\r\n\r\n', state: 'invalid' },
  { why: 'status 000', text: 'HTTP/1.1 000 OK\r\n\r\n', state: 'invalid' },
  { why: '101', text: 'HTTP/1.1 101 Switching\r\nupgrade: x\r\n\r\n', state: 'invalid' },
  { why: '17 interim answers', text: `${many(17, () => 'HTTP/1.1 102 P\r\n\r\n')}`, state: 'invalid' },
  { why: 'two lengths', text: `${OK}content-length: 1\r\ncontent-length: 2\r\n\r\nab`, state: 'invalid' },
  { why: 'two equal lengths', text: `${OK}content-length: 1\r\nContent-Length: 1\r\n\r\na`, state: 'invalid' },
  { why: 'a list of lengths', text: `${OK}content-length: 1, 1\r\n\r\na`, state: 'invalid' },
  { why: 'a signed length', text: `${OK}content-length: +1\r\n\r\na`, state: 'invalid' },
  { why: 'a negative length', text: `${OK}content-length: -1\r\n\r\na`, state: 'invalid' },
  { why: 'a hex length', text: `${OK}content-length: 0x1\r\n\r\na`, state: 'invalid' },
  { why: 'a length with a leading zero', text: `${OK}content-length: 01\r\n\r\na`, state: 'invalid' },
  { why: 'an empty length', text: `${OK}content-length:\r\n\r\n`, state: 'invalid' },
  { why: 'a length beyond 2^53', text: `${OK}content-length: 99999999999999999999\r\n\r\n`, state: 'invalid' },
  {
    why: 'length and chunked',
    text: `${OK}content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n`,
    state: 'invalid',
  },
  { why: 'another coding', text: `${OK}transfer-encoding: gzip\r\n\r\n`, state: 'invalid' },
  {
    why: 'chunked twice',
    text: `${OK}transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n`,
    state: 'invalid',
  },
  { why: 'gzip, chunked', text: `${OK}transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n`, state: 'invalid' },
  {
    why: 'chunked in HTTP/1.0',
    text: 'HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n',
    state: 'invalid',
  },
  { why: 'bare LF everywhere', text: 'HTTP/1.1 200 OK\ncontent-length: 1\n\na', state: 'invalid' },
  { why: 'one bare LF', text: `${OK}x: 1\ncontent-length: 1\r\n\r\na`, state: 'invalid' },
  { why: 'a bare CR', text: `${OK}x: 1\rcontent-length: 9\r\ncontent-length: 1\r\n\r\na`, state: 'invalid' },
  { why: 'a folded line', text: `${OK}x: 1\r\n y\r\ncontent-length: 1\r\n\r\na`, state: 'invalid' },
  { why: 'a blank before the colon', text: `${OK}content-length : 1\r\n\r\na`, state: 'invalid' },
  { why: 'no colon', text: `${OK}nonsense\r\ncontent-length: 1\r\n\r\na`, state: 'invalid' },
  { why: 'an empty name', text: `${OK}: 1\r\ncontent-length: 1\r\n\r\na`, state: 'invalid' },
  { why: 'NUL in a value', text: `${OK}x: \0\r\ncontent-length: 1\r\n\r\na`, state: 'invalid' },
  { why: '257 lines', text: `${OK}${many(256, (n) => `h${n}: v\r\n`)}content-length: 0\r\n\r\n`, state: 'invalid' },
  { why: 'a head beyond 64 KiB', text: `${OK}x: ${'y'.repeat(66_000)}\r\ncontent-length: 0\r\n\r\n`, state: 'invalid' },
  { why: 'a head that never ends', text: `${OK}x: ${'y'.repeat(66_000)}`, state: 'invalid' },
  { why: 'no chunk size', text: `${CHUNKED}\r\nabc\r\n0\r\n\r\n`, state: 'invalid' },
  { why: '0x in a chunk size', text: `${CHUNKED}0x3\r\nabc\r\n0\r\n\r\n`, state: 'invalid' },
  { why: 'a sign in a chunk size', text: `${CHUNKED}+3\r\nabc\r\n0\r\n\r\n`, state: 'invalid' },
  { why: 'a blank after a chunk size', text: `${CHUNKED}3 \r\nabc\r\n0\r\n\r\n`, state: 'invalid' },
  { why: 'a chunk size beyond 2^53', text: `${CHUNKED}fffffffffffffff\r\nabc`, state: 'invalid' },
  { why: 'a chunk longer than its size', text: `${CHUNKED}3\r\nabcd\r\n0\r\n\r\n`, state: 'invalid', body: 'abc' },
  { why: 'a bare LF after a chunk size', text: `${CHUNKED}3\nabc\r\n0\r\n\r\n`, state: 'invalid' },
  { why: 'a bare LF after a chunk', text: `${CHUNKED}3\r\nabc\n0\r\n\r\n`, state: 'invalid', body: 'abc' },
  { why: 'a bare CR in an extension', text: `${CHUNKED}3;a\rb\r\nabc\r\n0\r\n\r\n`, state: 'invalid' },
  { why: 'an extension beyond 4 KiB', text: `${CHUNKED}3;${'a'.repeat(4_200)}\r\nabc\r\n0\r\n\r\n`, state: 'invalid' },
  { why: 'an extension that never ends', text: `${CHUNKED}3;${'a'.repeat(4_200)}`, state: 'invalid' },
  { why: 'a trailer that is no header', text: `${CHUNKED}0\r\nnonsense\r\n\r\n`, state: 'invalid' },
  { why: 'a folded trailer', text: `${CHUNKED}0\r\na: b\r\n c\r\n\r\n`, state: 'invalid' },
  { why: 'trailers beyond 64 KiB', text: `${CHUNKED}0\r\na: ${'b'.repeat(66_000)}`, state: 'invalid' },
]

describe('one response, split in any way', () => {
  test.each(cases)('$state: $why', ({ text, state, body = '', status, at_close }) => {
    const bytes = Buffer.from(text, 'latin1')
    const { head, ...outcome } = parsed(bytes)
    expect(outcome.state).toBe(state)
    expect(outcome.body).toBe(body)
    expect(outcome.whole_at_close).toBe(at_close ?? false)
    if (state !== 'invalid') expect(head?.status).toBe(status ?? 200)
    if (bytes.length <= 4_500)
      expect(parsed(...Array.from(bytes, (byte) => Uint8Array.of(byte)))).toMatchObject(outcome)
    const stride = Math.ceil(bytes.length / 4_500) ** 3
    for (let at = 1; at < bytes.length; at += stride) {
      const found = parsed(bytes.subarray(0, at), bytes.subarray(at))
      if (found.state !== state || found.body !== body || found.status !== outcome.status)
        expect({ at, ...found }).toEqual({ at, ...outcome, head: found.head })
    }
  })
})

test.each([
  { why: 'plain', head: 'content-length: 0', keeps: true },
  { why: 'close', head: 'content-length: 0\r\nConnection: Close', keeps: false },
  { why: 'close in a list', head: 'content-length: 0\r\nconnection: x, close', keeps: false },
  {
    why: 'close on a second line',
    head: 'content-length: 0\r\nconnection: keep-alive\r\nconnection: close',
    keeps: false,
  },
  { why: 'a token that only contains it', head: 'content-length: 0\r\nconnection: not-close', keeps: true },
  { why: 'no length', head: 'x: y', keeps: false },
])('keeps the connection or not: $why', ({ head, keeps }) => {
  expect(parsed(Buffer.from(`${OK}${head}\r\n\r\n`)).head?.keeps_alive).toBe(keeps)
})

test.each([
  ['HTTP/1.0 200 OK\r\ncontent-length: 0\r\nconnection: keep-alive\r\n\r\n', 'HTTP/1.0'],
  ['HTTP/1.1 204 No Content\r\ncontent-length: 4\r\n\r\n', 'a 204 that announces a body'],
  ['HTTP/1.1 304 Not Modified\r\ntransfer-encoding: chunked\r\n\r\n', 'a 304 that announces a body'],
])('%p is not kept (%s)', (text) => {
  expect(parsed(Buffer.from(text)).head?.keeps_alive).toBe(false)
})

test('header values: trimmed of blanks only, joined, by lower-case name', () => {
  const { head } = parsed(
    Buffer.from(`${OK}A: \t b\xa0 \r\nEmpty:\r\nB: 1\r\nb:2\r\ncontent-length: 0\r\n\r\n`, 'latin1'),
  )
  expect(head?.header('a')).toBe('b\xa0')
  expect(head?.header('empty')).toBe('')
  expect(head?.header('b')).toBe('1, 2')
  expect(head?.header('c')).toBeUndefined()
})

test('a value of blanks costs no more than its length', () => {
  const blanks = ' '.repeat(60_000)
  const bytes = Buffer.from(`${OK}content-length: 0\r\nx: a${blanks}b${blanks.slice(0, 5_000)}\r\n\r\n`)
  const { head } = parsed(bytes)
  for (let n = 0; n < 100; n++) head!.header('x')
  expect(head?.header('x')).toBe(`a${blanks}b`)
})

test('chunks of one arrival come as one piece', () => {
  const pieces: string[] = []
  const parser = new Http1Response({
    onHead: () => {},
    onBody: (bytes) => void pieces.push(Buffer.from(bytes).toString()),
  })
  parser.feed(Buffer.from(`${CHUNKED}3\r\nabc\r\n2\r\nde\r\n4\r\nfg`))
  parser.feed(Buffer.from('hi\r\n1\r\nj\r\n0\r\n\r\n'))
  expect(pieces).toEqual(['abcdefg', 'hij'])
})

test('one response after the other', () => {
  const bodies: string[] = []
  const sink = { onHead: () => {}, onBody: (bytes: Uint8Array) => void bodies.push(Buffer.from(bytes).toString()) }
  const parser = new Http1Response(sink)
  for (const text of [
    `${CHUNKED}1\r\na\r\n0\r\n\r\n`,
    `${OK}content-length: 1\r\n\r\nb`,
    `${CHUNKED}1\r\nc\r\n0\r\n\r\n`,
  ]) {
    parser.reset(sink)
    expect(parser.feed(Buffer.from(text))).toBe('end')
  }
  expect(bodies).toEqual(['a', 'b', 'c'])
})
