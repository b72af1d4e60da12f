import { describe, expect, test } from 'bun:test'
import { callIdOf, type JournalRecord } from '../../src/journal/record.ts'
import {
  advance,
  emptyBooks,
  fold,
  settle,
  type JournaledRecord,
  type OwnBooks,
  type Place,
  type Posting,
} from '../../src/ledger/posting.ts'
import { priceList } from '../../src/ledger/pricing.ts'
import type { CallRow, NewEntry } from '../../src/ledger/tables.ts'
import { forAll } from '../kit/wait.ts'
import { AT_MS, PRICE, PRICES, attempt, ending, intent, journal, progress, randomRecords } from './make.ts'

const say = ({ kind, debit, credit, amount_nanodollars }: NewEntry) =>
  `${kind} ${debit} → ${credit} ${amount_nanodollars}`

const END = { segment: 99, offset: 64 }

const newBooks = (): OwnBooks => ({
  open: new Map(),
  stored: new Map(),
  unstored: new Map(),
  positions: new Map(),
})

const HOLD = 'hold tenant:acme → held:acme 10000000'
const CAPTURE = 'capture held:acme → revenue 6550000'
const RELEASE = 'release held:acme → tenant:acme 3450000'
const RELEASE_ALL = 'release held:acme → tenant:acme 10000000'

/** Plays records of one series whose writer then dies, each in a batch of its own. */
const play = (records: readonly JournalRecord[], prices = PRICES) => {
  const postings = run(
    journal('w', records),
    records.map(() => 1),
    prices,
  )
  const all = <Part extends 'rows' | 'entries' | 'attempts'>(part: Part) =>
    postings.flatMap<Posting[Part][number]>((posting) => posting[part])
  return { rows: all('rows'), entries: all('entries'), attempts: all('attempts') }
}

/** What entries do to each account, by call. */
const net = (entries: readonly NewEntry[]) => {
  const sums = new Map<string, bigint>()
  for (const { call_id, debit, credit, amount_nanodollars } of entries)
    for (const [account, amount] of [
      [credit, amount_nanodollars],
      [debit, -amount_nanodollars],
    ] as const)
      sums.set(`${call_id} ${account}`, (sums.get(`${call_id} ${account}`) ?? 0n) + amount)
  return [...sums].filter(([, sum]) => sum !== 0n).toSorted()
}

type Case = [why: string, records: JournalRecord[], row: Partial<CallRow>, entries: string[]]
const A = intent('a')
const Z = ending('a')
const SILENT = { prompt_tokens: 0, cached_tokens: 0, completion_tokens: 0, reasoning_tokens: 0 }
/** The engine of the intent, as progress has it. */
const FIRST = { engine: A.engine, engine_model: A.engine_model }

test.each<Case>([
  [
    'a whole call',
    [A, Z],
    { ending: 'whole', charge_nanodollars: 6_550_000n, price_version: 1 },
    [HOLD, CAPTURE, RELEASE],
  ],
  [
    'the ending comes first: nothing was ever held',
    [Z, A],
    { ending: 'whole', charge_nanodollars: 6_550_000n },
    ['capture tenant:acme → revenue 6550000'],
  ],
  ['everything comes twice', [A, A, Z, Z, A], { charge_nanodollars: 6_550_000n }, [HOLD, CAPTURE, RELEASE]],
  [
    'a second, different ending',
    [A, Z, ending('a', { completion_tokens: 9 })],
    { completion_tokens: 600 },
    [HOLD, CAPTURE, RELEASE],
  ],
  ['an attempt after the ending', [A, Z, attempt('a')], { attempts: 1, engine: 'e1' }, [HOLD, CAPTURE, RELEASE]],
  ['progress before the intent', [progress('a'), A, Z], { completion_tokens: 600 }, [HOLD, CAPTURE, RELEASE]],
  [
    'more than was held',
    [intent('a', { hold_nanodollars: 5_000_000 }), Z],
    { charge_nanodollars: 6_550_000n },
    [
      'hold tenant:acme → held:acme 5000000',
      'capture held:acme → revenue 5000000',
      'capture tenant:acme → revenue 1550000',
    ],
  ],
  [
    'nothing held',
    [intent('a', { hold_nanodollars: 0 }), Z],
    { hold_nanodollars: 0n },
    ['capture tenant:acme → revenue 6550000'],
  ],
  [
    'just what was held',
    [intent('a', { hold_nanodollars: 6_550_000 }), Z],
    {},
    ['hold tenant:acme → held:acme 6550000', CAPTURE],
  ],
  [
    'a model without a price',
    [intent('a', { model: 'm9' }), Z],
    { charge_nanodollars: null, price_version: 0 },
    [HOLD, RELEASE_ALL],
  ],
  [
    'a free model',
    [intent('a', { model: 'm0' }), Z],
    { charge_nanodollars: 0n, price_version: 1 },
    [HOLD, RELEASE_ALL],
  ],
  [
    'the version of the intent, not the newest',
    [intent('a', { model: 'm2' }), Z],
    { price_version: 1 },
    [HOLD, CAPTURE, RELEASE],
  ],
  [
    'an unknown version: the one in force',
    [intent('a', { model: 'm2', price_version: 7 }), Z],
    { price_version: 2 },
    [HOLD, RELEASE_ALL],
  ],
  [
    'refused by the engine: not even the price of a request',
    [
      intent('a', { model: 'm3' }),
      ending('a', { ending: 'refused', status: 400, prompt_tokens: 0, completion_tokens: 0 }),
    ],
    { charge_nanodollars: 0n, status: 400, cached_tokens: 0 },
    [HOLD, RELEASE_ALL],
  ],
  [
    'whole without tokens: the price of a request',
    [intent('a', { model: 'm3' }), ending('a', { prompt_tokens: 0, completion_tokens: 0 })],
    { charge_nanodollars: 10_000_000n },
    [HOLD, 'capture held:acme → revenue 10000000'],
  ],
  [
    'the client left: what was generated',
    [
      A,
      ending('a', {
        ending: 'cut_by_client',
        prompt_tokens: 20,
        cached_tokens: 0,
        completion_tokens: 40,
        usage_source: 'estimated',
      }),
    ],
    { ending: 'cut_by_client', charge_nanodollars: 360_000n, usage_source: 'estimated' },
    [HOLD, 'capture held:acme → revenue 360000', 'release held:acme → tenant:acme 9640000'],
  ],
  [
    'died before anything was delivered',
    [A],
    {
      ending: 'recovered',
      charge_nanodollars: 0n,
      usage_source: 'estimated',
      status: 0,
      prompt_tokens: 0,
      attempts: 1,
      total_ms: 0,
    },
    [HOLD, RELEASE_ALL],
  ],
  [
    'died with progress that had no token yet',
    [A, progress('a', { completion_tokens: 0 })],
    { charge_nanodollars: 0n },
    [HOLD, RELEASE_ALL],
  ],
  [
    'died midway: billed by the last progress',
    [A, progress('a', { completion_tokens: 7 }), progress('a', { at_ms: AT_MS + 900, usage_source: 'engine' })],
    {
      ending: 'recovered',
      charge_nanodollars: 360_000n,
      usage_source: 'estimated',
      completion_tokens: 20,
      total_ms: 900,
    },
    [HOLD, 'capture held:acme → revenue 360000', 'release held:acme → tenant:acme 9640000'],
  ],
  [
    'died midway, progress out of order',
    [A, progress('a'), progress('a', { at_ms: AT_MS + 100, completion_tokens: 7 })],
    { completion_tokens: 20 },
    [HOLD, 'capture held:acme → revenue 360000', 'release held:acme → tenant:acme 9640000'],
  ],
  [
    'died midway, the prompt never counted: the estimate',
    [A, progress('a', { prompt_tokens: 0 })],
    { prompt_tokens: 50, charge_nanodollars: 260_000n },
    [HOLD, 'capture held:acme → revenue 260000', 'release held:acme → tenant:acme 9740000'],
  ],
  [
    'died at the second engine',
    [A, attempt('a')],
    { ending: 'recovered', engine: 'e2', engine_model: 'm1-other', attempts: 2, total_ms: 10 },
    [HOLD, RELEASE_ALL],
  ],
  [
    'died at the first engine, which had won against the second',
    [A, attempt('a', { because: 'hedge' }), progress('a', { at_ms: AT_MS + 10, completion_tokens: 0, ...FIRST })],
    { ending: 'recovered', engine: 'e1', engine_model: 'm1-instruct', attempts: 2, charge_nanodollars: 0n },
    [HOLD, RELEASE_ALL],
  ],
  [
    'died at the first engine, which had won against a fallback, midway',
    [A, attempt('a', { because: 'hedge', serves: 'm0' }), progress('a', FIRST)],
    { ending: 'recovered', engine: 'e1', model: 'm1', attempts: 2, charge_nanodollars: 360_000n },
    [HOLD, 'capture held:acme → revenue 360000', 'release held:acme → tenant:acme 9640000'],
  ],
  [
    'died before a third engine went on: what was delivered is the first one’s',
    [A, progress('a', FIRST), attempt('a', { at_ms: AT_MS + 600, serves: 'm0' })],
    { ending: 'recovered', engine: 'e1', model: 'm1', attempts: 2, charge_nanodollars: 360_000n },
    [HOLD, 'capture held:acme → revenue 360000', 'release held:acme → tenant:acme 9640000'],
  ],
  [
    'died at an engine after the winner of two gave nothing',
    [A, progress('a', { at_ms: AT_MS + 5, completion_tokens: 0, ...FIRST }), attempt('a')],
    { ending: 'recovered', engine: 'e2', charge_nanodollars: 0n },
    [HOLD, RELEASE_ALL],
  ],
  [
    'the gateway answered itself, and the body names a model with a price for each call',
    [intent('a', { endpoint: '/data', model: 'm3', engine: 'weir', hold_nanodollars: 0 }), ending('a', SILENT)],
    { ending: 'whole', charge_nanodollars: 0n, price_version: 0 },
    [],
  ],
  [
    'an ending whose intent is lost',
    [Z],
    { ending: 'whole', tenant: '', model: '', charge_nanodollars: null, completion_tokens: 600 },
    [],
  ],
  [
    'an attempt whose intent is lost',
    [attempt('a')],
    { ending: 'recovered', tenant: '', engine: 'e2', charge_nanodollars: 0n },
    [],
  ],
  [
    'absurd figures',
    [
      intent('a', { hold_nanodollars: NaN }),
      ending('a', {
        prompt_tokens: -5,
        cached_tokens: 9,
        completion_tokens: 1e300,
        reasoning_tokens: NaN,
        queue_ms: -1,
        total_ms: 1.6,
      }),
    ],
    {
      hold_nanodollars: 0n,
      prompt_tokens: 0,
      cached_tokens: 0,
      completion_tokens: 1_000_000_000,
      reasoning_tokens: 0,
      queue_ms: 0,
      total_ms: 2,
    },
    ['capture tenant:acme → revenue 8000000000000'],
  ],
])('%s', (_why, records, want, transfers) => {
  const prices = priceList([
    { model: 'm0', version: 1, valid_from_ms: 0, ...PRICE, free: true },
    { model: 'm1', version: 1, valid_from_ms: 0, ...PRICE },
    { model: 'm2', version: 1, valid_from_ms: 0, ...PRICE },
    { model: 'm2', version: 2, valid_from_ms: 1, ...PRICE, free: true },
    { model: 'm3', version: 1, valid_from_ms: 0, ...PRICE, request_nanodollars: 10_000_000n },
  ])
  const { rows, entries } = play(records, prices)
  expect(rows).toHaveLength(1)
  expect(rows[0]).toMatchObject({ id: 'a', ...want })
  expect(entries.map(say)).toEqual(transfers)
})

test('the row carries every field of both records', () => {
  const { kind: _i, call_id, prompt_tokens_estimate: _p, hold_nanodollars, price_version, serves: _s, ...of_intent } = A
  const { kind: _z, call_id: _id, at_ms: _at, serves: _e, ...of_ending } = Z
  expect(play([A, Z]).rows[0]).toEqual({
    id: call_id,
    ...of_intent,
    ...of_ending,
    asked_model: A.model,
    hold_nanodollars: BigInt(hold_nanodollars),
    charge_nanodollars: 6_550_000n,
    price_version,
    series: expect.any(String),
    salt: null,
    log_index: null,
  })
})

describe('a fallback answers', () => {
  const dear = { ...PRICE, input_picodollars: 30_000_000n, request_nanodollars: 5n }
  const prices = priceList([
    { model: 'm1', version: 1, valid_from_ms: 0, ...PRICE },
    { model: 'dear', version: 1, valid_from_ms: 0, ...PRICE },
    { model: 'dear', version: 2, valid_from_ms: AT_MS, ...dear },
    { model: 'dear', version: 3, valid_from_ms: AT_MS + 1, ...PRICE },
  ])
  const used = { prompt_tokens: 7, cached_tokens: 0, completion_tokens: 0, reasoning_tokens: 0 }
  test.each([
    ['as its ending says', [A, attempt('a'), ending('a', { ...used, serves: 'dear' })]],
    ['from the start, and its process dies', [intent('a', { serves: 'dear' }), progress('a', { prompt_tokens: 7 })]],
    ['later, and its process dies', [A, attempt('a', { serves: 'dear' }), progress('a', { prompt_tokens: 7 })]],
  ])('%s: the row names it, and has the price that it had when the call began', (_why, records) => {
    const [row] = play(records, prices).rows
    expect(row).toMatchObject({ model: 'dear', asked_model: 'm1', price_version: 2 })
    const output = BigInt(row!.completion_tokens) * PRICE.output_picodollars
    expect(row!.charge_nanodollars).toBe((7n * 30_000_000n + output + 500n) / 1000n + 5n)
  })
})

test('a call of several engines lists them all, in order of time', () => {
  const { attempts } = play([
    A,
    attempt('a', { at_ms: AT_MS + 30, engine: 'e3' }),
    attempt('a'),
    ending('a', { attempts: 3 }),
  ])
  expect(attempts.map(({ n, engine, because, at_ms }) => [n, engine, because, at_ms - AT_MS])).toEqual([
    [1, 'e1', '', 0],
    [2, 'e2', 'engine_timeout', 10],
    [3, 'e3', 'engine_timeout', 30],
  ])
})

test('intent and ending in one batch: only the charge moves', () => {
  const posting = fold(emptyBooks, new Set(), PRICES, journal('w', [A, intent('b'), attempt('a'), Z]))
  expect(posting.entries.map(say)).toEqual(['capture tenant:acme → revenue 6550000', HOLD])
  expect(posting.entries.map(({ call_id }) => call_id)).toEqual(['a', 'b'])
})

test('a call that was posted before is not posted again', () => {
  const again = fold(emptyBooks, new Set(['a']), PRICES, journal('w', [A, attempt('a'), Z]))
  expect(again).toMatchObject({ rows: [], entries: [], opened: [], closed: [], ignored: 3 })
  expect(again.to.get('w')).toEqual({ segment: 0, offset: 364, finished: false })
})

test('a record of an unknown kind is passed over, and counted', () => {
  const [first, second] = journal('w', [A, Z])
  const posting = fold(emptyBooks, new Set(), PRICES, [first!, { ...second!, record: undefined }])
  expect(posting).toMatchObject({ rows: [], ignored: 1, opened: [{ call_id: 'a' }] })
  expect(posting.to.get('w')).toEqual({ segment: 0, offset: 264, finished: false })
})

test('only the calls of the dead series are settled', () => {
  const books = newBooks()
  advance(books, fold(books, new Set(), PRICES, [...journal('w1', [intent('a')]), ...journal('w2', [intent('b')])]))
  const posting = settle(books, PRICES, 'w1', END)
  expect([posting.rows.map((row) => row.id), posting.closed]).toEqual([['a'], ['a']])
  expect([...posting.to]).toEqual([['w1', { ...END, finished: true }]])
})

/** Folds in batches of the given sizes, the last for all that is left, and settles. */
const run = (records: readonly JournaledRecord[], sizes: readonly number[], prices = PRICES): Posting[] => {
  const books = newBooks()
  const posted = new Set<string>()
  const postings: Posting[] = []
  const take = (posting: Posting) => {
    advance(books, posting)
    for (const row of posting.rows) posted.add(row.id)
    postings.push(posting)
  }
  let at = 0
  for (const size of [...sizes, records.length]) {
    take(fold(books, posted, prices, records.slice(at, at + size)))
    at += size
  }
  take(settle(books, prices, 'w', END))
  expect(books.open.size).toBe(0)
  return postings
}

test('any cut into batches gives the same rows, balances and attempts, one row a call', () => {
  forAll(200, (roll) => {
    const records = journal('w', randomRecords(roll, 1 + roll(12)))
    const whole = run(records, [])
    const cut = run(
      records,
      Array.from({ length: 6 }, () => roll(10)),
    )
    for (const part of ['rows', 'attempts'] as const)
      expect(cut.flatMap<unknown>((posting) => posting[part])).toEqual(
        whole.flatMap<unknown>((posting) => posting[part]),
      )
    expect(net(cut.flatMap(({ entries }) => entries))).toEqual(net(whole.flatMap(({ entries }) => entries)))
    const ids = whole.flatMap((posting) => posting.rows.map((row) => row.id))
    expect(ids.toSorted()).toEqual([...new Set(records.map(({ record }) => callIdOf(record!)))].toSorted())
  })
})

/** What the tables keep of postings, as a new accountant finds it. */
const tables = () => {
  const kept = newBooks()
  const posted = new Set<string>()
  return {
    posted,
    commit: (posting: Posting): void => {
      for (const call of posting.opened) kept.stored.set(call.call_id, call)
      for (const id of posting.closed) kept.stored.delete(id)
      for (const [series, position] of posting.to) kept.positions.set(series, position)
      for (const { id } of posting.rows) posted.add(id)
    },
    books: (): OwnBooks => ({
      open: new Map(kept.stored),
      stored: new Map(kept.stored),
      unstored: new Map(),
      positions: new Map(kept.positions),
    }),
    /** Where the tail begins. */
    start: (): Place => kept.positions.get('w')?.again ?? kept.positions.get('w') ?? { segment: 0, offset: 0 },
  }
}

test('accountants die before and after commits, whatever calls are too young to be stored: the same rows and balances', () => {
  let reread = 0
  let stored = 0
  forAll(400, (roll) => {
    const refused = (count: number): JournalRecord => ({
      ...{ kind: 'refusals', at_ms: AT_MS, key_id: 'key_1', tenant: 'acme', failure: 'rate_exceeded', count },
    })
    const calls = randomRecords(roll, 1 + roll(12))
    const records = journal(
      'w',
      calls.flatMap((record, nth) => (roll(5) === 0 ? [record, refused(nth)] : [record])),
    )
    const whole = run(records, [])
    const disk = tables()
    const postings: Posting[] = []
    let books = disk.books()
    for (let at = 0; at < records.length;) {
      const batch = records.slice(at, at + 1 + roll(4))
      const posting = fold(books, disk.posted, PRICES, batch, AT_MS + [0, 50, 1_000][roll(3)]!)
      const dies = roll(6)
      if (dies !== 0) {
        disk.commit(posting)
        postings.push(posting)
        stored += posting.opened.length
      }
      if (dies <= 1) {
        books = disk.books()
        const { segment, offset } = disk.start()
        const from = records.findIndex(
          (item) => item.segment > segment || (item.segment === segment && item.offset >= offset),
        )
        const next = from < 0 ? records.length : from
        reread += Math.max(0, at - next)
        at = next
      } else {
        advance(books, posting)
        at += batch.length
      }
    }
    postings.push(settle(books, PRICES, 'w', END))
    const all = <Part extends 'rows' | 'attempts' | 'refusals'>(part: Part, of: readonly Posting[]) =>
      of
        .flatMap<unknown>((posting) => posting[part])
        .toSorted((one, other) => (Bun.inspect(one) < Bun.inspect(other) ? -1 : 1))
    for (const part of ['rows', 'attempts', 'refusals'] as const) expect(all(part, postings)).toEqual(all(part, whole))
    expect(net(postings.flatMap(({ entries }) => entries))).toEqual(net(whole.flatMap(({ entries }) => entries)))
  })
  expect([reread > 100, stored > 100]).toEqual([true, true])
}, 60_000)

test('whatever comes, nothing stays held and revenue is the sum of the charges', () => {
  forAll(200, (roll) => {
    const postings = run(journal('w', randomRecords(roll, 12)), [])
    const balances = new Map<string, bigint>()
    const add = (account: string, amount: bigint) => balances.set(account, (balances.get(account) ?? 0n) + amount)
    for (const { debit, credit, amount_nanodollars } of postings.flatMap((posting) => posting.entries)) {
      add(debit, -amount_nanodollars)
      add(credit, amount_nanodollars)
    }
    const charged = postings
      .flatMap((posting) => posting.rows)
      .reduce((sum, row) => sum + (row.charge_nanodollars ?? 0n), 0n)
    expect(balances.get('revenue') ?? 0n).toBe(charged)
    for (const [account, balance] of balances) if (account.startsWith('held:')) expect(balance).toBe(0n)
  })
})
