import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import { appendFileSync, readFileSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { BlobStore } from '../../src/audit/blob-store.ts'
import { NodeStore } from '../../src/audit/node-store.ts'
import { nodesOf } from '../../src/audit/geometry.ts'
import { hashLeaf } from '../../src/audit/hash.ts'
import { inclusionPath } from '../../src/audit/proof.ts'
import { inclusionFault } from '../../src/audit/verify.ts'
import { freshFolder } from './folder.ts'
import { leafHashesOf, leafOf, leavesOf, memoryNodes, mth } from './reference.ts'

setDefaultTimeout(60_000)

const SIZE = 10_000
const LEAVES = leavesOf(0, SIZE)
const HASHES = leafHashesOf(SIZE)
const MEMO = new Map<string, Uint8Array>()
const root = (size: number) => mth(HASHES, 0, size, MEMO)

describe('node store', () => {
  test('the file is the post-order of all nodes, however the leaves were batched', () => {
    using folder = freshFolder()
    const file = `${folder.path}/nodes`
    const store = new NodeStore(file)
    for (let at = 0, step = 1; at < SIZE; at += step, step = (step * 3) % 5000 || 1) {
      store.append(LEAVES, at, Math.min(at + step, SIZE))
      expect(statSync(file).size).toBe(nodesOf(store.size) * 32)
    }
    expect(store.size).toBe(SIZE)
    expect(Buffer.compare(readFileSync(file), memoryNodes(LEAVES).bytes)).toBe(0)
    expect(store.root()).toEqual(root(SIZE))
    store.close()
  })

  test('proofs and roots of old sizes read back, before and after reopening, through every cache', () => {
    using folder = freshFolder()
    const store = new NodeStore(`${folder.path}/nodes`)
    store.append(LEAVES)
    const again = new NodeStore(`${folder.path}/nodes`)
    for (const nodes of [store, again, again]) {
      for (let size = 1; size <= SIZE; size += 1 + Math.floor(size / 3)) {
        expect(nodes.root(size)).toEqual(root(size))
        for (let index = 0; index < size; index += 1 + Math.floor(size / 50)) {
          const proof = inclusionPath(nodes, index, size)
          expect(inclusionFault({ index, size, leaf_hash: HASHES[index]!, root: root(size), proof })).toBeUndefined()
        }
      }
    }
    expect(() => again.read(0, SIZE, new Uint8Array(32), 0)).toThrow('not complete')
    expect(() => again.read(14, 0, new Uint8Array(32), 0)).toThrow('not complete')
    store.close()
    again.close()
  })

  test('what was read before a cut is not served after other leaves took its place', () => {
    using folder = freshFolder()
    const store = new NodeStore(`${folder.path}/nodes`)
    store.append(LEAVES, 0, 4096)
    for (let index = 0; index < 4096; index += 5) inclusionPath(store, index, 4096)
    store.truncate(1000)
    expect(store.root()).toEqual(root(1000))
    const others = Array.from({ length: 3096 }, (_, at) => leafOf(-at - 1))
    store.append(others)
    const all = [...HASHES.slice(0, 1000), ...others.map(hashLeaf)]
    const want = mth(all)
    expect(store.root()).toEqual(want)
    for (let index = 0; index < 4096; index += 3) {
      const proof = inclusionPath(store, index, 4096)
      expect(inclusionFault({ index, size: 4096, leaf_hash: all[index]!, root: want, proof })).toBeUndefined()
    }
    expect(() => store.truncate(4097)).toThrow('cannot cut')
    store.close()
  })

  test('reads and appends in turn: a page that was short when it was read is read again', () => {
    using folder = freshFolder()
    const store = new NodeStore(`${folder.path}/nodes`)
    for (let size = 1; size <= 400; size++) {
      store.append(LEAVES, size - 1, size)
      for (const index of [size - 1, size >> 1, 0]) {
        const proof = inclusionPath(store, index, size)
        expect(inclusionFault({ index, size, leaf_hash: HASHES[index]!, root: root(size), proof })).toBeUndefined()
      }
    }
    store.close()
  })

  test('a file cut at any byte opens at the last whole leaf and goes on', () => {
    using folder = freshFolder()
    const file = `${folder.path}/nodes`
    const whole = Buffer.from(memoryNodes(LEAVES.slice(0, 37)).bytes)
    for (let bytes = 0; bytes <= whole.byteLength; bytes += 7) {
      writeFileSync(file, whole.subarray(0, bytes))
      const store = new NodeStore(file)
      expect(nodesOf(store.size) * 32).toBeLessThanOrEqual(bytes)
      expect(nodesOf(store.size + 1) * 32).toBeGreaterThan(bytes)
      store.append(LEAVES, store.size, 40)
      expect(store.root()).toEqual(root(40))
      store.close()
    }
  })

  test('an append that fails leaves the store as it was', () => {
    using folder = freshFolder()
    const store = new NodeStore(`${folder.path}/nodes`)
    store.append(LEAVES, 0, 100)
    const broken = [...LEAVES.slice(100, 9000), new Uint8Array(70_000)]
    expect(() => store.append(broken)).toThrow()
    expect([store.size, store.root().toHex()]).toEqual([100, root(100).toHex()])
    store.append(LEAVES, 100, 200)
    expect(store.root()).toEqual(root(200))
    store.close()
  })

  test('a reader beside the writer sees what was appended after a refresh', () => {
    using folder = freshFolder()
    const writer = new NodeStore(`${folder.path}/nodes`)
    writer.append(LEAVES, 0, 10)
    const reader = new NodeStore(`${folder.path}/nodes`, 'read_only')
    writer.append(LEAVES, 10, 5000)
    expect(reader.size).toBe(10)
    reader.refresh()
    expect(reader.root()).toEqual(root(5000))
    expect(() => reader.append(LEAVES, 0, 1)).toThrow()
    writer.close()
    reader.close()
  })
})

describe('blob store', () => {
  const blob = (at: number) => new Uint8Array(1 + ((at * 37) % 300)).fill(at % 256)
  const open = (folder: string) => new BlobStore(folder, 'leaves', 1000)

  test('strings come back by number, over many batches', () => {
    using folder = freshFolder()
    const store = open(folder.path)
    const blobs = Array.from({ length: 9000 }, (_, at) => blob(at))
    for (let at = 0; at < 9000; at += 4500) store.append(blobs, at, at + 4500)
    store.close()
    const again = open(folder.path)
    expect(again.count).toBe(9000)
    for (let at = 0; at < 9000; at++) expect(again.read(at)).toEqual(blob(at))
    expect(() => again.read(9000)).toThrow('there are 9000 entries')
    expect(() => again.read(-1)).toThrow('entry -1')
    again.truncate(5)
    expect(again.count).toBe(5)
    expect(statSync(`${folder.path}/leaves.index`).size).toBe(40)
    again.append([blob(7)])
    expect(again.read(5)).toEqual(blob(7))
    again.close()
  })

  test('lengths outside the bound are refused as a whole', () => {
    using folder = freshFolder()
    const store = open(folder.path)
    for (const bytes of [0, 1001]) expect(() => store.append([blob(1), new Uint8Array(bytes)])).toThrow('1 to 1000')
    expect([store.count, statSync(`${folder.path}/leaves.data`).size]).toEqual([0, 0])
    store.append([new Uint8Array(1000), new Uint8Array(1)])
    expect(store.count).toBe(2)
    store.close()
  })

  const damages: [string, (folder: string) => void, number][] = [
    ['data cut in the last string', (f) => truncateSync(`${f}/leaves.data`, statSync(`${f}/leaves.data`).size - 1), 19],
    ['index cut in an entry', (f) => truncateSync(`${f}/leaves.index`, 8 * 15 + 3), 15],
    ['data without an entry', (f) => appendFileSync(`${f}/leaves.data`, 'x'), 20],
    ['zero pages in the index', (f) => appendFileSync(`${f}/leaves.index`, new Uint8Array(4096)), 20],
    ['an entry far past the data', (f) => appendFileSync(`${f}/leaves.index`, new Uint8Array(8).fill(255)), 20],
    ['no data', (f) => truncateSync(`${f}/leaves.data`, 0), 0],
    ['no index', (f) => truncateSync(`${f}/leaves.index`, 0), 0],
  ]
  test.each(damages)('%s', (_, damage, count) => {
    using folder = freshFolder()
    const store = open(folder.path)
    store.append(Array.from({ length: 20 }, (_unused, at) => blob(at)))
    store.close()
    damage(folder.path)
    const again = open(folder.path)
    expect(again.count).toBe(count)
    const data_bytes = Array.from({ length: count }, (_unused, at) => blob(at).byteLength).reduce((a, b) => a + b, 0)
    const sizes = ['index', 'data'].map((name) => statSync(`${folder.path}/leaves.${name}`).size)
    expect(sizes).toEqual([count * 8, data_bytes])
    again.append([blob(99)])
    for (let at = 0; at < count; at++) expect(again.read(at)).toEqual(blob(at))
    expect(again.read(count)).toEqual(blob(99))
    again.close()
  })
})
