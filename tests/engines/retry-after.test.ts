import { expect, test } from 'bun:test'

import { formatRetryAfter, parseRetryAfter } from '../../src/engines/retry-after.ts'

const now = () => Date.UTC(2026, 10, 30, 12, 0, 0, 500)

test.each([
  ['30', 30],
  [' 30 ', 30],
  ['0', 0],
  ['0.2', 1],
  ['1.5', 2],
  ['007', 7],
  ['86400', 86_400],
  ['86401', 86_400],
  ['9'.repeat(200), 86_400],
  ['9'.repeat(300), undefined],
  ['30, 30', 30],
  ['5,60', 60],
  ['-1', undefined],
  ['1e3', undefined],
  ['30s', undefined],
  ['soon', undefined],
  ['', undefined],
  [undefined, undefined],
  ['Mon, 30 Nov 2026 12:00:30 GMT', 30],
  ['Mon, 30 Nov 2026 12:00:00 GMT', 0],
  ['Mon, 30 Nov 2026 11:00:00 GMT', 0],
  ['Tue, 01 Dec 2026 11:00:00 GMT', 82_800],
  ['Tue, 01 Jan 2126 00:00:00 GMT', 86_400],
  ['Monday, 30-Nov-26 12:01:00 GMT', 60],
  ['Sunday, 06-Nov-94 08:49:37 GMT', 0],
  ['Mon Nov 30 12:01:00 2026', 60],
  ['Tue Dec  1 11:00:00 2026', 82_800],
  ['Mon, 30 Nov 2026 12:00:30 UTC', undefined],
  ['Mon, 30 Nox 2026 12:00:30 GMT', undefined],
  ['Mon, 30 Nov 2026 24:00:30 GMT', undefined],
  ['Mon, 00 Nov 2026 12:00:30 GMT', undefined],
  ['2026-11-30T12:00:30Z', undefined],
])('parse %j', (value, want) => expect(parseRetryAfter(value, now)).toBe(want as number))

test.each([
  [30, '30'],
  [0, '1'],
  [-5, '1'],
  [0.1, '1'],
  [1.2, '2'],
  [1e9, '86400'],
  [Number.POSITIVE_INFINITY, '86400'],
  [Number.NaN, '1'],
])('format %d', (seconds, want) => {
  expect(formatRetryAfter(seconds)).toBe(want)
  expect(parseRetryAfter(want, now)).toBe(Number(want))
})
