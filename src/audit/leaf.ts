import { type Canonical, canonicalJson } from './canonical-json.ts'
import { LEAF_BYTES_MAX, sha256 } from './hash.ts'

/** A row of the ledger as it enters the log. Byte columns enter as lowercase hex, bigints as decimal strings. */
export type LeafRow = { readonly [column: string]: Canonical | Uint8Array }

/**
 * The leaf of a ledger row: the UTF-8 bytes of its canonical JSON (RFC 8785). Equal rows give equal bytes whatever the
 * order of their columns. Throws a `TypeError` for a value that JSON cannot say, a `RangeError` for a row of more than
 * `LEAF_BYTES_MAX` bytes.
 */
export const leafBytes = (row: LeafRow): Uint8Array => {
  const columns = Object.entries(row).map(([name, value]) => [
    name,
    value instanceof Uint8Array ? value.toHex() : value,
  ])
  const bytes = new TextEncoder().encode(canonicalJson(Object.fromEntries(columns)))
  if (bytes.byteLength > LEAF_BYTES_MAX) {
    throw new RangeError(`the row has ${bytes.byteLength} bytes as a leaf; at most ${LEAF_BYTES_MAX} are allowed`)
  }
  return bytes
}

/**
 * How a body enters a row: SHA-256(salt ‖ SHA-256 of the body). Who has salt and body can prove what was said; without
 * the salt, which stays outside the log and can be erased, nothing can be learned by guessing bodies. Requires a salt of
 * at least 16 random bytes and a digest of 32.
 */
export const saltedBodyHash = (salt: Uint8Array, body_sha256: Uint8Array): Uint8Array => {
  if (salt.byteLength < 16) throw new RangeError(`a salt needs at least 16 bytes, not ${salt.byteLength}`)
  if (body_sha256.byteLength !== 32) throw new RangeError(`a SHA-256 has 32 bytes, not ${body_sha256.byteLength}`)
  const input = salt.byteLength === SALT_BYTES ? salted : new Uint8Array(salt.byteLength + 32)
  input.set(salt)
  input.set(body_sha256, salt.byteLength)
  return sha256(input)
}

const SALT_BYTES = 16
// Reused: nothing here waits, and a fresh array costs half a hash.
const salted = new Uint8Array(SALT_BYTES + 32)
