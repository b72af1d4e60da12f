import { Database } from 'bun:sqlite'
import { expect, test } from 'bun:test'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { checkJournal } from '../../src/audit/fsck-journal.ts'
import { Failure } from '../../src/base/failure.ts'
import { newCallId } from '../../src/base/ids.ts'
import type { JournalRecord } from '../../src/journal/record.ts'
import { openJournalTail } from '../../src/journal/tail.ts'
import { openJournal, type Journal } from '../../src/journal/writer.ts'
import { runAccountant, startPositions, type AccountantPorts } from '../../src/ledger/accountant.ts'
import { fileOf, openReader, openWriter } from '../../src/ledger/database.ts'
import { createPoster } from '../../src/ledger/poster.ts'
import { findFaults } from '../../src/ledger/reconcile.ts'
import { eventually, gate, tempFolder } from '../kit/wait.ts'
import { AT_MS, PRICES, ending, intent, progress } from './make.ts'

/** A data folder with its accountant, which can be started again on it, and a reader that looks at the rows. */
const house = (data: string, ports: Partial<AccountantPorts> = {}) => {
  const folder = join(data, 'journal')
  mkdirSync(folder, { recursive: true })
  const store = openWriter(data, 'ledger')
  const poster = createPoster(store)
  const tail = openJournalTail({ folder, positions: startPositions(poster), discover_ms: 20 })
  const live = { writers: true }
  const accountant = runAccountant({
    tail,
    poster,
    prices: () => PRICES,
    now: () => AT_MS + 1500,
    is_live: () => live.writers,
    poll_ms: 10,
    ...ports,
  })
  const close = async () => {
    await accountant.stop()
    tail.close()
    store.sqlite.close()
  }
  return { accountant, folder, live, store, close }
}

const openSeries = async (folder: string, worker_index: number, incarnation = 0): Promise<Journal> => {
  const options = { folder, worker_index, incarnation, sync_ms: 5, segment_bytes: 4 * 1024 * 1024 }
  const journal = await openJournal({ ...options, durability: 'standard' })
  if (journal instanceof Failure) throw journal.detail.cause
  return journal
}

const append = (journal: Journal, ...records: JournalRecord[]): void => {
  for (const record of records) {
    const position = journal.append(record)
    if (position instanceof Failure) throw new Error(position.code)
  }
}

const ids = ({ sqlite }: { sqlite: Database }) =>
  sqlite
    .prepare<{ id: string }, []>('SELECT id FROM calls ORDER BY id')
    .all()
    .map(({ id }) => id)

const callOf = (id: string) => [intent(id), ending(id)]

test('rows appear while the workers write, a call open over many batches included', async () => {
  using data = tempFolder()
  const { accountant, folder, store, close } = house(data.path)
  const journals = [await openSeries(folder, 0), await openSeries(folder, 1)]
  append(journals[0]!, intent('long'))
  const want: string[] = []
  for (let round = 0; round < 30; round++) {
    for (const journal of journals) {
      const id = newCallId()
      want.push(id)
      append(journal, ...callOf(id))
    }
    if (round % 10 === 0) await Bun.sleep(5)
  }
  await eventually(() => expect(ids(store)).toEqual(want.toSorted()))
  expect(findFaults(store)).toEqual([])
  append(journals[0]!, ending('long'))
  await eventually(() => expect(ids(store)).toContain('long'))
  expect(findFaults(store)).toEqual([])
  expect(accountant.stats()).toMatchObject({ posted_calls: 61, ignored_records: 0, retries: 0, lag_ms: 500 })
  for (const journal of journals) await journal.close()
  await close()
})

test('drain posts all that is there; what a closed series left open is settled', async () => {
  using data = tempFolder()
  const { accountant, folder, store, close } = house(data.path)
  const journal = await openSeries(folder, 0)
  const want = Array.from({ length: 3000 }, () => newCallId())
  for (const id of want) append(journal, ...callOf(id))
  append(journal, intent('left'))
  append(journal, progress('left'))
  await journal.close()
  await accountant.drain()
  expect(ids(store)).toEqual([...want, 'left'].toSorted())
  expect(store.sqlite.prepare("SELECT ending, charge_nanodollars FROM calls WHERE id = 'left'").values()).toEqual([
    ['recovered', 360_000n],
  ])
  expect(findFaults(store)).toEqual([])
  await close()
})

test('a writer that died: its calls are settled, those of a living one stay open', async () => {
  using data = tempFolder()
  const dead = new Set<string>()
  const { folder, store, close } = house(data.path, { is_live: (series) => !dead.has(series), young_ms: 0 })
  const [dying, living] = [await openSeries(folder, 0), await openSeries(folder, 1)]
  append(dying, intent('a'))
  append(living, intent('b'))
  await eventually(() => expect(store.sqlite.prepare('SELECT count(*) FROM open_calls').values()).toEqual([[2n]]))
  expect(findFaults(store)).toEqual([])
  // A worker appends to the last, then dies: what it wrote before must count.
  append(dying, ending('a'))
  append(dying, intent('c'))
  dead.add(dying.series)
  await eventually(() => expect(ids(store)).toEqual(['a', 'c']))
  expect(store.sqlite.prepare('SELECT ending FROM calls ORDER BY id').values()).toEqual([['whole'], ['recovered']])
  expect(findFaults(store)).toEqual([])
  await living.close()
  await close()
})

test('stopped and started again, it goes on where it was, and opens no finished series', async () => {
  using data = tempFolder()
  const first = house(data.path)
  const journal = await openSeries(first.folder, 0)
  const other = await openSeries(first.folder, 1)
  append(journal, ...callOf('a'), intent('b'))
  append(other, intent('x'))
  await other.close()
  await eventually(() => expect(ids(first.store)).toEqual(['a', 'x']))
  await first.close()
  append(journal, ending('b'))
  append(journal, ...callOf('c'))
  const second = house(data.path)
  await second.accountant.drain()
  expect(ids(second.store)).toEqual(['a', 'b', 'c', 'x'])
  expect(second.accountant.stats()).toMatchObject({ posted_calls: 2, ignored_records: 0 })
  expect(findFaults(second.store)).toEqual([])
  await journal.close()
  await second.close()
})

test('calls that are open are not stored while they are young, and outlive an accountant all the same', async () => {
  using data = tempFolder()
  const open = ({ store }: ReturnType<typeof house>) =>
    store.sqlite
      .prepare<{ call_id: string }, []>('SELECT call_id FROM open_calls')
      .all()
      .map(({ call_id }) => call_id)
  const first = house(data.path, { young_ms: 1_000 })
  const journal = await openSeries(first.folder, 0)
  append(journal, intent('old'), intent('young', { at_ms: AT_MS + 1_400 }), ...callOf('a'))
  await eventually(() => expect(ids(first.store)).toEqual(['a']))
  expect(open(first)).toEqual(['old'])
  await first.close()
  append(journal, progress('young'), ...callOf('b'))
  const second = house(data.path)
  await eventually(() => expect(ids(second.store)).toEqual(['a', 'b']))
  expect(findFaults(second.store)).toEqual([])
  const reader = new Database(fileOf(data.path, 'ledger'), { readonly: true, safeIntegers: true })
  expect(checkJournal(second.folder, reader, () => undefined)).toEqual({ records: 7, waiting: 2 })
  reader.close()
  await journal.close()
  await second.accountant.drain()
  expect(ids(second.store)).toEqual(['a', 'b', 'old', 'young'])
  const of_young = second.store.sqlite.prepare("SELECT ending, completion_tokens FROM calls WHERE id = 'young'")
  expect(of_young.values()).toEqual([['recovered', 20n]])
  expect(findFaults(second.store)).toEqual([])
  await second.close()
})

test('another connection holds the database for a second while a reader reports: delayed, nothing lost', async () => {
  using data = tempFolder()
  const causes: unknown[] = []
  const { accountant, folder, store, close } = house(data.path, { on_trouble: (cause) => causes.push(cause) })
  const journal = await openSeries(folder, 0)
  const want = Array.from({ length: 500 }, () => newCallId())
  const reader = openReader(data.path, 'ledger')
  reader.sqlite.run('BEGIN')
  reader.sqlite.prepare('SELECT count(*) FROM calls').get()
  const other = new Database(fileOf(data.path, 'ledger'))
  other.run('BEGIN IMMEDIATE')
  for (const id of want) append(journal, ...callOf(id))
  await Bun.sleep(1_000)
  expect(ids(store)).toEqual([])
  other.run('ROLLBACK')
  other.close()
  await accountant.drain()
  expect(ids(store)).toEqual(want.toSorted())
  expect(accountant.stats().retries).toBeGreaterThan(0)
  expect(causes[0]).toMatchObject({ code: 'SQLITE_BUSY' })
  expect(findFaults(store)).toEqual([])
  reader.sqlite.close()
  await journal.close()
  await close()
})

test('two accountants by mistake: every call has one row, and both go on', async () => {
  using data = tempFolder()
  const [one, other] = [house(data.path), house(data.path)]
  const journal = await openSeries(one.folder, 0)
  const want = Array.from({ length: 200 }, () => newCallId())
  for (const id of want) {
    append(journal, ...callOf(id))
    if (want.indexOf(id) % 20 === 0) await Bun.sleep(3)
  }
  await Promise.all([one.accountant.drain(), other.accountant.drain()])
  expect(ids(one.store)).toEqual(want.toSorted())
  expect(findFaults(one.store)).toEqual([])
  expect(one.accountant.stats().posted_calls + other.accountant.stats().posted_calls).toBe(200)
  await journal.close()
  await one.close()
  await other.close()
})

test('a slow write delays rows only; stop leaves the rest in the journal', async () => {
  using data = tempFolder()
  const slow = gate()
  const first = house(data.path, { before_post: () => slow.opened })
  const journal = await openSeries(first.folder, 0)
  append(journal, ...callOf('a'))
  await Bun.sleep(50)
  expect(ids(first.store)).toEqual([])
  const draining = first.accountant.drain().catch((cause: Error) => cause.message)
  const stopping = first.close()
  slow.open()
  await stopping
  expect(await draining).toBe('the accountant stopped before all was posted')
  const second = house(data.path)
  await second.accountant.drain()
  expect(ids(second.store)).toEqual(['a'])
  await journal.close()
  await second.close()
})

test('a bug ends the accountant loudly, and nothing is half written', async () => {
  using data = tempFolder()
  const { accountant, folder, store } = house(data.path, {
    prices: () => {
      throw new Error('no prices')
    },
  })
  const journal = await openSeries(folder, 0)
  append(journal, ...callOf('a'))
  await expect(accountant.done).rejects.toThrow('no prices')
  expect(store.sqlite.prepare('SELECT count(*) FROM positions').values()).toEqual([[0n]])
  await journal.close()
  store.sqlite.close()
})
