import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import { emptyRoot, hashLeaf, joinHashes } from '../../src/audit/hash.ts'
import { leavesOf as leavesOfNodes, nodesOf, peaksOf, positionOf } from '../../src/audit/geometry.ts'
import { consistencyPath, inclusionPath, rootAt } from '../../src/audit/proof.ts'
import { appendLeaf, appendLeafHash, HASH_WORDS, newRange, NODES_A_LEAF_MAX, rangeRoot } from '../../src/audit/tree.ts'
import { type ConsistencyClaim, consistencyFault, type InclusionClaim, inclusionFault } from '../../src/audit/verify.ts'
import { leafHashesOf, leafOf, leavesOf, memoryNodes, mth, path, sparseNodes, subproof } from './reference.ts'

const LEAVES = leavesOf(0, 2000)
const HASHES = leafHashesOf(2000)
const NODES = memoryNodes(LEAVES)
const MEMO = new Map<string, Uint8Array>()
const FULL = process.env['BENCH'] === '1'
// Many proofs on a busy machine; the long run takes minutes.
setDefaultTimeout(FULL ? 600_000 : 60_000)

const inclusion = (index: number, size: number): InclusionClaim => ({
  index,
  size,
  leaf_hash: HASHES[index]!,
  root: mth(HASHES, 0, size, MEMO),
  proof: inclusionPath(NODES, index, size),
})
const consistency = (from: number, to: number): ConsistencyClaim => ({
  from,
  to,
  from_root: mth(HASHES, 0, from, MEMO),
  to_root: mth(HASHES, 0, to, MEMO),
  proof: consistencyPath(NODES, from, to),
})

test('positions in post-order count every complete node once, and sizes follow from node counts', () => {
  const seen = new Set<number>()
  for (let size = 0; size <= 600; size++) {
    expect(leavesOfNodes(nodesOf(size))).toBe(size)
    for (let nodes = nodesOf(size); nodes < nodesOf(size + 1); nodes++) expect(leavesOfNodes(nodes)).toBe(size)
    for (let level = 0; size > 0 && size % 2 ** level === 0; level++) {
      const position = positionOf(level, size / 2 ** level - 1)
      expect(position).toBeLessThan(nodesOf(size))
      seen.add(position)
    }
    expect(seen.size).toBe(nodesOf(size))
  }
})

test('the root at every size to 2,000 is the RFC recursion, appended or read back', () => {
  const range = newRange()
  const out = new Uint32Array(NODES_A_LEAF_MAX * HASH_WORDS)
  for (let size = 0; size <= 2000; size++) {
    const want = mth(HASHES, 0, size, MEMO).toHex()
    expect(rangeRoot(range).toHex()).toBe(want)
    expect(rootAt(NODES, size).toHex()).toBe(want)
    if (size === 2000) break
    if (size % 2 === 0) appendLeaf(range, LEAVES[size]!, out, 0)
    else appendLeafHash(range, HASHES[size]!, out, 0)
  }
  expect(rangeRoot(newRange())).toEqual(emptyRoot())
})

test('leaves of every length near the edges hash as the plain definition says', () => {
  for (const bytes of [0, 1, 54, 55, 56, 63, 64, 65, 4094, 4095, 4096, 4097, 65_534, 65_535]) {
    const leaf = new Uint8Array(bytes).fill(bytes)
    const range = newRange()
    appendLeaf(range, leaf, new Uint32Array(NODES_A_LEAF_MAX * HASH_WORDS), 0)
    expect(rangeRoot(range)).toEqual(hashLeaf(leaf))
  }
})

test('every inclusion proof for n ≤ 1,024 verifies', () => {
  let proofs = 0
  for (let size = 1; size <= 1024; size++) {
    const root = mth(HASHES, 0, size, MEMO)
    for (let index = 0; index < size; index++) {
      const proof = inclusionPath(NODES, index, size)
      const fault = inclusionFault({ index, size, leaf_hash: HASHES[index]!, root, proof })
      if (fault) throw new Error(`inclusion of ${index} in ${size}: ${fault}`)
      proofs++
    }
  }
  expect(proofs).toBe((1024 * 1025) / 2)
})

test('every consistency proof for 0 < m ≤ n ≤ 256 verifies', () => {
  let proofs = 0
  for (let to = 1; to <= 256; to++) {
    for (let from = 1; from <= to; from++) {
      const fault = consistencyFault(consistency(from, to))
      if (fault) throw new Error(`consistency of ${from} in ${to}: ${fault}`)
      proofs++
    }
  }
  expect(proofs).toBe((256 * 257) / 2)
})

test('proofs are node for node those of the RFC recursions', () => {
  for (let size = 1; size <= 2000; size += size < 130 ? 1 : 97) {
    for (let index = 0; index < size; index += size < 130 ? 1 : 41) {
      expect(inclusionPath(NODES, index, size)).toEqual(path(index, HASHES, 0, size, MEMO))
      expect(consistencyPath(NODES, index + 1, size)).toEqual(subproof(index + 1, HASHES, 0, size, true, MEMO))
    }
  }
})

test('requests outside the log are bugs and throw', () => {
  expect(() => inclusionPath(NODES, 5, 5)).toThrow('index 5 is not in [0, 5)')
  expect(() => inclusionPath(NODES, -1, 5)).toThrow()
  expect(() => inclusionPath(NODES, NaN, 5)).toThrow()
  expect(() => consistencyPath(NODES, 0, 5)).toThrow('from 0 is not in [1, 5]')
  expect(() => consistencyPath(NODES, 6, 5)).toThrow()
})

const flip = (hash: Uint8Array, bit: number): Uint8Array => {
  const changed = hash.slice()
  changed[bit >> 3]! ^= 1 << (bit & 7)
  return changed
}
const BITS = Array.from({ length: 256 }, (_, bit) => bit)
// Everything for small logs; beyond, every node with a sample of its bits, unless the long run is asked for.
const bitsFor = (size: number, salt: number): number[] =>
  FULL || size <= 20 ? BITS : BITS.filter((bit) => (bit * 7 + salt) % 64 === 0)

describe('a changed proof is refused', () => {
  test('any one bit of any node, root or leaf hash of an inclusion proof', () => {
    for (let size = 1; size <= 128; size += size < 20 || FULL ? 1 : 9) {
      for (let index = 0; index < size; index++) {
        const good = inclusion(index, size)
        for (const bit of bitsFor(size, index)) {
          const bad: InclusionClaim[] = [
            { ...good, leaf_hash: flip(good.leaf_hash, bit) },
            { ...good, root: flip(good.root, bit) },
            ...good.proof.map((_, at) => ({ ...good, proof: good.proof.with(at, flip(good.proof[at]!, bit)) })),
          ]
          for (const claim of bad)
            if (!inclusionFault(claim)) throw new Error(`accepted: ${index} in ${size}, bit ${bit}`)
        }
      }
    }
  })

  test('any one bit of any node or root of a consistency proof', () => {
    for (let to = 1; to <= 64; to += to < 17 || FULL ? 1 : 7) {
      for (let from = 1; from <= to; from++) {
        const good = consistency(from, to)
        for (const bit of bitsFor(to, from)) {
          const bad: ConsistencyClaim[] = [
            { ...good, from_root: flip(good.from_root, bit) },
            { ...good, to_root: flip(good.to_root, bit) },
            ...good.proof.map((_, at) => ({ ...good, proof: good.proof.with(at, flip(good.proof[at]!, bit)) })),
          ]
          for (const claim of bad)
            if (!consistencyFault(claim)) throw new Error(`accepted: ${from} in ${to}, bit ${bit}`)
        }
      }
    }
  })

  const reshaped = (proof: readonly Uint8Array[]): Uint8Array[][] => [
    ...proof.map((_, at) => proof.toSpliced(at, 1)),
    ...[...proof, null].flatMap((_, at) => [
      proof.toSpliced(at, 0, HASHES[0]!),
      proof.toSpliced(at, 0, proof[at] ?? HASHES[1]!),
    ]),
    ...proof.slice(1).map((_, at) => proof.with(at, proof[at + 1]!).with(at + 1, proof[at]!)),
    ...proof.map((node, at) => proof.with(at, node.slice(1))),
    ...proof.map((node, at) => proof.with(at, new Uint8Array([...node, 0]))),
    ...(proof.length > 1 ? [proof.toReversed()] : []),
  ]

  test('inclusion: missing, extra, swapped, short and long nodes; other index or size', () => {
    for (let size = 1; size <= 70; size++) {
      for (let index = 0; index < size; index++) {
        const good = inclusion(index, size)
        const bad = reshaped(good.proof).map((proof) => ({ ...good, proof }))
        for (let other = 0; other < size; other++)
          if (other !== index) bad.push({ ...good, index: other, proof: [...good.proof] })
        for (const claim of bad) if (!inclusionFault(claim)) throw new Error(`accepted: ${index} in ${size}`)
      }
    }
  })

  test('consistency: missing, extra, swapped, short and long nodes; swapped roots and sizes', () => {
    for (let to = 2; to <= 40; to++) {
      for (let from = 1; from < to; from++) {
        const good = consistency(from, to)
        const bad: ConsistencyClaim[] = reshaped(good.proof).map((proof) => ({ ...good, proof }))
        bad.push({ ...good, from_root: good.to_root, to_root: good.from_root }, { ...good, from: to, to: from })
        bad.push({ ...good, to: from }, { ...good, from: to }, { ...good, from: 0 }, { ...good, proof: [] })
        for (const claim of bad) if (!consistencyFault(claim)) throw new Error(`accepted: ${from} in ${to}`)
      }
    }
  })

  test('another size than the proof was made for, where the path has another shape', () => {
    for (let size = 1; size <= 64; size++) {
      for (let index = 0; index < size; index++) {
        for (const other of [index, size * 2, size * 4, 0]) {
          if (other === size) continue
          expect(inclusionFault({ ...inclusion(index, size), size: other })).toBeDefined()
        }
      }
    }
  })

  const odd: [string, Partial<InclusionClaim>][] = [
    ['negative index', { index: -1 }],
    ['fractional index', { index: 0.5 }],
    ['index not a number', { index: NaN }],
    ['size beyond 2^53', { size: 2 ** 53 }],
    ['infinite size', { size: Infinity }],
    ['index equal to size', { index: 7 }],
    ['empty leaf hash', { leaf_hash: new Uint8Array(0) }],
    ['long root', { root: new Uint8Array(33) }],
    ['endless proof', { proof: Array.from({ length: 5000 }, () => new Uint8Array(32)) }],
  ]
  test.each(odd)('inclusion with %s', (_, change) => {
    expect(inclusionFault({ ...inclusion(3, 7), ...change })).toBeString()
    expect(inclusionFault(inclusion(3, 7))).toBeUndefined()
  })
})

describe('sizes beyond 32 bits', () => {
  const common = leafOf(0)
  const hash = hashLeaf(common)
  const levels = [hash]
  for (let level = 0; level < 53; level++) levels.push(joinHashes(levels[level]!, levels[level]!))
  /** MTH by the recursion of the RFC over BigInt sizes, where every leaf before `index` and after it is the common one. */
  const bigRoot = (size: bigint, index: bigint, odd_leaf: Uint8Array): Uint8Array => {
    if (size === 1n) return index === 0n ? hashLeaf(odd_leaf) : hash
    let k = 1n
    while (k * 2n < size) k *= 2n
    if ((index < 0n || index >= size) && k * 2n === size) return levels[k.toString(2).length]!
    return joinHashes(bigRoot(k, index, odd_leaf), bigRoot(size - k, index - k, odd_leaf))
  }

  for (const size of [
    2 ** 31 - 1,
    2 ** 31,
    2 ** 31 + 5,
    2 ** 32 + 1,
    2 ** 33 - 3,
    2 ** 40 + 3,
    2 ** 46 + 2 ** 31 + 7,
  ]) {
    test(`${size} leaves: root, inclusion and consistency`, () => {
      for (const index of [0, 1, 2 ** 20 + 1, 2 ** 31 - 2, Math.floor(size / 2), size - 4, size - 1]) {
        const source = sparseNodes(common, new Map([[index, leafOf(7)]]))
        const root = rootAt(source, size)
        expect(root.toHex()).toBe(bigRoot(BigInt(size), BigInt(index), leafOf(7)).toHex())
        const claim = { index, size, leaf_hash: hashLeaf(leafOf(7)), root, proof: inclusionPath(source, index, size) }
        expect(inclusionFault(claim)).toBeUndefined()
        expect(inclusionFault({ ...claim, index: index === 0 ? 1 : index - 1 })).toBeDefined()
        expect(inclusionFault({ ...claim, leaf_hash: hash })).toBeDefined()
        for (const from of [1, 2 ** 30, index, size - 1, size - 3].filter((at) => at >= 1)) {
          const proof = consistencyPath(source, from, size)
          const both = { from, to: size, from_root: rootAt(source, from), to_root: root, proof }
          expect(consistencyFault(both)).toBeUndefined()
          expect(consistencyFault({ ...both, to_root: hash })).toBeDefined()
        }
      }
    })
  }

  test('geometry agrees with BigInt', () => {
    const ones = (value: bigint) => BigInt(value.toString(2).replaceAll('0', '').length)
    for (const size of [2 ** 31 + 5, 2 ** 32 - 1, 2 ** 32, 2 ** 40 + 3, 2 ** 47 - 1, 2 ** 47]) {
      const big = BigInt(size)
      expect(BigInt(nodesOf(size))).toBe(2n * big - ones(big))
      expect(leavesOfNodes(nodesOf(size))).toBe(size)
      expect(leavesOfNodes(nodesOf(size) + 1)).toBe(nodesOf(size + 1) === nodesOf(size) + 1 ? size + 1 : size)
      expect(peaksOf(size).reduce((sum, { level }) => sum + 2 ** level, 0)).toBe(size)
      expect(peaksOf(size).length).toBe(Number(ones(big)))
    }
    for (let bits = 1; bits <= 53; bits++) {
      expect(peaksOf(2 ** bits - 1).map(({ level }) => level)).toEqual(
        Array.from({ length: bits }, (_, at) => bits - 1 - at),
      )
    }
  })

  test('appending goes on from 2^31 + 3 leaves', () => {
    const start = 2 ** 31 + 3
    const others = new Map([start, start + 1, start + 2].map((index) => [index, leafOf(index)]))
    const source = sparseNodes(common, others)
    const range = newRange()
    range.size = start
    const peaks = new Uint8Array(range.peaks.buffer)
    for (const { level, index } of peaksOf(start)) source.read(level, index, peaks, level * 32)
    for (const leaf of others.values()) appendLeaf(range, leaf, new Uint32Array(NODES_A_LEAF_MAX * HASH_WORDS), 0)
    expect(range.size).toBe(start + 3)
    expect(rangeRoot(range)).toEqual(rootAt(source, start + 3))
  })
})
