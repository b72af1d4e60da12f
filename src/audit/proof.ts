import { peaksOf, trailingZeros, type Place } from './geometry.ts'
import { emptyRoot, foldHashes, HASH_BYTES } from './hash.ts'

/**
 * Roots and proofs of a log (RFC 9162 §2.1.3, §2.1.4) out of its complete nodes. Whatever a proof needs that is not a
 * complete node is the bag of the peaks right of it.
 */

/** Reads complete nodes: 32 bytes of node (level, index) into `into` from `at`. Throws if the node does not exist. */
export type NodeSource = { readonly read: (level: number, index: number, into: Uint8Array, at: number) => void }

/** The root at `size` leaves. Requires that the source has the nodes of that size. */
export const rootAt = (source: NodeSource, size: number): Uint8Array =>
  size === 0 ? emptyRoot() : bag(source, peaksOf(size))

/** The inclusion path of leaf `index` among `size` leaves, lowest first. Requires 0 ≤ index < size. */
export const inclusionPath = (source: NodeSource, index: number, size: number): Uint8Array[] => {
  if (!(index >= 0 && index < size)) throw new RangeError(`inclusion: index ${index} is not in [0, ${size})`)
  return pathOf(source, { level: 0, index }, size)
}

/** The consistency path between the first `from` leaves and the first `to`. Requires 1 ≤ from ≤ to. */
export const consistencyPath = (source: NodeSource, from: number, to: number): Uint8Array[] => {
  if (!(from >= 1 && from <= to)) throw new RangeError(`consistency: from ${from} is not in [1, ${to}]`)
  if (from === to) return []
  // The last peak of the old log is a node of the new one; its path holds everything else that either root needs.
  const level = trailingZeros(from)
  const last: Place = { level, index: from / 2 ** level - 1 }
  const path = pathOf(source, last, to)
  return last.index === 0 ? path : [node(source, last), ...path]
}

const pathOf = (source: NodeSource, place: Place, size: number): Uint8Array[] => {
  const peaks = peaksOf(size)
  const start = place.index * 2 ** place.level
  const own = peaks.findIndex((peak) => start < (peak.index + 1) * 2 ** peak.level)
  const path: Uint8Array[] = []
  let { level, index } = place
  while (level < peaks[own]!.level) {
    const odd = index % 2
    path.push(node(source, { level, index: odd === 0 ? index + 1 : index - 1 }))
    index = (index - odd) / 2
    level++
  }
  if (own + 1 < peaks.length) path.push(bag(source, peaks.slice(own + 1)))
  for (let left = own - 1; left >= 0; left--) path.push(node(source, peaks[left]!))
  return path
}

const bag = (source: NodeSource, peaks: readonly Place[]): Uint8Array => {
  let root = node(source, peaks.at(-1)!)
  const left = new Uint8Array(HASH_BYTES)
  for (let peak = peaks.length - 2; peak >= 0; peak--) {
    source.read(peaks[peak]!.level, peaks[peak]!.index, left, 0)
    root = foldHashes(left, root)
  }
  return root.slice()
}

const node = (source: NodeSource, place: Place): Uint8Array => {
  const hash = new Uint8Array(HASH_BYTES)
  source.read(place.level, place.index, hash, 0)
  return hash
}
