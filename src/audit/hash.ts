/**
 * The two hashes of a Merkle log (RFC 9162 §2.1.1) over SHA-256: a leaf is hashed behind the byte 0x00, a pair of nodes
 * behind 0x01, so no leaf can pass for a node. This file is all that writers and verifiers have in common.
 */

/** Bytes of a hash. */
export const HASH_BYTES = 32

/** The most bytes a leaf may have: an entry bundle counts them with 16 bits (C2SP tlog-tiles). */
export const LEAF_BYTES_MAX = 65_535

/** Joins two node hashes to their parent's. Requires 32 bytes each; returns a fresh array. */
export type Join = (left: Uint8Array, right: Uint8Array) => Uint8Array

/** SHA-256 of any bytes, a fresh array. */
export const sha256 = (bytes: Uint8Array): Uint8Array => {
  const hash = new Uint8Array(HASH_BYTES)
  Bun.SHA256.hash(bytes, hash)
  return hash
}

/** The hash of a leaf: SHA-256(0x00 ‖ leaf). */
export const hashLeaf = (leaf: Uint8Array): Uint8Array => {
  const input = new Uint8Array(leaf.byteLength + 1)
  input.set(leaf, 1)
  return sha256(input)
}

/** The hash of an inner node: SHA-256(0x01 ‖ left ‖ right). */
export const joinHashes: Join = (left, right) => {
  pair[0] = 1
  pair.set(left, 1)
  pair.set(right, 1 + HASH_BYTES)
  return sha256(pair)
}

/** Like {@link joinHashes}, but always into the same array: for folding a path, where only the last hash lives. */
export const foldHashes: Join = (left, right) => {
  pair[0] = 1
  pair.set(left, 1)
  pair.set(right, 1 + HASH_BYTES)
  Bun.SHA256.hash(pair, folded)
  return folded
}
const folded = new Uint8Array(HASH_BYTES)

// Reused: nothing here waits, and a fresh array would cost more than the hash.
const pair = new Uint8Array(1 + 2 * HASH_BYTES)

/** The root of the log without leaves: SHA-256 of nothing (RFC 9162 §2.1.1). */
export const emptyRoot = (): Uint8Array => sha256(new Uint8Array(0))

/** Whether two hashes have the same bytes and the same length. Not for secrets: the time tells where they differ. */
export const sameBytes = (a: Uint8Array, b: Uint8Array): boolean => {
  if (a.byteLength !== b.byteLength) return false
  for (let at = 0; at < a.byteLength; at++) if (a[at] !== b[at]) return false
  return true
}
