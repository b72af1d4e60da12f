import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import { readFileSync, renameSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { verifyCheckpoint } from '../../src/audit/checkpoint.ts'
import { hashLeaf, sha256 } from '../../src/audit/hash.ts'
import { type Log, type LogOptions, openLog } from '../../src/audit/log.ts'
import { openLogReader } from '../../src/audit/read-side.ts'
import { parseTilePath, type Tile, tilePath, tilesAt } from '../../src/audit/tiles.ts'
import { openSigningKeys } from '../../src/audit/signing-keys.ts'
import { consistencyFault, inclusionFault } from '../../src/audit/verify.ts'
import { consistencyJson, inclusionJson, readConsistency, readInclusion } from '../../src/audit/wire.ts'
import { bad, freshFolder, good } from './folder.ts'
import { leafHashesOf, leafOf, leavesOf, mth } from './reference.ts'

setDefaultTimeout(60_000)

const ORIGIN = 'example.com/weir'
const HASHES = leafHashesOf(3000)
const MEMO = new Map<string, Uint8Array>()
const root = (size: number) => mth(HASHES, 0, size, MEMO)
const open = (folder: string, options: Partial<LogOptions> = {}): Log =>
  good(openLog(folder, { origin: ORIGIN, ...options }))

/** A log of the test's leaves, closed again. */
const made = (folder: string, signed: number, size: number): void => {
  const log = open(folder)
  good(log.append(leavesOf(0, signed)))
  good(log.checkpoint())
  good(log.append(leavesOf(signed, size)))
  log.close()
}

describe('log', () => {
  test('append, prove, sign, reopen', () => {
    using folder = freshFolder()
    const log = open(folder.path)
    expect([log.size(), good(log.root()), log.latest()]).toEqual([0, sha256(new Uint8Array(0)), undefined])
    expect(good(log.append(leavesOf(0, 1000)))).toBe(0)
    const early = good(log.checkpoint())
    expect(good(log.append(leavesOf(1000, 3000)))).toBe(1000)
    expect(good(log.append([]))).toBe(3000)
    expect(good(log.checkpoint())).not.toBe(early)
    log.close()
    const again = open(folder.path, { ledger_size: 3000 })
    expect(again.repaired).toEqual({ size: 3000, leaves_cut: 0, leaves_hashed: 0 })
    for (let index = 0; index < 3000; index += 13) {
      const claim = good(again.inclusion(index))
      expect(inclusionFault(claim)).toBeUndefined()
      expect([claim.leaf_hash, claim.root]).toEqual([hashLeaf(good(again.leaf(index))), root(3000)])
      expect(good(readInclusion(JSON.parse(JSON.stringify(inclusionJson(claim)))))).toEqual(claim)
    }
    for (let from = 1; from <= 3000; from += 17) {
      const claim = good(again.consistency(from))
      expect(consistencyFault(claim)).toBeUndefined()
      expect([claim.from_root, claim.to_root]).toEqual([root(from), root(3000)])
      expect(good(readConsistency(JSON.parse(JSON.stringify(consistencyJson(claim)))))).toEqual(claim)
    }
    const { checkpoint } = good(verifyCheckpoint(good(again.latest())!.note, again.verifiers()))
    expect(checkpoint).toEqual({ origin: ORIGIN, size: 3000, root: root(3000) })
    expect([good(again.covering(999))!.note, good(again.covering(1000))!.checkpoint.size]).toEqual([early, 3000])
    again.close()
  })

  test('an unchanged log is not signed again; a rotated key is', () => {
    using folder = freshFolder()
    const log = open(folder.path)
    good(log.append(leavesOf(0, 3)))
    const first = good(log.checkpoint())
    expect(good(log.checkpoint())).toBe(first)
    const [old_key, new_key] = good(log.rotateKey())
    const both = good(log.checkpoint())
    expect(good(verifyCheckpoint(both, log.verifiers())).signed_by.map(({ key }) => key)).toEqual([new_key!, old_key!])
    good(log.append(leavesOf(3, 4)))
    expect(bad(verifyCheckpoint(good(log.checkpoint()), [old_key!])).detail.says).toBe('no known key has signed')
    log.close()
    expect(open(folder.path).verifiers()).toEqual([old_key!, new_key!])
  })

  test('questions outside the log name the value', () => {
    using folder = freshFolder()
    made(folder.path, 5, 5)
    const log = open(folder.path)
    const asked: [unknown, string][] = [
      [log.inclusion(5), 'index must be a whole number from 0 to below 5.'],
      [log.inclusion(3, 3), 'index must be a whole number from 0 to below 3.'],
      [log.inclusion(0, 6), 'size must be a whole number from 0 to 5.'],
      [log.inclusion(0.5), 'index must be'],
      [log.consistency(0), 'from must be a whole number from 1 to 5.'],
      [log.consistency(4, 3), 'from must be a whole number from 1 to 3.'],
      [log.consistency(1, 9), 'to must be a whole number from 1 to 5.'],
      [log.root(-1), 'size must be'],
      [log.leaf(NaN), 'index must be'],
      [log.covering(5), 'index must be'],
      [log.append([leafOf(1), new Uint8Array(0)]), 'Leaf 1 has 0 bytes'],
      [log.append([new Uint8Array(65_536)]), 'Leaf 0 has 65536 bytes'],
    ]
    for (const [answer, says] of asked) expect(bad(answer).detail.says).toContain(says)
    expect(log.size()).toBe(5)
    log.close()
  })

  test('a log that signed does not go on under a new key, nor under another name', () => {
    using folder = freshFolder()
    made(folder.path, 5, 5)
    renameSync(`${folder.path}/signing-key`, `${folder.path}/kept`)
    expect(bad(openLog(folder.path, { origin: ORIGIN })).detail.says).toContain('put the key back')
    expect(open(folder.path, { key_file: `${folder.path}/kept` }).size()).toBe(5)
    good(openSigningKeys(`${folder.path}/other`, 'example.com/other'))
    const other = { origin: 'example.com/other', key_file: `${folder.path}/other` }
    expect(bad(openLog(folder.path, other)).detail.says).toContain('not "example.com/other"')
  })

  test('a reader beside the writer answers up to the newest checkpoint', () => {
    using folder = freshFolder()
    expect(bad(openLogReader(folder.path)).code).toBe('internal')
    made(folder.path, 100, 150)
    const log = open(folder.path)
    const reader = good(openLogReader(folder.path))
    expect([reader.size(), good(reader.root())]).toEqual([100, root(100)])
    expect(bad(reader.inclusion(0, 150)).code).toBe('field_invalid')
    good(log.append(leavesOf(150, 2000)))
    good(log.checkpoint())
    good(reader.refresh() ?? 0)
    expect([reader.size(), good(reader.root())]).toEqual([2000, root(2000)])
    expect(inclusionFault(good(reader.inclusion(1234)))).toBeUndefined()
    reader.close()
    log.close()
  })
})

describe('repair at open', () => {
  const at = (folder: string, name: string) => `${folder}/${name}`
  const overwrite = (file: string, from: number, bytes: Uint8Array) => {
    const raw = readFileSync(file)
    raw.set(bytes, from)
    writeFileSync(file, raw)
  }
  type Case = [
    what: string,
    damage: (folder: string) => void,
    ledger_size: number | undefined,
    size: number,
    hashed: number,
  ]
  // 600 leaves are signed, 900 are in the files.
  const cases: Case[] = [
    ['nothing happened', () => {}, undefined, 900, 0],
    ['the log is ahead of the ledger', () => {}, 750, 750, 0],
    ['the ledger is ahead of the log', () => {}, 2000, 900, 0],
    ['the ledger is behind the checkpoint', () => {}, 400, 400, 0],
    ['the ledger is empty', () => {}, 0, 0, 0],
    ['nodes end in a leaf', (f) => truncateSync(at(f, 'nodes'), 64 * 700 + 5), undefined, 703, 0],
    ['nodes end before the checkpoint', (f) => truncateSync(at(f, 'nodes'), 64 * 500), undefined, 600, 97],
    ['nodes are gone', (f) => rmSync(at(f, 'nodes')), undefined, 600, 600],
    ['leaves end in a leaf', (f) => truncateSync(at(f, 'leaves.index'), 8 * 800 + 1), undefined, 800, 0],
    [
      'unwritten zeros after the checkpoint',
      (f) => overwrite(at(f, 'nodes'), 64 * 850, new Uint8Array(64 * 50 - 320)),
      undefined,
      853,
      0,
    ],
    [
      'a leaf after the checkpoint is another',
      (f) =>
        overwrite(at(f, 'leaves.data'), readFileSync(at(f, 'leaves.data')).indexOf('"row":650') + 6, Buffer.from('9')),
      undefined,
      650,
      0,
    ],
    [
      'an inner node after the checkpoint is wrong',
      (f) => overwrite(at(f, 'nodes'), 32 * 1596, new Uint8Array(32)),
      undefined,
      900,
      101,
    ],
    [
      'the peaks of the checkpoint are wrong',
      (f) => overwrite(at(f, 'nodes'), 32 * 1022, new Uint8Array(32)),
      undefined,
      600,
      600,
    ],
  ]
  test.each(cases)('%s', (_, damage, ledger_size, size, hashed) => {
    using folder = freshFolder()
    made(folder.path, 600, 900)
    damage(folder.path)
    const log = open(folder.path, ledger_size === undefined ? {} : { ledger_size })
    expect([log.size(), log.repaired.leaves_hashed]).toEqual([size, hashed])
    expect(statSync(at(folder.path, 'leaves.index')).size).toBe(size * 8)
    expect(good(log.root())).toEqual(root(size))
    good(log.append(leavesOf(size, 1000)))
    expect(good(log.root())).toEqual(root(1000))
    for (let index = 0; index < 1000; index += 7) {
      expect(inclusionFault(good(log.inclusion(index)))).toBeUndefined()
      expect(good(log.leaf(index))).toEqual(leafOf(index))
    }
    good(log.checkpoint())
    log.close()
    const again = open(folder.path)
    expect([again.size(), again.repaired.leaves_hashed]).toEqual([1000, 0])
    again.close()
  })

  test('leaves under a signed root that are damaged stop the log', () => {
    using folder = freshFolder()
    made(folder.path, 600, 900)
    rmSync(at(folder.path, 'nodes'))
    overwrite(at(folder.path, 'leaves.data'), 7, Buffer.from('9'))
    const failure = bad(openLog(folder.path, { origin: ORIGIN }))
    expect(failure.detail.says).toContain('do not lead to the root that was signed at size 600')
  })

  test('a damaged node deep under a checkpoint never leaves as a proof', () => {
    using folder = freshFolder()
    made(folder.path, 600, 600)
    overwrite(at(folder.path, 'nodes'), 32 * 2, new Uint8Array(32))
    const log = open(folder.path)
    expect(log.size()).toBe(600)
    expect(bad(log.inclusion(2)).detail.cause).toEqual(
      new RangeError('a node is damaged: the proof leads to another root'),
    )
    expect(inclusionFault(good(log.inclusion(1)))).toBeUndefined()
    log.close()
  })

  test('a log that fell behind its checkpoint signs again only once it holds the same leaves', () => {
    using folder = freshFolder()
    made(folder.path, 600, 600)
    const log = open(folder.path, { ledger_size: 300 })
    expect(bad(log.checkpoint()).detail.says).toContain('300 leaves, and 600 are signed')
    good(log.append([...leavesOf(300, 599), leafOf(12)]))
    expect(bad(log.checkpoint()).detail.says).toContain('not the one that was signed at size 600')
    expect(log.truncate(300)).toBeUndefined()
    good(log.append(leavesOf(300, 700)))
    expect(good(verifyCheckpoint(good(log.checkpoint()), log.verifiers())).checkpoint.root).toEqual(root(700))
    log.close()
  })
})

describe('tiles', () => {
  const paths: [Tile, string][] = [
    [{ kind: 'hashes', level: 0, index: 0, width: 256 }, 'tile/0/000'],
    [{ kind: 'hashes', level: 0, index: 1_234_067, width: 256 }, 'tile/0/x001/x234/067'],
    [{ kind: 'hashes', level: 2, index: 999, width: 1 }, 'tile/2/999.p/1'],
    [{ kind: 'hashes', level: 63, index: 1000, width: 255 }, 'tile/63/x001/000.p/255'],
    [{ kind: 'entries', level: 0, index: 70_000, width: 112 }, 'tile/entries/x070/000.p/112'],
  ]
  test.each(paths)('%o is %s', (tile, path) => {
    expect(tilePath(tile)).toBe(path)
    expect(parseTilePath(path)).toEqual(tile)
  })
  test.each([
    'tile/0/0',
    'tile/00/000',
    'tile/64/000',
    'tile/0/x000/001',
    'tile/0/000.p/0',
    'tile/0/000.p/256',
    'tile/0/000.p/01',
    'tile/0/001/002',
    'tile/-1/000',
    'tile/entries/../x',
    'tile/0/000/',
    '/tile/0/000',
  ])('%s is no tile', (path) => expect(parseTilePath(path)).toBeUndefined())
  test('the example sizes of the layout', () => {
    expect([0, 1, 2, 3].map((level) => tilesAt(70_000, level))).toEqual([
      { full: 273, partial: 112 },
      { full: 1, partial: 17 },
      { full: 0, partial: 1 },
      { full: 0, partial: 0 },
    ])
    expect([tilesAt(256, 0), tilesAt(256, 1)]).toEqual([
      { full: 1, partial: 0 },
      { full: 0, partial: 1 },
    ])
  })
  test('hold the tree hashes and the leaves, and only those of the log', () => {
    using folder = freshFolder()
    made(folder.path, 3000, 3000)
    const log = open(folder.path)
    const tile = (path: string) => log.tile(parseTilePath(path)!)
    expect(good(tile('tile/0/002'))).toEqual(Buffer.concat(HASHES.slice(512, 768)) as Uint8Array)
    expect(good(tile('tile/0/011.p/184'))).toEqual(Buffer.concat(HASHES.slice(2816, 3000)) as Uint8Array)
    const level_1 = Array.from({ length: 11 }, (_, at) => mth(HASHES, at * 256, at * 256 + 256))
    expect(good(tile('tile/1/000.p/11'))).toEqual(Buffer.concat(level_1) as Uint8Array)
    for (const path of [
      'tile/0/011',
      'tile/0/011.p/185',
      'tile/1/000',
      'tile/1/000.p/12',
      'tile/2/000.p/1',
      'tile/0/x999/999',
      'tile/63/000',
    ]) {
      expect(bad(tile(path)).code).toBe('not_found')
    }
    const bundle = good(tile('tile/entries/011.p/184'))
    const view = new DataView(bundle.buffer)
    let entry = 2816
    for (let start = 0; start < bundle.byteLength; entry++) {
      const bytes = view.getUint16(start)
      expect(bundle.slice(start + 2, start + 2 + bytes).toHex()).toBe(leafOf(entry).toHex())
      start += 2 + bytes
    }
    expect(entry).toBe(3000)
    log.close()
  })
})
