import { Database } from 'bun:sqlite'
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { CheckpointStore } from '../../src/audit/checkpoint-store.ts'
import { fsck } from '../../src/audit/fsck.ts'
import { openLog } from '../../src/audit/log.ts'
import { KINDS } from '../../src/journal/fields.ts'
import { freshFolder, good } from './folder.ts'
import { makeSmallHouse, ORIGIN } from './small-house.ts'

setDefaultTimeout(60_000)

/** A data folder that an earlier version wrote: its leaves lack the members that came later, its rows have their defaults. */

const folder = freshFolder()
const [whole, older, data] = ['whole', 'older', 'copy'].map((name) => join(folder.path, name)) as [
  string,
  string,
  string,
]
beforeAll(async () => {
  await makeSmallHouse(whole)
  cpSync(whole, older, { recursive: true })
  change(older, "UPDATE calls SET asked_model = ''")
  const from = good(openLog(join(whole, 'audit'), { origin: ORIGIN }))
  const leaves = Array.from({ length: from.size() }, (_, index) => new TextDecoder().decode(good(from.leaf(index))))
  from.close()
  const store = new CheckpointStore(join(whole, 'audit'), 'read_only')
  const sizes = new Set(Array.from({ length: store.count }, (_, nth) => store.at(nth).checkpoint.size))
  store.close()
  for (const file of ['leaves.data', 'leaves.index', 'nodes', 'checkpoints.data', 'checkpoints.index'])
    rmSync(join(older, 'audit', file))
  const log = good(openLog(join(older, 'audit'), { origin: ORIGIN }))
  let at = 0
  for (const size of sizes) {
    good(log.append(leaves.slice(at, size).map((leaf) => Buffer.from(asBefore(leaf)))))
    at = size
    good(log.checkpoint())
  }
  log.close()
})
afterAll(() => folder[Symbol.dispose]())

const asBefore = (leaf: string): string => {
  const { asked_model: _asked, images: _images, image_nanodollars: _image, ...rest } = JSON.parse(leaf)
  if (rest.type === 'call' && rest.entries.length === 0) delete rest.entries
  return JSON.stringify(rest)
}

const change = (where: string, ...statements: readonly string[]) => {
  const db = new Database(join(where, 'ledger.db'), { safeIntegers: true })
  for (const { name } of db
    .prepare<{ name: string }, []>("SELECT name FROM sqlite_schema WHERE type = 'trigger'")
    .all())
    db.run(`DROP TRIGGER ${name}`)
  for (const statement of statements) db.run(statement)
  db.close()
}

const faultAfter = (...statements: readonly string[]) => {
  rmSync(data, { recursive: true, force: true })
  cpSync(older, data, { recursive: true })
  change(data, ...statements)
  return fsck(data, { keys: [], saved: undefined }).fault
}

test('is sound, before its ledger has the new columns and after', () => {
  expect(faultAfter()).toBeUndefined()
  expect(
    faultAfter(
      'ALTER TABLE calls DROP COLUMN asked_model',
      'ALTER TABLE calls DROP COLUMN images',
      'ALTER TABLE prices DROP COLUMN image_nanodollars',
    ),
  ).toBeUndefined()
})

test.each([
  ["UPDATE calls SET asked_model = 'm2' WHERE id = 'call_0004'", /call_0004: asked_model/],
  ["UPDATE calls SET images = 2 WHERE id = 'call_0004'", /call_0004: images/],
  ['UPDATE prices SET image_nanodollars = 1', /price m1 .*image_nanodollars/],
])('%s: found, as the leaf says nothing of it', (statement, names) => {
  expect(faultAfter(statement)).toMatch(names)
})

const WIDTHS: Readonly<Record<string, number>> = { u8: 1, u16: 2, u32: 4, i64: 8, f64: 8, flag: 1, hash: 32, text: 2 }

test.each([
  ['intent', 'images'],
  ['ending', 'audio_input_tokens'],
  ['ending', 'audio_output_tokens'],
] as const)('%s.%s of a journal rewritten with its chain of checksums', (kind, field) => {
  rmSync(data, { recursive: true, force: true })
  cpSync(whole, data, { recursive: true })
  const file = join(data, 'journal/w00-000000-000000.journal')
  const { code, fields } = KINDS[kind]
  let offset = 4
  for (const [name, type] of Object.entries(fields)) {
    if (name === field) break
    offset += WIDTHS[String(type)] ?? 1
  }
  const bytes = readFileSync(file)
  let chain = bytes.readUInt32LE(24)
  for (let at = 64; bytes.readUInt32LE(at) !== 0;) {
    const length = bytes.readUInt32LE(at)
    const next = at + 8 + Math.ceil(length / 8) * 8
    if (bytes[at + 8] === code) bytes.writeUInt32LE(1, at + 8 + offset)
    chain = Bun.hash.crc32(bytes.subarray(at + 8, next), (chain ^ length) >>> 0)
    bytes.writeUInt32LE(chain, at + 4)
    at = next
  }
  writeFileSync(file, bytes)
  expect(fsck(data, { keys: [], saved: undefined }).fault).toMatch(new RegExp(`call_\\d{4} has ${field} "1"`))
})
