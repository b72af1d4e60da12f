import { Database } from 'bun:sqlite'
import { expect, setDefaultTimeout, test } from 'bun:test'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { doChores } from '../../src/ledger/chores.ts'
import { fileOf, openReader, openWriter } from '../../src/ledger/database.ts'
import { createPoster } from '../../src/ledger/poster.ts'
import { emptyBooks, fold } from '../../src/ledger/posting.ts'
import type { JournalRecord } from '../../src/journal/record.ts'
import { eventually, forAll, tempFolder } from '../kit/wait.ts'
import { postAll } from './books.ts'
import { AT_MS, ending, intent, journal, PRICES } from './make.ts'

setDefaultTimeout(60_000)

/** Refused calls: one row and one leaf for a minute, key and reason, whatever workers counted, and in whatever order they are posted. */

const MINUTE_MS = 60_000
const minute = (n: number): number => AT_MS + n * MINUTE_MS

const refused = (at: number, count: number, key = '1', failure = 'rate_exceeded'): JournalRecord => ({
  ...{ kind: 'refusals', at_ms: minute(at), key_id: `key_${key}`, tenant: `t${key}`, failure, count },
})

const openPoster = (path: string) => {
  const store = openWriter(path, 'ledger')
  const said = (table: string, columns: string) =>
    store.sqlite
      .prepare<Record<string, bigint | string>, []>(`SELECT ${columns} FROM ${table} ORDER BY 1, 2, 3, 4`)
      .all()
      .map((row) =>
        Object.values(row)
          .map((value) => (Number(value) >= AT_MS ? (Number(value) - AT_MS) / MINUTE_MS : value))
          .join(' '),
      )
  return {
    store,
    poster: createPoster(store, 'logged'),
    /** `minute key failure count` of what may still grow. */
    open: () => said('open_refusals', 'at_ms, key_id, failure, count'),
    /** `id leaf minute key failure count` of the rows. */
    rows: () => said('refusals', 'id, log_index, at_ms, key_id, failure, count'),
    [Symbol.dispose]: () => store.sqlite.close(),
  }
}

const POSTED = { is: 'posted' } as const

test('what several workers say of a minute is one line, then one row with one leaf', () => {
  using folder = tempFolder()
  using house = openPoster(folder.path)
  const { poster } = house
  postAll(poster, journal('w0', [refused(0, 3), refused(0, 1, '1', 'forbidden'), refused(1, 5)]), 3)
  postAll(poster, journal('w1', [refused(0, 4), refused(0, 2, '2'), refused(0, 10)]), 1)
  expect(house.open()).toEqual([
    '0 key_1 forbidden 1',
    '0 key_1 rate_exceeded 17',
    '0 key_2 rate_exceeded 2',
    '1 key_1 rate_exceeded 5',
  ])
  expect([poster.oldestRefusals(), house.rows()]).toEqual([minute(0), []])
  expect(poster.logRefusals(minute(0), 10)).toEqual(POSTED)
  expect(house.rows()).toEqual([])
  expect(poster.logRefusals(minute(1), 10)).toEqual(POSTED)
  const over = ['0 key_1 forbidden 1', '0 key_1 rate_exceeded 17', '0 key_2 rate_exceeded 2']
  expect(house.rows().map((row) => row.slice(4))).toEqual(over)
  expect(house.rows().map((row) => row.slice(0, 3))).toEqual(['1 0', '2 1', '3 2'])
  expect([house.open(), poster.oldestRefusals()]).toEqual([['1 key_1 rate_exceeded 5'], minute(1)])

  // A call takes the next leaf, and a journal that comes late makes a row of its own.
  postAll(poster, journal('w2', [intent('a'), ending('a'), refused(0, 6)]), 3)
  expect(poster.logRefusals(Number.POSITIVE_INFINITY, 10)).toEqual(POSTED)
  expect(house.rows().slice(3)).toEqual(['4 4 0 key_1 rate_exceeded 6', '5 5 1 key_1 rate_exceeded 5'])
  expect([house.open(), poster.oldestRefusals()]).toEqual([[], undefined])
  expect(poster.logRefusals(Number.POSITIVE_INFINITY, 10)).toEqual(POSTED)
  expect(house.rows()).toHaveLength(5)
})

test('a step makes so many rows and no more, of the oldest minutes', () => {
  using folder = tempFolder()
  using house = openPoster(folder.path)
  postAll(
    house.poster,
    journal(
      'w',
      [4, 1, 3, 0, 2].map((at) => refused(at, at + 1)),
    ),
    5,
  )
  for (const [steps, left] of [3, 1, 0].entries()) {
    house.poster.logRefusals(Number.POSITIVE_INFINITY, 2)
    expect([steps, house.open().length, house.rows().length]).toEqual([steps, left, 5 - left])
  }
  const want = [0, 1, 2, 3, 4].map((at) => `${at + 1} ${at} ${at} key_1 rate_exceeded ${at + 1}`)
  expect(house.rows()).toEqual(want)
})

test('a posting that another was faster with, or that finds the ledger locked, counts nothing', () => {
  using folder = tempFolder()
  using house = openPoster(folder.path)
  const posting = fold(emptyBooks, new Set(), PRICES, journal('w', [refused(0, 3), refused(0, 4)]))
  const other = new Database(fileOf(folder.path, 'ledger'))
  other.run('BEGIN IMMEDIATE')
  expect(house.poster.post(posting).is).toBe('later')
  other.run('ROLLBACK')
  expect([house.poster.post(posting).is, house.poster.post(posting).is]).toEqual(['posted', 'stale'])
  other.run('BEGIN IMMEDIATE')
  expect(house.poster.logRefusals(minute(1), 10)).toMatchObject({ is: 'later', cause: { code: 'SQLITE_BUSY' } })
  other.run('ROLLBACK')
  other.close()
  expect([house.open(), house.rows()]).toEqual([['0 key_1 rate_exceeded 7'], []])
  expect(house.poster.logRefusals(minute(1), 10)).toEqual(POSTED)
  expect([house.open(), house.rows()]).toEqual([[], ['1 0 0 key_1 rate_exceeded 7']])
})

test('a step that fails in the middle leaves lines and rows as they were', () => {
  using folder = tempFolder()
  using house = openPoster(folder.path)
  const many = Array.from({ length: 90 }, (_, nth) => refused(0, nth + 1, String(nth)))
  postAll(house.poster, journal('w', many), 90)
  const before = house.open()
  const fail = (when: string) =>
    house.store.sqlite.run(`CREATE TRIGGER fails BEFORE ${when} BEGIN SELECT RAISE(ABORT, 'here'); END`)
  for (const when of ['INSERT ON refusals WHEN NEW.count = 60', 'DELETE ON open_refusals WHEN OLD.count = 60']) {
    fail(when)
    expect(() => house.poster.logRefusals(minute(1), 90)).toThrow('here')
    expect([house.open(), house.rows()]).toEqual([before, []])
    house.store.sqlite.run('DROP TRIGGER fails')
  }
  expect(house.poster.logRefusals(minute(1), 90)).toEqual(POSTED)
  expect([house.open().length, house.rows().length]).toEqual([0, 90])
})

test('accountants die between any two postings and steps, and read again from the start: every count is exact', () => {
  forAll(60, (roll) => {
    using folder = tempFolder()
    const want = new Map<string, number>()
    const series = ['w0', 'w1', 'w2'].map((name) => {
      const records = Array.from({ length: 1 + roll(12) }, () => {
        const record = refused(roll(3), 1 + roll(9), String(roll(2)), roll(2) ? 'forbidden' : 'rate_exceeded')
        return roll(3) ? record : intent(`${name}-${roll(9)}`)
      })
      for (const record of records)
        if (record.kind === 'refusals') {
          const line = `${(record.at_ms - AT_MS) / MINUTE_MS} ${record.key_id} ${record.failure}`
          want.set(line, (want.get(line) ?? 0) + record.count)
        }
      return journal(name, records)
    })
    for (let life = 0; life < 4; life++) {
      using house = openPoster(folder.path)
      for (const records of series) {
        const upto = life === 3 ? records.length : roll(records.length + 1)
        postAll(house.poster, records.slice(0, upto), 1 + roll(4))
        if (roll(2)) house.poster.logRefusals(minute(roll(4)), 1 + roll(3))
      }
    }
    using last = openPoster(folder.path)
    while (last.poster.oldestRefusals() !== undefined) last.poster.logRefusals(minute(3), 2)
    const got = new Map<string, number>()
    for (const row of last.rows()) {
      const [, , at, key, failure, count] = row.split(' ')
      const line = `${at} ${key} ${failure}`
      got.set(line, (got.get(line) ?? 0) + Number(count))
    }
    expect([...got].toSorted()).toEqual([...want].toSorted())
    expect(last.rows().map((row) => Number(row.split(' ')[0]))).toEqual(last.rows().map((_, nth) => nth + 1))
  })
})

test('chores wait until all that was written some seconds after the minute is posted; a stop with everything posted does not', async () => {
  using folder = tempFolder()
  using house = openPoster(folder.path)
  openWriter(folder.path, 'house').sqlite.close()
  const audit = join(folder.path, 'audit')
  mkdirSync(audit)
  let posted_until_ms = 0
  const chores = () =>
    doChores({
      ...{ store: house.store, poster: house.poster, house_reader: openReader(folder.path, 'house') },
      ...{ letters: join(folder.path, 'letters'), audit, log: () => undefined },
      posted_until_ms: () => posted_until_ms,
    })
  const counts = () => [house.open().length, house.rows().length]
  postAll(house.poster, journal('w', [refused(0, 1), refused(1, 1), refused(2, 1)]), 3)
  // A start looks at once, and a stop once more.
  for (const [until_ms, want] of [
    [0, [3, 0]],
    [minute(1), [3, 0]],
    [minute(1) + 5_000, [3, 0]],
    [minute(1) + 5_001, [2, 1]],
  ] as const) {
    posted_until_ms = until_ms
    chores().stop(false)
    expect([until_ms - AT_MS, counts()]).toEqual([until_ms - AT_MS, [...want]])
  }
  const running = chores()
  posted_until_ms = minute(2) + 6_000
  await eventually(() => expect(counts()).toEqual([1, 2]))
  running.stop(true)
  expect(counts()).toEqual([0, 3])
})
