import { expect, test } from 'bun:test'
import type { JournalRecord } from '../../src/journal/record.ts'
import { countRefusals } from '../../src/pipeline/refusals.ts'

const MINUTE_MS = 60_000
const counted = () => {
  const records: JournalRecord[] = []
  const refusals = countRefusals({ append: (record) => records.push(record) })
  return { refusals, said: () => records.map((record) => JSON.stringify(record)) }
}
const line = (minute: number, key_id: string, tenant: string, failure: string, count: number) =>
  JSON.stringify({ kind: 'refusals', at_ms: minute * MINUTE_MS, key_id, tenant, failure, count })

test('one record for each key, reason and minute, however many calls', () => {
  const { refusals, said } = counted()
  for (let n = 0; n < 1_000; n++) refusals.count('', '', 'key_invalid', 5 * MINUTE_MS + n)
  refusals.count('k1', 'acme', 'rate_exceeded', 5 * MINUTE_MS + 59_999)
  refusals.count('k1', 'acme', 'forbidden', 5 * MINUTE_MS + 59_999)
  refusals.flush(6 * MINUTE_MS - 1)
  expect(said()).toEqual([])
  refusals.flush(6 * MINUTE_MS)
  const minute = [
    line(5, '', '', 'key_invalid', 1_000),
    line(5, 'k1', 'acme', 'rate_exceeded', 1),
    line(5, 'k1', 'acme', 'forbidden', 1),
  ]
  expect(said()).toEqual(minute)
  refusals.flush(9 * MINUTE_MS)
  expect(said()).toEqual(minute)
})

test('the next minute begins its own lines, whether flushed or not; a drain writes what there is', () => {
  const { refusals, said } = counted()
  refusals.count('', '', 'key_missing', 0)
  refusals.count('', '', 'key_missing', MINUTE_MS)
  expect(said()).toEqual([line(0, '', '', 'key_missing', 1)])
  refusals.flush(Number.POSITIVE_INFINITY)
  expect(said()).toEqual([line(0, '', '', 'key_missing', 1), line(1, '', '', 'key_missing', 1)])
})

test('lines are bounded: beyond the bound keys are counted together', () => {
  const { refusals, said } = counted()
  for (let key = 0; key < 10_000; key++) refusals.count(`k${key}`, 't', 'rate_exceeded', 1)
  refusals.flush(Number.POSITIVE_INFINITY)
  expect(said()).toHaveLength(4_097)
  expect(said().at(-1)).toBe(line(0, '', '', 'rate_exceeded', 10_000 - 4_096))
})
