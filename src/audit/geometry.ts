/**
 * Where the nodes of a Merkle Mountain Range stand. Level 0 holds the leaves; node `index` of level `level` is the root
 * of the perfect tree over the leaves [index · 2^level, (index + 1) · 2^level). In post-order (a node right after its
 * right child) the nodes of the first n leaves are a prefix of the nodes of any more leaves: appending only appends.
 *
 * Sizes are numbers up to 2^53 and are never given to 32-bit operators.
 */

/** The most leaves of a log on disk: 64 bytes of nodes a leaf stay below 2^53 bytes. */
export const SIZE_MAX = 2 ** 47

/** A complete node. */
export type Place = { readonly level: number; readonly index: number }

const TWO_32 = 2 ** 32

const ones32 = (word: number): number => {
  let bits = word - ((word >>> 1) & 0x55555555)
  bits = (bits & 0x33333333) + ((bits >>> 2) & 0x33333333)
  return Math.imul((bits + (bits >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24
}

const ones = (value: number): number => {
  const low = value % TWO_32
  return ones32(low | 0) + ones32(((value - low) / TWO_32) | 0)
}

/** How many complete nodes a log of `size` leaves has. */
export const nodesOf = (size: number): number => 2 * size - ones(size)

/** How many leaves the first `nodes` nodes in post-order complete: the largest size whose nodes all are among them. */
export const leavesOf = (nodes: number): number => {
  let rest = nodes
  let leaves = 0
  for (let width = largestPower(Math.max(1, nodes)); width >= 1; width /= 2) {
    if (2 * width - 1 > rest) continue
    rest -= 2 * width - 1
    leaves += width
  }
  return leaves
}

/** The position of a node in post-order, from 0. */
export const positionOf = (level: number, index: number): number => {
  const last_leaf = (index + 1) * 2 ** level - 1
  return nodesOf(last_leaf) + level
}

/** The perfect trees that make up `size` leaves, from left to right, so from the highest to the lowest. */
export const peaksOf = (size: number): Place[] => {
  const peaks: Place[] = []
  let start = 0
  let level = levelOf(Math.max(1, size))
  for (let width = 2 ** level; width >= 1; width /= 2, level--) {
    if (size - start < width) continue
    peaks.push({ level, index: start / width })
    start += width
  }
  return peaks
}

/** The number of times 2 divides `size`. Requires size ≥ 1. */
export const trailingZeros = (size: number): number => {
  let level = 0
  for (let rest = size; rest % 2 === 0; rest /= 2) level++
  return level
}

/** Whether a value is a size that this log can have: a whole number in [0, 2^53). */
export const isSize = (value: number): boolean => Number.isSafeInteger(value) && value >= 0

const largestPower = (value: number): number => 2 ** levelOf(value)

// Math.log2 rounds up just below large powers of two, so it only gives the first guess.
const levelOf = (value: number): number => {
  const guess = Math.floor(Math.log2(value))
  return 2 ** guess > value ? guess - 1 : guess
}
