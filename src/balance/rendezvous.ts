/** A well-mixed 32-bit hash of two (MurmurHash3's finaliser). */
export const mix = (one: number, other: number): number => {
  let hash = Math.imul(one ^ (one >>> 16), 0x85ebca6b) ^ Math.imul(other, 0x9e3779b1)
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b)
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35)
  return (hash ^ (hash >>> 16)) >>> 0
}

/** The 32-bit hash of a text or bytes, never 0. */
export const hashOf = (content: string | Uint8Array, seed = 0): number => Bun.hash.xxHash32(content, seed) || 1

/**
 * The draw of a target for a key: the target with the largest has the key (rendezvous hashing, Thaler and Ravishankar
 * 1998, with weights by Schindelhauer and Schomaker 2005). When a target leaves, only its own keys move.
 */
export const draw = (key: number, id: number, weight: number): number =>
  -weight / Math.log((mix(key, id) + 0.5) / 4_294_967_296)
