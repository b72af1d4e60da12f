import { Failure } from '../base/failure.ts'
import type { BlobStore } from './blob-store.ts'
import type { Checkpoint } from './checkpoint.ts'
import { peaksOf } from './geometry.ts'
import { HASH_BYTES, hashLeaf, sameBytes } from './hash.ts'
import type { LogFiles } from './log-files.ts'
import type { NodeStore } from './node-store.ts'
import { appendLeaf, HASH_WORDS, newRange, NODES_A_LEAF_MAX } from './tree.ts'

/** What was done to make the stores agree. */
export type Repair = {
  /** Leaves in the log now. */
  readonly size: number
  /** Leaves that were cut: the ledger does not have them, or their bytes and hashes did not agree. */
  readonly leaves_cut: number
  /** Leaves whose nodes were made anew from their bytes. */
  readonly leaves_hashed: number
}

/**
 * Brings leaves, nodes and the ledger to their common prefix. What a checkpoint covers was durable before it was signed:
 * there only the root is compared, and nodes that are missing or wrong are made anew from the leaves, which must lead to
 * the signed root. After it, a leaf counts only while its bytes have the stored hash, and inner nodes that are wrong are
 * made anew.
 * So the work is bounded by what was appended since the last checkpoint, however long the log is.
 *
 * A failure means that bytes under a signed root are damaged; no leaf is cut then. Throws errors of the disk.
 */
export const repair = ({ leaves, nodes, checkpoints }: LogFiles, ledger_size: number): Repair | Failure => {
  const found = leaves.count
  const bound = Math.min(found, ledger_size)
  const signed = checkpoints.atMost(bound)?.checkpoint
  const trusted = signed?.size ?? 0
  let leaves_hashed = 0
  if (signed && !agrees(nodes, signed)) {
    const rebuilt = rebuild(nodes, leaves, signed)
    if (rebuilt instanceof Failure) return rebuilt
    leaves_hashed += rebuilt
  }
  const size = agreedSize(nodes, leaves, trusted, Math.min(bound, nodes.size))
  // Nodes that are right stay: a crash between cutting them and making them anew would leave leaves that nothing vouches for.
  const sound = soundNodes(nodes, leaves, trusted, size)
  nodes.truncate(sound)
  hashInto(nodes, leaves, size)
  leaves_hashed += size - sound
  leaves.truncate(size)
  return { size, leaves_cut: found - size, leaves_hashed }
}

const agrees = (nodes: NodeStore, { size, root }: Checkpoint): boolean =>
  nodes.size >= size && sameBytes(nodes.root(size), root)

const rebuild = (nodes: NodeStore, leaves: BlobStore, signed: Checkpoint): number | Failure => {
  // A file that is only too short goes on where it ends; one that is wrong begins anew.
  for (const from of nodes.size < signed.size ? [nodes.size, 0] : [0]) {
    nodes.truncate(from)
    hashInto(nodes, leaves, signed.size)
    if (agrees(nodes, signed)) return signed.size - from
  }
  const says = `The leaves of the audit log do not lead to the root that was signed at size ${signed.size}.`
  return new Failure('internal', { says })
}

const agreedSize = (nodes: NodeStore, leaves: BlobStore, from: number, to: number): number => {
  const stored = new Uint8Array(HASH_BYTES)
  for (let index = from; index < to; index++) {
    nodes.read(0, index, stored, 0)
    if (!sameBytes(hashLeaf(leaves.read(index)), stored)) return index
  }
  return to
}

// The first leaf in [from, to), all of which agree, one of whose inner nodes is not what its children hash to.
const soundNodes = (nodes: NodeStore, leaves: BlobStore, from: number, to: number): number => {
  const range = newRange()
  const peaks = new Uint8Array(range.peaks.buffer)
  for (const { level, index } of peaksOf(from)) nodes.read(level, index, peaks, level * HASH_BYTES)
  range.size = from
  const words = new Uint32Array(NODES_A_LEAF_MAX * HASH_WORDS)
  const made = new Uint8Array(words.buffer)
  const stored = new Uint8Array(HASH_BYTES)
  for (let leaf = from; leaf < to; leaf++) {
    const count = appendLeaf(range, leaves.read(leaf), words, 0) / HASH_WORDS
    for (let level = 0; level < count; level++) {
      nodes.read(level, (leaf + 1) / 2 ** level - 1, stored, 0)
      if (!sameBytes(stored, made.subarray(level * HASH_BYTES, (level + 1) * HASH_BYTES))) return leaf
    }
  }
  return to
}

const BATCH = 1024

const hashInto = (nodes: NodeStore, leaves: BlobStore, to: number): void => {
  while (nodes.size < to) {
    const count = Math.min(BATCH, to - nodes.size)
    nodes.append(Array.from({ length: count }, (_, at) => leaves.read(nodes.size + at)))
  }
}
