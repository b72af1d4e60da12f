import { HASH_BYTES, type Join, joinHashes, sameBytes } from './hash.ts'

/**
 * Checks of proofs, by the algorithms of RFC 9162 §2.1.3.2 and §2.1.4.2. Nothing of the writer is used. Sizes are whole
 * numbers below 2^53. Each function returns undefined where the proof holds, else one sentence that says why it does
 * not. `join` lets another SHA-256 stand in, in a browser for one.
 */

/** Leaf `index` of a log of `size` leaves with this root has this leaf hash. */
export type InclusionClaim = {
  readonly index: number
  readonly size: number
  readonly leaf_hash: Uint8Array
  readonly root: Uint8Array
  readonly proof: readonly Uint8Array[]
}

/** The log of `to` leaves begins with the log of `from` leaves. */
export type ConsistencyClaim = {
  readonly from: number
  readonly to: number
  readonly from_root: Uint8Array
  readonly to_root: Uint8Array
  readonly proof: readonly Uint8Array[]
}

/** Why an inclusion proof does not hold, or undefined (RFC 9162 §2.1.3.2). */
export const inclusionFault = (claim: InclusionClaim, join: Join = joinHashes): string | undefined => {
  const { index, size, leaf_hash, root, proof } = claim
  if (!isWhole(index) || !isWhole(size)) return 'index and size must be whole numbers from 0 to below 2^53'
  if (index >= size) return `index ${index} is not below size ${size}`
  const shape = hashFault('leaf_hash', leaf_hash) ?? hashFault('root', root) ?? proofFault(proof)
  if (shape) return shape
  let at = index
  let last = size - 1
  let hash = leaf_hash
  for (const sibling of proof) {
    if (last === 0) return 'the proof has more nodes than a log of this size needs'
    if (at % 2 === 1 || at === last) {
      hash = join(sibling, hash)
      while (at % 2 === 0 && at !== 0) [at, last] = [half(at), half(last)]
    } else hash = join(hash, sibling)
    ;[at, last] = [half(at), half(last)]
  }
  if (last !== 0) return 'the proof has fewer nodes than a log of this size needs'
  return sameBytes(hash, root) ? undefined : 'the proof leads to another root'
}

/**
 * Why a consistency proof does not hold, or undefined (RFC 9162 §2.1.4.2). `from` must be at least 1: any log begins
 * with the empty one, so a proof of it says nothing. Equal sizes need equal roots and an empty proof.
 */
export const consistencyFault = (claim: ConsistencyClaim, join: Join = joinHashes): string | undefined => {
  const { from, to, from_root, to_root, proof } = claim
  if (!isWhole(from) || !isWhole(to)) return 'from and to must be whole numbers from 0 to below 2^53'
  if (from < 1) return 'from must be at least 1'
  if (from > to) return `from ${from} is greater than to ${to}`
  if (from === to) {
    if (proof.length > 0) return 'the proof must be empty where the sizes are equal'
    return sameBytes(from_root, to_root) ? undefined : 'the sizes are equal and the roots are not'
  }
  const shape = hashFault('from_root', from_root) ?? hashFault('to_root', to_root) ?? proofFault(proof)
  if (shape) return shape
  return foldConsistency(claim, join)
}

const foldConsistency = ({ from, to, from_root, to_root, proof }: ConsistencyClaim, join: Join): string | undefined => {
  const [first, ...rest] = isPowerOfTwo(from) ? [from_root, ...proof] : proof
  if (!first || proof.length === 0) return 'the proof is empty and the sizes differ'
  let at = from - 1
  let last = to - 1
  while (at % 2 === 1) [at, last] = [half(at), half(last)]
  let old_root = first
  let new_root = first
  for (const node of rest) {
    if (last === 0) return 'the proof has more nodes than logs of these sizes need'
    if (at % 2 === 1 || at === last) {
      old_root = join(node, old_root)
      new_root = join(node, new_root)
      while (at % 2 === 0 && at !== 0) [at, last] = [half(at), half(last)]
    } else new_root = join(new_root, node)
    ;[at, last] = [half(at), half(last)]
  }
  if (last !== 0) return 'the proof has fewer nodes than logs of these sizes need'
  if (!sameBytes(old_root, from_root)) return 'the proof leads to another old root'
  return sameBytes(new_root, to_root) ? undefined : 'the proof leads to another new root'
}

// Two paths of a tree of 2^53 leaves have no more nodes; the bound stops a proof that only wastes time.
const PROOF_NODES_MAX = 108

const proofFault = (proof: readonly Uint8Array[]): string | undefined => {
  if (proof.length > PROOF_NODES_MAX)
    return `the proof has ${proof.length} nodes; at most ${PROOF_NODES_MAX} are possible`
  const odd = proof.findIndex((node) => node.byteLength !== HASH_BYTES)
  return odd < 0 ? undefined : hashFault(`proof[${odd}]`, proof[odd]!)
}

const hashFault = (name: string, hash: Uint8Array): string | undefined =>
  hash.byteLength === HASH_BYTES ? undefined : `${name} has ${hash.byteLength} bytes instead of ${HASH_BYTES}`

const isWhole = (value: number): boolean => Number.isSafeInteger(value) && value >= 0
const half = (value: number): number => Math.floor(value / 2)

const isPowerOfTwo = (value: number): boolean => {
  let rest = value
  while (rest % 2 === 0) rest /= 2
  return rest === 1
}
