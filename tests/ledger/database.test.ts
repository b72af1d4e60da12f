import { Database } from 'bun:sqlite'
import { expect, setDefaultTimeout, test } from 'bun:test'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileOf, networkShare, openReader, openWriter } from '../../src/ledger/database.ts'
import { createPoster } from '../../src/ledger/poster.ts'
import { tempFolder } from '../kit/wait.ts'

setDefaultTimeout(60_000)

const CHILD = join(import.meta.dir, 'open-child.ts')

test.each(['ledger', 'house'] as const)('%s: settings are the ones promised, on every connection', (name) => {
  using folder = tempFolder()
  const { sqlite } = openWriter(folder.path, name)
  const pragma = (of: Database, what: string) => Object.values(of.prepare(`PRAGMA ${what}`).get() ?? {})[0]
  expect(pragma(sqlite, 'journal_mode')).toBe('wal')
  expect(pragma(sqlite, 'synchronous')).toBe(2n)
  expect(pragma(sqlite, 'foreign_keys')).toBe(1n)
  expect(Number(pragma(sqlite, 'busy_timeout'))).toBeGreaterThan(0)
  expect(() => sqlite.prepare('SELECT $a').get({ b: 1 })).toThrow()
  expect(sqlite.prepare('SELECT 9007199254740993 AS n').get()).toEqual({ n: 9007199254740993n })
  const reader = openReader(folder.path, name).sqlite
  expect(() => reader.run('DELETE FROM __drizzle_migrations')).toThrow('readonly')
  reader.close()
  sqlite.close()
})

test('a reader may come first, and the last writer may have gone', () => {
  using folder = tempFolder()
  for (let round = 0; round < 3; round++) {
    const reader = openReader(join(folder.path, 'data'), 'ledger').sqlite
    expect(reader.prepare('SELECT count(*) AS n FROM calls').get()).toEqual({ n: 0n })
    reader.close()
    openWriter(join(folder.path, 'data'), 'ledger').sqlite.close()
  }
})

test('eight processes on an empty folder all come up, and all see the same tables', async () => {
  using folder = tempFolder()
  const children = Array.from({ length: 8 }, (_, nth) =>
    Bun.spawn([process.execPath, CHILD, join(folder.path, 'data'), nth % 2 ? 'reader' : 'writer'], { stderr: 'pipe' }),
  )
  const ends = await Promise.all(
    children.map(async (child) => [
      await child.exited,
      await new Response(child.stderr).text(),
      await new Response(child.stdout).text(),
    ]),
  )
  expect(ends).toEqual(children.map(() => [0, '', '17\n']))
})

test('what is not a database says so', () => {
  using folder = tempFolder()
  mkdirSync(folder.path, { recursive: true })
  writeFileSync(fileOf(folder.path, 'ledger'), 'x'.repeat(8192))
  expect(() => openWriter(folder.path, 'ledger')).toThrow(/ledger\.db.*not a database/)
})

test.each([
  [0x6969, 'NFS'],
  [-11317950, 'CIFS'],
  [0xef53, undefined],
  [0x01021994, undefined],
] as const)('file system %p is %p', (type, want) => expect(networkShare(type)).toBe(want as string))

test.each([
  ['UPDATE entries SET amount_nanodollars = 1', 'entries are append-only'],
  ['DELETE FROM entries', 'entries are append-only'],
  ["INSERT INTO entries VALUES (9, NULL, 0, 'grant', 'a', 'b', 0, '', NULL)", 'entries_amount_positive'],
  ["INSERT INTO entries VALUES (9, NULL, 0, 'grant', 'a', 'a', 5, '', NULL)", 'entries_accounts_differ'],
] as const)('the books refuse: %s', (sql, says) => {
  using folder = tempFolder()
  const store = openWriter(folder.path, 'ledger')
  createPoster(store).transfer({
    call_id: null,
    at_ms: 0,
    kind: 'grant',
    debit: 'grants',
    credit: 'tenant:acme',
    amount_nanodollars: 5n,
    reason: 'welcome',
  })
  expect(() => store.sqlite.run(sql)).toThrow(says)
  store.sqlite.close()
})
