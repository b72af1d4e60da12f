import { hashLeaf, joinHashes, sha256 } from '../../src/audit/hash.ts'
import { newRange, appendLeaf, HASH_WORDS, NODES_A_LEAF_MAX } from '../../src/audit/tree.ts'
import { nodesOf, positionOf } from '../../src/audit/geometry.ts'
import type { NodeSource } from '../../src/audit/proof.ts'

/** The recursions of RFC 9162 §2.1 word for word, over leaf hashes: slow, and shared with nothing. */
const split = (n: number): number => {
  let k = 1
  while (k * 2 < n) k *= 2
  return k
}

/** MTH of RFC 9162 §2.1.1. Roots of equal slices are remembered by `memo` so that thousands of sizes take seconds. */
export const mth = (d: readonly Uint8Array[], from = 0, to = d.length, memo?: Map<string, Uint8Array>): Uint8Array => {
  const n = to - from
  if (n === 0) return sha256(new Uint8Array(0))
  if (n === 1) return d[from]!
  const name = `${from}:${to}`
  const known = memo?.get(name)
  if (known) return known
  const k = split(n)
  const root = joinHashes(mth(d, from, from + k, memo), mth(d, from + k, to, memo))
  memo?.set(name, root)
  return root
}

/** PATH of RFC 9162 §2.1.3.1. */
export const path = (
  m: number,
  d: readonly Uint8Array[],
  from: number,
  to: number,
  memo: Map<string, Uint8Array>,
): Uint8Array[] => {
  const n = to - from
  if (n === 1) return []
  const k = split(n)
  return m < k
    ? [...path(m, d, from, from + k, memo), mth(d, from + k, to, memo)]
    : [...path(m - k, d, from + k, to, memo), mth(d, from, from + k, memo)]
}

/** SUBPROOF of RFC 9162 §2.1.4.1; PROOF is SUBPROOF with `whole` true. */
export const subproof = (
  m: number,
  d: readonly Uint8Array[],
  from: number,
  to: number,
  whole: boolean,
  memo: Map<string, Uint8Array>,
): Uint8Array[] => {
  const n = to - from
  if (m === n) return whole ? [] : [mth(d, from, to, memo)]
  const k = split(n)
  return m <= k
    ? [...subproof(m, d, from, from + k, whole, memo), mth(d, from + k, to, memo)]
    : [...subproof(m - k, d, from + k, to, false, memo), mth(d, from, from + k, memo)]
}

/** Leaf i of the tests: its number in text, so that lengths differ. */
export const leafOf = (index: number): Uint8Array => new TextEncoder().encode(`{"row":${index}}`)

/** The leaves `[from, to)` of the tests. */
export const leavesOf = (from: number, to: number): Uint8Array[] =>
  Array.from({ length: to - from }, (_, at) => leafOf(from + at))

/** The hashes of the first leaves of the tests. */
export const leafHashesOf = (size: number): Uint8Array[] => leavesOf(0, size).map(hashLeaf)

/** All nodes of a log in memory, made by the shipped appending code. */
export const memoryNodes = (leaves: readonly Uint8Array[]): NodeSource & { bytes: Uint8Array } => {
  const words = new Uint32Array((nodesOf(leaves.length) + NODES_A_LEAF_MAX) * HASH_WORDS)
  const range = newRange()
  let at = 0
  for (const leaf of leaves) at = appendLeaf(range, leaf, words, at)
  const bytes = new Uint8Array(words.buffer, 0, at * 4)
  return {
    bytes,
    read: (level, index, into, to) => {
      if ((index + 1) * 2 ** level > leaves.length) throw new RangeError(`node ${level}/${index} does not exist`)
      const start = positionOf(level, index) * 32
      into.set(bytes.subarray(start, start + 32), to)
    },
  }
}

/**
 * A log of any size whose leaves are all `common` but for a few: its nodes are computed when asked for, so sizes beyond
 * any disk can be tested.
 */
export const sparseNodes = (common: Uint8Array, others: ReadonlyMap<number, Uint8Array>): NodeSource => {
  const plain = [hashLeaf(common)]
  const marked = [new Map([...others].map(([index, leaf]) => [index, hashLeaf(leaf)]))]
  for (let level = 0; level < 53; level++) {
    plain.push(joinHashes(plain[level]!, plain[level]!))
    const above = new Map<number, Uint8Array>()
    for (const index of marked[level]!.keys()) {
      const parent = Math.floor(index / 2)
      above.set(parent, joinHashes(hashAt(level, parent * 2), hashAt(level, parent * 2 + 1)))
    }
    marked.push(above)
  }
  function hashAt(level: number, index: number): Uint8Array {
    return marked[level]!.get(index) ?? plain[level]!
  }
  return { read: (level, index, into, at) => into.set(hashAt(level, index), at) }
}
