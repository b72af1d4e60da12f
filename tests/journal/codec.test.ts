import { describe, expect, test } from 'bun:test'
import { areaOf, decodeRecord, encodeRecord, payload_bytes_max } from '../../src/journal/codec.ts'
import type { JournalRecord } from '../../src/journal/record.ts'
import { forAll } from '../kit/wait.ts'
import { anyRecord, ending, intent } from './make.ts'

const area = areaOf(new Uint8Array(2 * payload_bytes_max))

const roundTrip = (record: JournalRecord): JournalRecord | undefined => {
  area.bytes.fill(0xee)
  return decodeRecord(area, 16, encodeRecord(area, 16, record))
}

test('every record comes back as it went in, and nothing outside its bytes is touched', () => {
  forAll(400, (roll) => {
    const record = anyRecord(roll)
    area.bytes.fill(0xee)
    const length = encodeRecord(area, 16, record)
    expect(decodeRecord(area, 16, length)).toEqual(record)
    expect(length).toBeLessThanOrEqual(payload_bytes_max)
    expect(area.bytes.subarray(0, 16).every((byte) => byte === 0xee)).toBe(true)
    expect(area.bytes.subarray(16 + length).every((byte) => byte === 0xee)).toBe(true)
  })
})

test('a decoded record keeps nothing of the buffer it was read from', () => {
  const record = roundTrip(intent('call_1'))
  area.bytes.fill(0)
  expect(record).toEqual(intent('call_1'))
})

describe('texts are cut between characters', () => {
  const table: [name: string, text: string, want: string][] = [
    ['at the limit', 'a'.repeat(4096), 'a'.repeat(4096)],
    ['one too long', 'a'.repeat(4097), 'a'.repeat(4096)],
    ['before two bytes', `${'a'.repeat(4095)}é`, 'a'.repeat(4095)],
    ['before three bytes', `${'a'.repeat(4094)}漢`, 'a'.repeat(4094)],
    ['before four bytes', `${'a'.repeat(4093)}😀`, 'a'.repeat(4093)],
    ['four bytes fit', `${'a'.repeat(4092)}😀b`, `${'a'.repeat(4092)}😀`],
    ['half a pair', 'a\ud83db', 'a\ufffdb'],
  ]
  test.each(table)('%s', (_, text, want) => {
    expect(roundTrip({ ...ending('call_1'), failure: text, engine: text })).toEqual({
      ...ending('call_1'),
      failure: want,
      engine: want,
    })
  })
  test('all texts at their longest fit', () => {
    const long = '漢'.repeat(2_000)
    const record = { ...intent(long), tenant: long, key_id: long, end_user: long, model: long, engine: long }
    const length = encodeRecord(area, 0, { ...record, engine_model: long, endpoint: long })
    expect(length).toBeGreaterThan(8 * 4093)
    expect(length).toBeLessThanOrEqual(payload_bytes_max)
  })
})

describe('numbers out of range become the nearest in range', () => {
  const table: [field: keyof ReturnType<typeof ending>, given: number, want: number][] = [
    ['attempts', 256, 255],
    ['attempts', -1, 0],
    ['status', 70_000, 65_535],
    ['prompt_tokens', 2 ** 40, 2 ** 32 - 1],
    ['prompt_tokens', 1e300, 2 ** 32 - 1],
    ['prompt_tokens', -5, 0],
    ['prompt_tokens', 1.9, 1],
    ['prompt_tokens', Number.NaN, 0],
    ['prompt_tokens', Number.POSITIVE_INFINITY, 2 ** 32 - 1],
  ]
  test.each(table)('%s %p is stored as %p', (field, given, want) => {
    expect(roundTrip({ ...ending('call_1'), [field]: given })).toEqual({ ...ending('call_1'), [field]: want })
  })
  const money: [given: number, want: number][] = [
    [1e300, Number.MAX_SAFE_INTEGER],
    [-1e300, Number.MIN_SAFE_INTEGER],
    [-0.5, 0],
    [Number.NaN, 0],
  ]
  test.each(money)('a hold of %p is stored as %p', (given, want) => {
    const back = roundTrip({ ...intent('call_1'), hold_nanodollars: given })
    expect(back?.kind === 'intent' && back.hold_nanodollars + 0).toBe(want)
  })
})

test('a hash of another size is a bug', () => {
  const record = { ...intent('call_1'), request_sha256: new Uint8Array(31) }
  expect(() => encodeRecord(area, 0, record)).toThrow('31 bytes, want 32')
})

describe('other versions', () => {
  const record: JournalRecord = {
    kind: 'progress',
    call_id: 'call_1',
    at_ms: 5,
    prompt_tokens: 6,
    completion_tokens: 7,
    usage_source: 'estimated',
    engine: 'e1',
    engine_model: 'm1-instruct',
    serves: 'm1',
  }
  // The fixed part of a progress record: 4 + 2 (text) + 8 + 4 + 4 + 1 + 3 × 2 (texts).
  const fixed = 29
  test('fields that an older writer did not know are zero', () => {
    encodeRecord(area, 0, record)
    const of_id = area.bytes.subarray(fixed, fixed + record.call_id.length)
    const older = areaOf(Buffer.concat([area.bytes.subarray(0, 18), of_id]))
    older.view.setUint16(2, 18, true)
    const unknown = { engine: '', engine_model: '', serves: '' }
    const want = { ...record, ...unknown, completion_tokens: 0, usage_source: 'engine' } as const
    expect(decodeRecord(older, 0, older.bytes.length)).toEqual(want)
  })
  test('fields of a newer writer are passed over', () => {
    const length = encodeRecord(area, 0, record)
    const added = Buffer.from([1, 2, 3])
    const pieces = [area.bytes.subarray(0, fixed), added, area.bytes.subarray(fixed, length), Buffer.from('new text')]
    const newer = areaOf(Buffer.concat(pieces))
    newer.view.setUint16(2, fixed + added.length, true)
    expect(decodeRecord(newer, 0, newer.bytes.length)).toEqual(record)
  })
  test('an unknown kind, an unknown choice and a payload of nonsense are no record', () => {
    const length = encodeRecord(area, 0, record)
    area.bytes[fixed - 1] = 2
    expect(decodeRecord(area, 0, length)).toBeUndefined()
    encodeRecord(area, 0, record)
    area.bytes[0] = 99
    expect(decodeRecord(area, 0, length)).toBeUndefined()
    encodeRecord(area, 0, record)
    for (let shorter = 0; shorter < length; shorter++) expect(decodeRecord(area, 0, shorter)).toBeUndefined()
  })
})
