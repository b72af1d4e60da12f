import { expect, test } from 'bun:test'
import { giveRate, takeRate } from '../../src/quota/gcra.ts'
import { createTable, subjectOf } from '../../src/table/table.ts'
import { forAll, tempFolder } from '../kit/wait.ts'

const opened = (folder: string) => {
  const table = createTable(`${folder}/table`, 64, 0)
  return { table, subject: subjectOf(table, 'key', 'k')! }
}

test.each([
  // limit, at_ms, expected admitted
  [10, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0]],
  [1, [0, 59_999, 60_000, 60_001, 120_000], [1, 0, 1, 0, 1]],
  [2, [0, 0, 29_999, 30_000, 30_001, 60_000], [1, 1, 0, 1, 0, 1]],
  [0, [0, 60_000], [0, 0]],
])('limit %p a minute at %p ms', (limit, times, wanted) => {
  using folder = tempFolder()
  const { table, subject } = opened(folder.path)
  const start = 1_700_000_000_000
  const got = times.map((at_ms) => Number(takeRate(table, subject, 'rate_tat_ns', limit, 1, start + at_ms).admitted))
  expect(got).toEqual(wanted)
})

test('a refusal says when to come back, and coming back then works', () => {
  using folder = tempFolder()
  const { table, subject } = opened(folder.path)
  const now = 1_700_000_000_000
  for (let taken = 0; taken < 6; taken++) takeRate(table, subject, 'rate_tat_ns', 6, 1, now)
  const refused = takeRate(table, subject, 'rate_tat_ns', 6, 1, now + 1_000)
  expect(refused).toEqual({ admitted: false, limit: 6, remaining: 0, reset_ms: 59_000, retry_after_ms: 9_000 })
  expect(takeRate(table, subject, 'rate_tat_ns', 6, 1, now + 9_999).admitted).toBe(false)
  expect(takeRate(table, subject, 'rate_tat_ns', 6, 1, now + 10_000).admitted).toBe(true)
})

test('what is given back can be taken again; cells do not share', () => {
  using folder = tempFolder()
  const { table, subject } = opened(folder.path)
  const now = 1_700_000_000_000
  expect(takeRate(table, subject, 'token_tat_ns', 100, 100, now).remaining).toBe(0)
  giveRate(table, subject, 'token_tat_ns', 100, 60)
  expect(takeRate(table, subject, 'token_tat_ns', 100, 61, now).admitted).toBe(false)
  expect(takeRate(table, subject, 'token_tat_ns', 100, 60, now).admitted).toBe(true)
  expect(takeRate(table, subject, 'rate_tat_ns', 100, 100, now).admitted).toBe(true)
})

test('never more than n + t·n/60 in any span, whatever the arrivals', () => {
  using folder = tempFolder()
  const table = createTable(`${folder.path}/table`, 256, 0)
  let name = 0
  forAll(50, (roll) => {
    const subject = subjectOf(table, 'key', `k${name++}`)!
    const limit = 1 + roll(300)
    const admitted: number[] = []
    let at_ms = 1_700_000_000_000
    for (let arrival = 0; arrival < 400; arrival++) {
      at_ms += roll(4) === 0 ? roll(3_000) : roll(40)
      if (takeRate(table, subject, 'rate_tat_ns', limit, 1, at_ms).admitted) admitted.push(at_ms)
    }
    for (let from = 0; from < admitted.length; from++)
      for (let to = from; to < admitted.length; to++) {
        const bound = limit + ((admitted[to]! - admitted[from]!) * limit) / 60_000
        if (to - from + 1 > bound + 1e-6) throw new Error(`${to - from + 1} admitted, bound ${bound}`)
      }
  })
})
