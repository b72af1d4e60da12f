import { callIdOf } from '../../src/journal/record.ts'
import { expect, setDefaultTimeout, test } from 'bun:test'
import { Database } from 'bun:sqlite'
import { join } from 'node:path'
import { fileOf, openReader, openWriter } from '../../src/ledger/database.ts'
import { createPoster } from '../../src/ledger/poster.ts'
import { emptyBooks, fold, settle } from '../../src/ledger/posting.ts'
import { findFaults } from '../../src/ledger/reconcile.ts'
import { forAll, rollFrom, tempFolder } from '../kit/wait.ts'
import { contents, postAll, settleAll } from './books.ts'
import { PRICES, attempt, ending, intent, journal, progress, randomRecords } from './make.ts'

setDefaultTimeout(60_000)

const openPoster = (path: string) => {
  const store = openWriter(path, 'ledger')
  return { store, poster: createPoster(store), [Symbol.dispose]: () => store.sqlite.close() }
}

test('for every prefix of a journal: a crash after it, and a replay from the start, give identical books', () => {
  forAll(3, (roll) => {
    const records = journal('w', randomRecords(roll, 4))
    using whole_folder = tempFolder()
    using whole = openPoster(whole_folder.path)
    postAll(whole.poster, records, 1)
    settleAll(whole.poster, 'w')
    const want = contents(whole.store)
    for (let crash = 0; crash <= records.length; crash++) {
      using folder = tempFolder()
      {
        using before = openPoster(folder.path)
        postAll(before.poster, records.slice(0, crash), 1 + roll(5))
      }
      using after = openPoster(folder.path)
      postAll(after.poster, records, 1 + roll(5))
      settleAll(after.poster, 'w')
      expect(contents(after.store)).toEqual(want)
      expect(findFaults(after.store)).toEqual([])
    }
  })
})

test('an open call comes back as it was', () => {
  using folder = tempFolder()
  using first = openPoster(folder.path)
  const records = journal('w', [intent('a'), attempt('a'), progress('a'), ending('b')])
  postAll(first.poster, records, 4)
  const folded = fold(emptyBooks, new Set(), PRICES, records)
  using second = openPoster(folder.path)
  expect([...second.poster.books().open.values()]).toEqual([...folded.opened])
  expect(second.poster.books().positions).toEqual(new Map(folded.to))
})

test('two accountants: the slower one is told, and writes nothing', () => {
  using folder = tempFolder()
  using one = openPoster(folder.path)
  using other = openPoster(folder.path)
  const records = journal('w', [intent('a'), ending('a'), intent('b')])
  const posting = fold(emptyBooks, new Set(), PRICES, records)
  expect(one.poster.post(posting)).toEqual({ is: 'posted' })
  const before = contents(one.store)
  expect(other.poster.post(posting)).toEqual({ is: 'stale' })
  expect(other.poster.post(fold(emptyBooks, new Set(), PRICES, journal('w2', [intent('a'), ending('a')])))).toEqual({
    is: 'stale',
  })
  const settling = settle(one.poster.books(), PRICES, 'w', { segment: 0, offset: 364 })
  expect(contents(one.store)).toEqual(before)
  expect([one.poster.post(settling).is, other.poster.post(settling).is]).toEqual(['posted', 'stale'])
  expect(one.store.sqlite.prepare('SELECT id FROM calls ORDER BY id').values()).toEqual([['a'], ['b']])
})

test('a forgotten series that comes back posts nothing twice', () => {
  using folder = tempFolder()
  using house = openPoster(folder.path)
  const records = journal('w', [intent('a'), attempt('a'), ending('a')])
  postAll(house.poster, records, 3)
  const before = contents(house.store)
  expect(house.poster.forget('w')).toEqual({ is: 'posted' })
  expect(house.poster.books().positions.size).toBe(0)
  postAll(house.poster, records, 2)
  expect(contents(house.store)).toEqual(before)
})

test('a locked database answers "later", and the same posting works afterwards', () => {
  using folder = tempFolder()
  using house = openPoster(folder.path)
  const other = new Database(fileOf(folder.path, 'ledger'))
  const posting = fold(emptyBooks, new Set(), PRICES, journal('w', [intent('a'), ending('a')]))
  other.run('BEGIN IMMEDIATE')
  expect(house.poster.post(posting)).toMatchObject({ is: 'later', cause: { code: 'SQLITE_BUSY' } })
  expect(house.poster.posted(['a'])).toEqual(new Set())
  other.run('ROLLBACK')
  other.close()
  expect(house.poster.post(posting)).toEqual({ is: 'posted' })
})

test('a full disk answers "later", and the same posting works afterwards', () => {
  using folder = tempFolder()
  using house = openPoster(folder.path)
  const calls = Array.from({ length: 2000 }, (_, n) => [intent(`a${n}`), ending(`a${n}`)]).flat()
  const posting = fold(emptyBooks, new Set(), PRICES, journal('w', calls))
  house.store.sqlite.run('PRAGMA max_page_count = 40')
  expect(house.poster.post(posting)).toMatchObject({ is: 'later', cause: { code: 'SQLITE_FULL' } })
  expect(contents(house.store)['positions']).toEqual([])
  house.store.sqlite.run('PRAGMA max_page_count = 1073741823')
  expect(house.poster.post(posting)).toEqual({ is: 'posted' })
  expect(house.store.sqlite.prepare('SELECT count(*) FROM calls').values()).toEqual([[2000n]])
})

test('kill -9 at random moments, twenty times: in the end rows = calls, and the books are those of a life without', async () => {
  using folder = tempFolder()
  const seed = Math.floor(Math.random() * 2 ** 31)
  const calls = 1500
  const child = () =>
    Bun.spawn([process.execPath, join(import.meta.dir, 'posting-child.ts'), folder.path, String(seed), String(calls)], {
      stdout: 'pipe',
      stderr: 'inherit',
    })
  let killed_midway = 0
  for (let round = 0; round < 20; round++) {
    const running = child()
    const output = running.stdout.getReader()
    const first = await output.read()
    await Bun.sleep(Math.random() * 12)
    running.kill('SIGKILL')
    await running.exited
    if (new TextDecoder().decode(first.value) === 'posting\n' && (await output.read()).done) killed_midway += 1
    using reader = openPoster(folder.path)
    expect(findFaults(reader.store), `seed ${seed}`).toEqual([])
  }
  const last = child()
  expect(await new Response(last.stdout).text()).toEndWith('posted\n')
  using killed = openPoster(folder.path)
  settleAll(killed.poster, 'w')

  using whole_folder = tempFolder()
  using whole = openPoster(whole_folder.path)
  const records = journal('w', randomRecords(rollFrom(seed), calls))
  postAll(whole.poster, records, 2000)
  settleAll(whole.poster, 'w')
  expect(contents(killed.store), `seed ${seed}`).toEqual(contents(whole.store))
  const ids = new Set(records.map(({ record }) => callIdOf(record!)))
  expect(killed.store.sqlite.prepare('SELECT count(*) FROM calls').values()).toEqual([[BigInt(ids.size)]])
  expect(killed_midway).toBeGreaterThan(0)
  const reader = openReader(folder.path, 'ledger')
  expect(reader.sqlite.prepare('PRAGMA integrity_check').values()).toEqual([['ok']])
  reader.sqlite.close()
}, 60_000)
