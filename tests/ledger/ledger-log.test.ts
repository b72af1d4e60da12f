import { Database } from 'bun:sqlite'
import { expect, setDefaultTimeout, test } from 'bun:test'
import { cpSync, readFileSync, rmSync, statSync, truncateSync } from 'node:fs'
import { join } from 'node:path'
import { fsck } from '../../src/audit/fsck.ts'
import { openLogReader } from '../../src/audit/read-side.ts'
import { openLedgerLog } from '../../src/ledger/ledger-log.ts'
import { openWriter } from '../../src/ledger/database.ts'
import { createPoster } from '../../src/ledger/poster.ts'
import { emptyBooks, fold } from '../../src/ledger/posting.ts'
import { leafCounter } from '../../src/ledger/leaf-numbers.ts'
import { freshFolder, good } from '../audit/folder.ts'
import { makeSmallHouse, ORIGIN } from '../audit/small-house.ts'
import { intent, journal, PRICES } from './make.ts'

setDefaultTimeout(60_000)

const leavesOf = (data: string): string[] => {
  const reader = good(openLogReader(join(data, 'audit')))
  const leaves = Array.from({ length: reader.size() }, (_, index) => new TextDecoder().decode(good(reader.leaf(index))))
  reader.close()
  return leaves
}
const open = (data: string, leaves_max = 1_000) => {
  const ledger_log = openLedgerLog(data, join(data, 'audit'), ORIGIN)
  const { repaired } = ledger_log.log
  while (good(ledger_log.follow(leaves_max)) > 0);
  expect(ledger_log.behind()).toBe(0)
  good(ledger_log.log.checkpoint())
  ledger_log.close()
  return repaired
}
const cut = (data: string, leaves: number): void => {
  for (const file of ['checkpoints.data', 'checkpoints.index']) rmSync(join(data, 'audit', file))
  const index = join(data, 'audit/leaves.index')
  const end = leaves === 0 ? 0 : Number(readFileSync(index).readBigUInt64LE(8 * leaves - 8))
  truncateSync(index, 8 * leaves)
  truncateSync(join(data, 'audit/leaves.data'), end)
}

test('leaves that a loss of power took, from any place on, are made again of their rows, byte by byte', async () => {
  using folder = freshFolder()
  const whole = join(folder.path, 'whole')
  await makeSmallHouse(whole)
  const want = leavesOf(whole)
  expect(new Set(want.map((leaf) => JSON.parse(leaf).type))).toEqual(
    new Set(['call', 'entries', 'price', 'refusal', 'admin_action']),
  )
  for (const kept of [0, 1, 17, want.length - 1, want.length]) {
    const data = join(folder.path, `from-${kept}`)
    cpSync(whole, data, { recursive: true })
    cut(data, kept)
    expect(open(data, kept === 17 ? 3 : 1_000).size).toBe(kept)
    expect(leavesOf(data)).toEqual(want)
  }
})

test('an auditor killed between leaves and nodes: fsck says what is missing, and the next start makes it', async () => {
  using folder = freshFolder()
  const data = folder.path
  await makeSmallHouse(data, 8, 1)
  // Nothing of it is signed yet.
  for (const file of ['checkpoints.data', 'checkpoints.index']) truncateSync(join(data, 'audit', file), 0)
  const nodes = join(data, 'audit/nodes')
  truncateSync(nodes, statSync(nodes).size - 32)
  const { fault, notes } = fsck(data, { keys: [], saved: undefined })
  expect(fault).toBeUndefined()
  expect(notes.join()).toContain('1 leaves that are not signed have no nodes')
  open(data)
  expect(fsck(data, { keys: [], saved: undefined })).toMatchObject({ fault: undefined, notes: [] })
})

test('a ledger that has fewer rows than are signed is not written to', async () => {
  using folder = freshFolder()
  await makeSmallHouse(folder.path, 8, 1)
  const db = new Database(join(folder.path, 'ledger.db'))
  for (const trigger of ['entries_keep_delete', 'refusals_keep_delete', 'admin_actions_keep_delete'])
    db.run(`DROP TRIGGER ${trigger}`)
  for (const table of ['calls', 'entries', 'prices', 'refusals', 'admin_actions'])
    db.run(`DELETE FROM ${table} WHERE log_index > 3`)
  db.close()
  const before = leavesOf(folder.path)
  expect(() => openLedgerLog(folder.path, join(folder.path, 'audit'), ORIGIN)).toThrow(
    /has signed \d+ leaves and the ledger has 4/,
  )
  expect(leavesOf(folder.path)).toEqual(before)
})

test('two writers never have the log at once; another name is refused', async () => {
  using folder = freshFolder()
  await makeSmallHouse(folder.path, 8, 1)
  const first = openLedgerLog(folder.path, join(folder.path, 'audit'), undefined)
  const child = Bun.spawnSync([
    process.execPath,
    '-e',
    `import { lockForWriter } from '${join(import.meta.dir, '../../src/audit/writer-lock.ts')}'; process.exit(lockForWriter('${join(folder.path, 'audit')}', 50) === undefined ? 7 : 0)`,
  ])
  expect(child.exitCode).toBe(7)
  first.close()
  expect(() => openLedgerLog(folder.path, join(folder.path, 'audit'), 'example.com/other')).toThrow(
    'a log keeps its name',
  )
})

test('holds of several tenants in one posting: the last row of the entries is in the last leaf', () => {
  using folder = freshFolder()
  const store = openWriter(folder.path, 'ledger')
  const tenants = ['a', 'b', 'a', 'c', 'b', 'a']
  const records = tenants.map((tenant, nth) => intent(`call_${nth}`, { tenant }))
  const posting = fold(emptyBooks, new Set(), PRICES, journal('w', records))
  expect(createPoster(store, 'logged').post(posting)).toEqual({ is: 'posted' })
  expect(leafCounter(store.sqlite)()).toBe(3)
  store.sqlite.close()
  expect(open(folder.path).size).toBe(0)
  // It was refused here, as an older copy of a ledger that has signed more.
  expect(open(folder.path)).toMatchObject({ size: 3, leaves_cut: 0 })
})
