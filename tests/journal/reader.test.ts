import { describe, expect, test } from 'bun:test'
import fs from 'node:fs'
import { Failure } from '../../src/base/failure.ts'
import { HEADER_BYTES } from '../../src/journal/format.ts'
import type { JournalRecord } from '../../src/journal/record.ts'
import { type JournalEntry, readSegment } from '../../src/journal/reader.ts'
import { forAllAsync, type Roll, rollFrom, tempFolder } from '../kit/wait.ts'
import { anyRecord, good, intent, openSmall } from './make.ts'

const series = 'w01-000001'

/** A segment of records that a real writer made, cut behind its mark. */
const segmentOf = async (roll: Roll, count: number): Promise<{ file: Buffer; records: JournalRecord[] }> => {
  using folder = tempFolder()
  const journal = await openSmall(folder.path)
  const records = Array.from({ length: count }, () => anyRecord(roll))
  for (const record of records) good(journal.append(record))
  await journal.close()
  const file = fs.readFileSync(`${folder.path}/${series}-000000.journal`)
  return { file, records }
}

const recordsOf = (entries: readonly JournalEntry[]) => entries.map(({ record }) => record!)

test('what was appended is read, and reading can begin at every record', async () => {
  await forAllAsync(20, async (roll) => {
    const { file, records } = await segmentOf(roll, 1 + roll(60))
    const whole = good(readSegment(file, series))
    expect(recordsOf(whole.entries)).toEqual(records)
    expect(whole.stop).toBe('series_ends')
    for (const [i, entry] of whole.entries.entries()) {
      expect(entry.offset).toBe(whole.entries[i - 1]?.next_offset ?? HEADER_BYTES)
      expect(recordsOf(good(readSegment(file, series, entry.next_offset)).entries)).toEqual(records.slice(i + 1))
    }
  })
})

test('an offset that is no beginning of a frame is refused', async () => {
  const { file } = await segmentOf(rollFrom(1), 3)
  const refused = readSegment(file, series, HEADER_BYTES + 8)
  expect(refused instanceof Failure && refused.detail.says).toContain('is not a frame')
})

test('cut at any byte, a segment yields exactly the records that are whole', async () => {
  const { file, records } = await segmentOf(rollFrom(2), 8)
  const { entries, next_offset } = good(readSegment(file, series))
  for (let size = 0; size < next_offset + 16; size++) {
    const read = readSegment(file.subarray(0, size), series)
    if (size < HEADER_BYTES) {
      expect(read).toBeInstanceOf(Failure)
      continue
    }
    const whole = entries.filter((entry) => entry.next_offset <= size).length
    expect(recordsOf(good(read).entries)).toEqual(records.slice(0, whole))
    expect(good(read).stop).toBe('torn')
  }
})

test('with zeros from any byte on, as after a power failure, a segment yields exactly the records before it', async () => {
  const { file, records } = await segmentOf(rollFrom(3), 8)
  const { entries, next_offset } = good(readSegment(file, series))
  for (let from = next_offset; from >= HEADER_BYTES; from--) {
    file.fill(0, from)
    const read = good(readSegment(file, series))
    // Bytes that were zero anyway are not lost.
    const least = entries.filter((entry) => entry.next_offset <= from).length
    expect(read.entries.length).toBeGreaterThanOrEqual(least)
    expect(read.entries.length).toBeLessThanOrEqual(entries.filter((entry) => entry.offset < from).length)
    expect(recordsOf(read.entries)).toEqual(records.slice(0, read.entries.length))
  }
})

test('with any bit flipped, a segment yields exactly the records before the flip', async () => {
  const { file, records } = await segmentOf(rollFrom(4), 6)
  const { entries, next_offset } = good(readSegment(file, series))
  for (let at = 0; at < next_offset + 64; at++) {
    for (let bit = 0; bit < 8; bit++) {
      file[at]! ^= 1 << bit
      const read = readSegment(file, series)
      file[at]! ^= 1 << bit
      if (at < HEADER_BYTES) {
        expect(read).toBeInstanceOf(Failure)
        continue
      }
      expect(recordsOf(good(read).entries)).toEqual(
        records.slice(0, entries.filter((entry) => entry.next_offset <= at).length),
      )
    }
  }
})

describe('garbage behind the end is not read', () => {
  test.each([1, 8, 300, 4_000])('%p bytes', async (size) => {
    const { file, records } = await segmentOf(rollFrom(5), 5)
    const { next_offset } = good(readSegment(file, series))
    const roll = rollFrom(size)
    // The mark is overwritten, so that the garbage stands where the next frame would.
    for (let at = next_offset; at < next_offset + size; at++) file[at] = 1 + roll(255)
    expect(recordsOf(good(readSegment(file, series)).entries)).toEqual(records)
  })
  test('whole frames of another segment', async () => {
    const [mine, other] = [await segmentOf(rollFrom(6), 5), await segmentOf(rollFrom(7), 5)]
    const { next_offset } = good(readSegment(mine.file, series))
    other.file.copy(mine.file, next_offset, HEADER_BYTES, 4_000)
    expect(recordsOf(good(readSegment(mine.file, series)).entries)).toEqual(mine.records)
  })
  test('frames of the same segment from an earlier place', async () => {
    const { file, records } = await segmentOf(rollFrom(8), 5)
    const { next_offset } = good(readSegment(file, series))
    file.copy(file, next_offset, HEADER_BYTES, next_offset)
    expect(recordsOf(good(readSegment(file, series)).entries)).toEqual(records)
  })
})

test('a kind that this version does not know is passed on as bytes', async () => {
  using folder = tempFolder()
  const journal = await openSmall(folder.path)
  const at = good(journal.append(intent('call_1')))
  await journal.close()
  const file = fs.readFileSync(`${folder.path}/${series}-000000.journal`)
  const { frameChecksum } = await import('../../src/journal/format.ts')
  // The payload gets another code and the checksum that its writer would have given it.
  file[HEADER_BYTES + 8] = 77
  const length = file.readUInt32LE(HEADER_BYTES)
  file.writeUInt32LE(
    frameChecksum(file.subarray(HEADER_BYTES + 8, at), length, file.readUInt32LE(24)),
    HEADER_BYTES + 4,
  )
  const { entries } = good(readSegment(file, series))
  expect(entries).toHaveLength(1)
  expect(entries[0]!.record).toBeUndefined()
  expect(entries[0]!.payload_bytes).toBe(length)
})
