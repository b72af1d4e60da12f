import { emptyRoot, HASH_BYTES, LEAF_BYTES_MAX } from './hash.ts'

/**
 * Appending to a Merkle Mountain Range. Only the peaks are held; every node goes out, in post-order, as it is made. The
 * peaks bagged from right to left with the node hash are the tree head of RFC 9162 §2.1.1.
 *
 * The hashing buffers belong to the module: nothing here waits, so nothing can run in between. Hashes move as 32-bit
 * words, and a node is hashed in place, its right half being the hash that is carried upwards.
 */

/** 32-bit words of a hash. */
export const HASH_WORDS = HASH_BYTES / 4

/** The most nodes that one leaf can complete: itself and a parent on each level. */
export const NODES_A_LEAF_MAX = 54

/** The right edge of a log: its size, and the peak of each level that has one (words, `HASH_WORDS` a level). */
export type Range = { size: number; readonly peaks: Uint32Array }

/** A range without leaves. */
export const newRange = (): Range => ({ size: 0, peaks: new Uint32Array(NODES_A_LEAF_MAX * HASH_WORDS) })

// Bytes: 3 unused, the prefix 0x01, the left hash at 4 and the right hash at 36, so that both are aligned to words.
const pair = new ArrayBuffer(4 + 2 * HASH_BYTES)
const pair_words = new Uint32Array(pair)
const pair_input = new Uint8Array(pair, 3, 1 + 2 * HASH_BYTES)
const carried = new Uint8Array(pair, 4 + HASH_BYTES, HASH_BYTES)
const LEFT = 1
const CARRIED = LEFT + HASH_WORDS
pair_input[0] = 1

// A view for each short length is kept: making one costs as much as hashing a block.
const leaf_input = new Uint8Array(1 + LEAF_BYTES_MAX)
const VIEWS_MAX = 4096
const views: (Uint8Array | undefined)[] = Array.from({ length: VIEWS_MAX })

const leafView = (leaf_bytes: number): Uint8Array => {
  const kept = views[leaf_bytes]
  if (kept) return kept
  const view = leaf_input.subarray(0, leaf_bytes + 1)
  if (leaf_bytes < VIEWS_MAX) views[leaf_bytes] = view
  return view
}

/**
 * Appends a leaf and writes the nodes it completes to `out` from word `at`, lowest first; returns the word after them.
 * Requires at most `LEAF_BYTES_MAX` bytes, and room for `NODES_A_LEAF_MAX` nodes.
 */
export const appendLeaf = (range: Range, leaf: Uint8Array, out: Uint32Array, at: number): number => {
  leaf_input.set(leaf, 1)
  Bun.SHA256.hash(leafView(leaf.byteLength), carried)
  return climb(range, out, at)
}

/** Like {@link appendLeaf}, for a leaf of which only the hash is at hand. */
export const appendLeafHash = (range: Range, leaf_hash: Uint8Array, out: Uint32Array, at: number): number => {
  carried.set(leaf_hash)
  return climb(range, out, at)
}

const climb = (range: Range, out: Uint32Array, at: number): number => {
  const peaks = range.peaks
  let level = 0
  let to = at
  move(pair_words, CARRIED, out, to)
  to += HASH_WORDS
  for (let rest = range.size; rest % 2 === 1; rest = (rest - 1) / 2) {
    move(peaks, level * HASH_WORDS, pair_words, LEFT)
    Bun.SHA256.hash(pair_input, carried)
    move(pair_words, CARRIED, out, to)
    to += HASH_WORDS
    level++
  }
  move(pair_words, CARRIED, peaks, level * HASH_WORDS)
  range.size++
  return to
}

const move = (from: Uint32Array, at: number, into: Uint32Array, to: number): void => {
  for (let word = 0; word < HASH_WORDS; word++) into[to + word] = from[at + word]!
}

/** The root of a range: its peaks bagged from right to left; without leaves the hash of nothing. */
export const rangeRoot = (range: Range): Uint8Array => {
  if (range.size === 0) return emptyRoot()
  let level = 0
  let bagged = false
  for (let rest = range.size; rest > 0; level++) {
    const odd = rest % 2
    rest = (rest - odd) / 2
    if (odd === 0) continue
    if (bagged) {
      move(range.peaks, level * HASH_WORDS, pair_words, LEFT)
      Bun.SHA256.hash(pair_input, carried)
    } else move(range.peaks, level * HASH_WORDS, pair_words, CARRIED)
    bagged = true
  }
  return carried.slice()
}
