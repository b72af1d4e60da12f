import { expect, test } from 'bun:test'
import { callIdOf, type JournalRecord } from '../../src/journal/record.ts'
import {
  advance,
  fold,
  type JournaledRecord,
  type OwnBooks,
  type Place,
  type Posting,
  settle,
} from '../../src/ledger/posting.ts'
import { forAll, type Roll } from '../kit/wait.ts'
import { AT_MS, journal, PRICES, randomRecords } from './make.ts'

const SERIES = ['a', 'b'] as const
type Series = (typeof SERIES)[number]

/** The records of a series; what is refused has the name of its place, so it can be told apart. */
const recordsOf = (roll: Roll, series: Series): JournaledRecord[] => {
  const calls = randomRecords(roll, 1 + roll(8)).map((record) =>
    'call_id' in record ? { ...record, call_id: `${series}_${record.call_id}` } : record,
  )
  const refused = (place: number): JournalRecord => ({
    ...{
      kind: 'refusals',
      at_ms: AT_MS,
      key_id: `${series}_${place}`,
      tenant: 'acme',
      failure: 'rate_exceeded',
      count: 1,
    },
  })
  return journal(
    series,
    calls.flatMap((record, nth) => (roll(4) === 0 ? [record, refused(nth)] : [record])),
  )
}

const isBefore = (one: Place, other: Place) =>
  one.segment < other.segment || (one.segment === other.segment && one.offset < other.offset)

/** A ledger and the accountants that follow each other at it. `deaths`: one in so many steps kills one. */
const openHouse = (roll: Roll, journals: Record<Series, JournaledRecord[]>) => {
  const stored: OwnBooks['stored'] = new Map()
  const positions: OwnBooks['positions'] = new Map()
  const posted = new Set<string>()
  const postings: Posting[] = []
  const read: Record<Series, number> = { a: 0, b: 0 }
  let books: OwnBooks
  const restart = (): void => {
    books = { open: new Map(stored), stored: new Map(stored), unstored: new Map(), positions: new Map(positions) }
    for (const series of SERIES) {
      const position = positions.get(series)
      const start = position?.again ?? position ?? { segment: 0, offset: 0 }
      const found = journals[series].findIndex((item) => !isBefore(item, start))
      read[series] = found < 0 ? journals[series].length : found
    }
  }
  /** True if the accountant lives on. */
  const write = (posting: Posting, deaths: number): boolean => {
    const dies = roll(deaths)
    if (dies !== 0) {
      for (const call of posting.opened) stored.set(call.call_id, call)
      for (const id of posting.closed) expect(stored.delete(id)).toBe(true)
      for (const [series, position] of posting.to) positions.set(series, position)
      for (const { id } of posting.rows) posted.add(id)
      postings.push(posting)
    }
    if (dies <= 1) restart()
    else advance(books, posting)
    return dies > 1
  }
  const isFinished = (series: Series): boolean => positions.get(series)?.finished === true
  restart()
  return {
    positions,
    posted,
    postings,
    restart,
    isFinished,
    left: () => [books.open.size, books.unstored.size, stored.size],
    step: (deaths: number): void => {
      const next = { ...read }
      const batch: JournaledRecord[] = []
      for (const series of roll(2) ? SERIES : SERIES.toReversed()) {
        if (isFinished(series)) continue
        const items = journals[series].slice(read[series], read[series] + roll(4))
        batch.push(...items)
        next[series] += items.length
      }
      if (batch.length === 0) return
      const posting = fold(books, posted, PRICES, batch, AT_MS + [0, 50, 1_000][roll(3)]!)
      if (write(posting, deaths)) Object.assign(read, next)
    },
    settleIfRead: (series: Series, deaths: number): void => {
      if (read[series] < journals[series].length || isFinished(series)) return
      const last = journals[series].at(-1)
      const end = last ? { segment: last.segment, offset: last.next_offset } : { segment: 0, offset: 64 }
      write(settle(books, PRICES, series, end), deaths)
    },
  }
}

test('accountants die, then the power takes the ends of the journals, posted or not: one row a call, nothing held, nothing twice', () => {
  const lost = { posted: 0, to_be_read_again: 0 }
  forAll(1_000, (roll) => {
    const journals = { a: recordsOf(roll, 'a'), b: recordsOf(roll, 'b') }
    const house = openHouse(roll, journals)
    for (let steps = roll(30); steps > 0; steps--) {
      house.step(6)
      if (roll(6) === 0) house.settleIfRead('a', 4)
    }
    for (const series of SERIES) {
      if (house.isFinished(series)) continue
      const cut = journals[series].splice(roll(journals[series].length + 1))[0]
      const position = house.positions.get(series)
      if (cut === undefined || position === undefined) continue
      if (isBefore(cut, position)) lost.posted++
      if (position.again && isBefore(cut, position.again)) lost.to_be_read_again++
    }
    house.restart()
    for (let steps = 0; steps < 1_000 && !SERIES.every(house.isFinished); steps++) {
      house.step(100)
      for (const series of SERIES) house.settleIfRead(series, 100)
    }
    expect(SERIES.map(house.isFinished)).toEqual([true, true])
    expect(house.left()).toEqual([0, 0, 0])
    expect([...house.positions.values()].filter(({ again }) => again !== undefined)).toEqual([])

    const { postings } = house
    const ids = postings.flatMap(({ rows }) => rows.map(({ id }) => id))
    const refused = postings.flatMap(({ refusals }) => refusals.map(({ key_id }) => key_id))
    for (const all of [ids, refused]) expect(new Set(all).size).toBe(all.length)
    for (const { record } of [...journals.a, ...journals.b])
      if (record!.kind === 'refusals') expect(refused).toContain(record!.key_id)
      else expect(ids).toContain(callIdOf(record!))
    const net = new Map<string, bigint>()
    for (const { debit, credit, amount_nanodollars } of postings.flatMap(({ entries }) => entries)) {
      net.set(debit, (net.get(debit) ?? 0n) - amount_nanodollars)
      net.set(credit, (net.get(credit) ?? 0n) + amount_nanodollars)
    }
    expect([...net].filter(([account, sum]) => account.startsWith('held:') && sum !== 0n)).toEqual([])
    const charged = postings.flatMap(({ rows }) => rows).reduce((sum, row) => sum + (row.charge_nanodollars ?? 0n), 0n)
    expect(net.get('revenue') ?? 0n).toBe(charged)
  })
  expect([lost.posted > 100, lost.to_be_read_again > 50]).toEqual([true, true])
}, 60_000)
