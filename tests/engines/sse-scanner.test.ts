import { describe, expect, test } from 'bun:test'

import { Failure } from '../../src/base/failure.ts'
import { SseScanner } from '../../src/engines/sse-scanner.ts'
import { forAll, type Roll } from './for-all.ts'

type Seen = { kind: string; name: string; data: string; raw: string }

const seenOf = (scanner: SseScanner): Seen => ({
  kind: scanner.kind,
  name: scanner.name,
  data: Buffer.from(scanner.data_buffer.subarray(scanner.data_start, scanner.data_end)).toString(),
  raw: Buffer.from(scanner.buffer.subarray(scanner.start, scanner.end)).toString('latin1'),
})

const readAll = (chunks: readonly Uint8Array[], scanner = new SseScanner()): Seen[] => {
  const seen: Seen[] = []
  for (const chunk of chunks) {
    scanner.push(chunk)
    for (;;) {
      const got = scanner.next()
      if (got instanceof Failure) throw new Error(got.detail.says)
      if (!got) break
      seen.push(seenOf(scanner))
    }
  }
  return seen
}

const split = (bytes: Uint8Array, ...cuts: number[]): Uint8Array[] =>
  [0, ...cuts].map((from, i) => bytes.slice(from, cuts[i] ?? bytes.length))
const single = (bytes: Uint8Array): Uint8Array[] => Array.from(bytes, (_, at) => bytes.slice(at, at + 1))

/** What a client is told: events that are more than comments. */
const told = (seen: readonly Seen[]) =>
  seen.filter((one) => one.kind !== 'comment').map(({ kind, name, data }) => [kind, name, data])
const rawOf = (seen: readonly Seen[]): string => seen.map((one) => one.raw).join('')

const chunk = (delta: unknown, finish: string | null = null) =>
  JSON.stringify({ id: 'chatcmpl-t1', choices: [{ index: 0, delta, finish_reason: finish }] })
const D = (data: string) => `data: ${data}\n\n`
const answer = [chunk({ content: 'x' }), chunk({}, 'stop'), '{"choices":[],"usage":{"prompt_tokens":3}}', '[DONE]']

describe('one stream', () => {
  test.each([
    ['nothing', '', []],
    ['an event', 'data: a\n\n', [['data', '', 'a']]],
    ['no space', 'data:a\n\n', [['data', '', 'a']]],
    ['two spaces: one is text', 'data:  a\n\n', [['data', '', ' a']]],
    ['lines joined', 'data: a\ndata:b\ndata\ndata: c\n\n', [['data', '', 'a\nb\n\nc']]],
    [
      'CRLF',
      'data: a\r\n\r\ndata: b\r\n\r\n',
      [
        ['data', '', 'a'],
        ['data', '', 'b'],
      ],
    ],
    [
      'CR',
      'data: a\r\rdata: b\r\r',
      [
        ['data', '', 'a'],
        ['data', '', 'b'],
      ],
    ],
    [
      'mixed ends',
      'data: a\r\ndata: b\rdata: c\n\r\ndata: d\r\n\n',
      [
        ['data', '', 'a\nb\nc'],
        ['data', '', 'd'],
      ],
    ],
    ['a name', 'event: error\ndata: {}\nid: 7\n\n', [['data', 'error', '{}']]],
    ['the last name counts', 'event: a\nevent:b\ndata: x\n\n', [['data', 'b', 'x']]],
    ['other fields', 'dataX: no\ndat: no\n data: no\nevents: no\ndata: yes\n\n', [['data', '', 'yes']]],
    [
      'empty data',
      'data:\n\ndata: \n\ndata\n\n',
      [
        ['empty', '', ''],
        ['empty', '', ''],
        ['empty', '', ''],
      ],
    ],
    [
      'no data',
      'retry: 1000\n\nevent: keepalive\n\nid: 1\n\n',
      [
        ['empty', '', ''],
        ['empty', 'keepalive', ''],
        ['empty', '', ''],
      ],
    ],
    ['comments', ': OPENROUTER PROCESSING\n\n:\n\n: ping\ndata: a\n\n', [['data', '', 'a']]],
    ['a comment within', 'data: a\n: ping\ndata: b\n\n', [['data', '', 'a\nb']]],
    ['empty lines', '\n\n\r\n\rdata: a\n\n\n\n', [['data', '', 'a']]],
    ['colons in data', 'data: {"a":"data: b"}\n\n', [['data', '', '{"a":"data: b"}']]],
    ['a byte order mark', '\ufeffdata: a\n\n', [['data', '', 'a']]],
    ['a mark before a comment', '\ufeff: a\ndata: a\n\n', [['data', '', 'a']]],
    ['a mark before an empty line', '\ufeff\ndata: a\n\n', [['data', '', 'a']]],
    [
      'a second mark is text',
      'data: a\n\n\ufeffdata: b\n\n',
      [
        ['data', '', 'a'],
        ['empty', '', ''],
      ],
    ],
    ['an unfinished event', 'data: a\n\ndata: b\n', [['data', '', 'a']]],
    ['NUL and controls', 'data: \u0000\u0001\t\n\n', [['data', '', '\u0000\u0001\t']]],
  ])('%s', (_, text, want) => {
    const bytes = Buffer.from(text)
    const whole = readAll([bytes])
    expect(told(whole)).toEqual(want)
    // Split in two at every byte, in three at every pair, and byte by byte: the same events and the same bytes.
    const ways = [single(bytes)]
    for (let one = 0; one <= bytes.length; one++) {
      ways.push(split(bytes, one))
      for (let two = one; two <= bytes.length; two++) ways.push(split(bytes, one, two))
    }
    for (const way of ways) {
      const scanner = new SseScanner()
      const seen = readAll(way, scanner)
      expect(told(seen)).toEqual(want)
      const pending = scanner.pending_bytes
      expect(scanner.finish()).toBe(pending > 0)
      expect(rawOf(seen) + (pending > 0 ? seenOf(scanner).raw : '')).toBe(bytes.toString('latin1'))
    }
  })
})

describe('C07: one answer, five framings', () => {
  const want = answer.map((data) => ['data', '', data])
  const crlf = Buffer.from(answer.map(D).join('').replaceAll('\n', '\r\n'))
  test('CRLF', () => expect(told(readAll([crlf]))).toEqual(want))
  test('CRLF with a read between CR and LF', () => {
    const cuts = [...crlf.keys()].filter((at) => crlf[at] === 0x0a)
    const scanner = new SseScanner()
    const seen = readAll(split(crlf, ...cuts), scanner)
    expect(told(seen)).toEqual(want)
    expect(rawOf(seen)).toBe(crlf.toString('latin1'))
  })
  test('no space', () =>
    expect(told(readAll([Buffer.from(answer.map((data) => `data:${data}\n\n`).join(''))]))).toEqual(want))
  test('a byte a read', () => expect(told(readAll(single(Buffer.from(answer.map(D).join('')))))).toEqual(want))
  test('two million letters in one event, whole, in reads of 1460 and in single bytes', () => {
    const long = Buffer.from(D(chunk({ content: 'a'.repeat(2_000_000) })) + D('[DONE]'))
    const cuts = Array.from({ length: Math.floor(long.length / 1460) }, (_, i) => (i + 1) * 1460)
    const whole = readAll([long])
    expect(whole.map((one) => one.data.length)).toEqual([2_000_000 + chunk({ content: '' }).length, 6])
    expect(readAll(split(long, ...cuts))).toEqual(whole)
    expect(readAll(single(long))).toEqual(whole)
  })
})

test('C06: keep-alives of all kinds leave the data alone', () => {
  const text =
    ': OPENROUTER PROCESSING\n\n:\n\nretry: 1000\n\nevent: keepalive\n\ndata:\n\n' +
    `${D(chunk({ content: 'a' }))}: ping - 1\n\n: ping\n${D(chunk({ content: 'b' }))}${D(chunk({}, 'stop'))}${D('[DONE]')}`
  for (const chunks of [[Buffer.from(text)], single(Buffer.from(text))]) {
    const data = readAll(chunks).filter((one) => one.kind === 'data')
    expect(data.map((one) => one.data)).toEqual([
      chunk({ content: 'a' }),
      chunk({ content: 'b' }),
      chunk({}, 'stop'),
      '[DONE]',
    ])
    expect(data.every((one) => !one.raw.includes('ping'))).toBe(true)
  }
})

test('C08: characters cut between reads', () => {
  const event = Buffer.from(
    'data: {"id":"chatcmpl-t1","object":"chat.completion.chunk","created":1700000000,"model":"m1","choices":[{"index":0,"delta":{"content":"안녕 🌍"},"finish_reason":null}]}\n\n',
  )
  expect(event.length).toBe(174)
  expect(readAll(split(event, 137, 144))).toEqual(readAll([event]))
  expect(JSON.parse(readAll(split(event, 137, 144))[0]!.data).choices[0].delta.content).toBe('안녕 🌍')
})

describe('when an event is complete', () => {
  test.each([
    ['at the LF of its empty line', 'data: a\n\n', 1],
    ['at a CR that ends the chunk', 'data: a\r\n\r', 1],
    ['at the second lone CR', 'data: a\r\r', 1],
    ['not before its empty line', 'data: a\r\n', 0],
    ['a comment at the end of its line', ': ping\n', 1],
    ['a comment in the middle with its event', 'data: a\n: ping\n', 0],
  ])('%s', (_, text, count) => expect(readAll([Buffer.from(text)]).length).toBe(count))

  test('the LF that a CR left behind comes at once, as a comment', () => {
    const seen = readAll([Buffer.from('data: a\r\n\r'), Buffer.from('\n')])
    expect(seen.map((one) => [one.kind, one.raw])).toEqual([
      ['data', 'data: a\r\n\r'],
      ['comment', '\n'],
    ])
  })
})

test('events of one chunk are views of it; one that began earlier has a buffer that is never written again', () => {
  const scanner = new SseScanner()
  const first = Buffer.from('data: a\n\ndata: b\n\nda')
  scanner.push(first)
  expect([scanner.next(), scanner.buffer === first, scanner.start, scanner.end]).toEqual([true, true, 0, 9])
  expect([scanner.next(), scanner.buffer === first, scanner.start, scanner.end]).toEqual([true, true, 9, 18])
  expect([scanner.next(), scanner.pending_bytes]).toEqual([false, 2])
  const second = Buffer.from('ta: c\n\ndata: d\n\nd')
  scanner.push(second)
  expect(scanner.next()).toBe(true)
  const held = scanner.buffer.subarray(scanner.start, scanner.end)
  expect([scanner.next(), scanner.buffer === second]).toEqual([true, true])
  expect(scanner.next()).toBe(false)
  scanner.push(Buffer.from('ata: e\n\n'))
  expect(scanner.next()).toBe(true)
  expect(Buffer.from(held).toString()).toBe('data: c\n\n')
})

describe('the end of the stream', () => {
  test.each([
    ['data: [DONE]', 'data', '[DONE]'],
    ['data: [DONE]\n', 'data', '[DONE]'],
    ['data: a\r\ndata: b\r', 'data', 'a\nb'],
    [': ping', 'comment', ''],
    ['da', 'empty', ''],
  ])('%j is pending', (text, kind, data) => {
    for (const chunks of [[Buffer.from(text)], single(Buffer.from(text))]) {
      const scanner = new SseScanner()
      expect(readAll(chunks, scanner)).toEqual([])
      expect(scanner.pending_bytes).toBe(text.length)
      expect(scanner.finish()).toBe(true)
      expect(seenOf(scanner)).toEqual({ kind, name: '', data, raw: text })
      expect(scanner.finish()).toBe(false)
    }
  })
  test('nothing is pending after a complete event', () => {
    const scanner = new SseScanner()
    readAll([Buffer.from('data: a\n\n')], scanner)
    expect(scanner.finish()).toBe(false)
  })
})

describe('bounds', () => {
  const verdict = (chunks: readonly Uint8Array[], bytes_max: number): string => {
    const scanner = new SseScanner(bytes_max)
    for (const chunk of chunks) {
      scanner.push(chunk)
      for (let got = scanner.next(); got !== false; got = scanner.next()) if (got instanceof Failure) return got.code
    }
    return 'ok'
  }
  test.each([
    ['data: 12\n\n', 10, 'ok'],
    ['data: 123\n\n', 10, 'engine_invalid'],
    ['data: 1234567890', 10, 'engine_invalid'],
    ['data: 12\n\ndata: 34\n\n', 10, 'ok'],
    ['id: 1\nid: 2\nid: 3\n', 10, 'engine_invalid'],
    [': ping\n: ping\n: ping\n: ping\n', 10, 'ok'],
  ])('%j with %d', (text, bytes_max, want) => {
    expect(verdict([Buffer.from(text)], bytes_max)).toBe(want)
    expect(verdict(single(Buffer.from(text)), bytes_max)).toBe(want)
  })
  test('lines', () => expect(verdict([Buffer.from(`${'id\n'.repeat(70_000)}\n`)], 1e6)).toBe('engine_invalid'))
})

test('made streams in made chunks: the events of the whole, the bytes of the whole', () => {
  const lines = [
    'data: a',
    'data:',
    'data',
    ':',
    ': c',
    'event: e',
    'id: 1',
    'data: 안녕 🌍',
    'x',
    '',
    '',
    '',
    `data: ${'z'.repeat(200)}`,
  ]
  const made = (roll: Roll): Buffer => {
    const ends = [['\n'], ['\r\n'], ['\r'], ['\n', '\r\n', '\r']][roll(4)]!
    let text = roll(4) === 0 ? '\ufeff' : ''
    for (let i = roll(30); i >= 0; i--) text += lines[roll(lines.length)]! + ends[roll(ends.length)]!
    return Buffer.from(text)
  }
  forAll(2000, (roll) => {
    const bytes = made(roll)
    const cuts = Array.from({ length: roll(12) }, () => roll(bytes.length + 1)).toSorted((a, b) => a - b)
    const ends = (chunks: readonly Uint8Array[]) => {
      const scanner = new SseScanner()
      const seen = readAll(chunks, scanner)
      if (scanner.finish()) seen.push(seenOf(scanner))
      return seen
    }
    const whole = ends([bytes])
    const parts = ends(split(bytes, ...cuts))
    expect(told(parts)).toEqual(told(whole))
    expect(rawOf(parts)).toBe(bytes.toString('latin1'))
    expect(rawOf(whole)).toBe(bytes.toString('latin1'))
    // The oracle: lines by a regular expression, events at empty lines.
    const text = bytes.toString().replace(/^\ufeff/, '')
    const events = text
      .split(/\r\n|\n|\r/)
      .slice(0, -1)
      .join('\n')
      .concat('\n')
      .split(/(?<=^|\n)\n/)
    const data = events.map((event) =>
      event
        .match(/^data.*$/gm)
        ?.map((line) => line.replace(/^data:? ?/, ''))
        .join('\n'),
    )
    expect(whole.filter((one) => one.kind === 'data').map((one) => one.data)).toEqual(
      data.filter((one) => one !== undefined && one.replaceAll('\n', '') !== '') as string[],
    )
  })
})
