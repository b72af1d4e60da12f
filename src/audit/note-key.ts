import { createPrivateKey, createPublicKey, type KeyObject, randomBytes, sign, verify } from 'node:crypto'
import { Failure } from '../base/failure.ts'
import { sha256 } from './hash.ts'
import { fromBase64, isKeyName, type Note, type NoteSignature } from './note.ts'

/**
 * Ed25519 keys of signed notes (C2SP signed-note, tlog-cosignature). The key id is the first four bytes of
 * SHA-256(NAME ‖ 0x0A ‖ type ‖ public key); the type is 0x01 for a log, 0x04 for a witness, whose signature carries a time.
 */
export const LOG_KEY = 1
export const WITNESS_KEY = 4

/** A public key by name. `type` is `LOG_KEY` or `WITNESS_KEY`. */
export type VerifierKey = {
  readonly name: string
  readonly key_id: number
  readonly type: number
  readonly public_key: Uint8Array
}

/** A log's private key: 32 bytes of seed and the public part. */
export type SignerKey = { readonly seed: Uint8Array; readonly verifier: VerifierKey }

/** A signature that was verified; `time_s` is set by witnesses (seconds since the epoch). */
export type Verified = { readonly key: VerifierKey; readonly time_s?: number }

/** The verifier key of a name and 32 bytes of public key. */
export const verifierKey = (name: string, type: number, public_key: Uint8Array): VerifierKey => {
  const id = sha256(Buffer.concat([Buffer.from(`${name}\n`), Uint8Array.of(type), public_key]))
  return { name, type, public_key, key_id: new DataView(id.buffer).getUint32(0) }
}

/** The text of a verifier key: `NAME+ID+BASE64(type ‖ public key)`, the id as eight hex digits. */
export const formatVerifierKey = (key: VerifierKey): string =>
  `${key.name}+${hex(key.key_id)}+${typed(key.type, key.public_key)}`

/** Reads the text of a verifier key; its id must be the right one. */
export const parseVerifierKey = (text: string): VerifierKey | Failure => {
  const [name, id, body] = split(text)
  const bytes = body === undefined ? undefined : fromBase64(body)
  if (name === undefined || !isKeyName(name)) return invalid('a verifier key is NAME+ID+BASE64')
  if (!bytes || bytes.byteLength !== 33)
    return invalid(`the verifier key of ${name} is not one byte of type and 32 of key`)
  const key = verifierKey(name, bytes[0]!, bytes.slice(1))
  if (key.type !== LOG_KEY && key.type !== WITNESS_KEY)
    return invalid(`the verifier key of ${name} has an unknown type`)
  return hex(key.key_id) === id
    ? key
    : invalid(`the verifier key of ${name} has id ${id} instead of ${hex(key.key_id)}`)
}

/** A new key for a log, out of the system's randomness. Requires a key name. */
export const newSignerKey = (name: string): SignerKey => signerKey(name, randomBytes(32))

/** The key for a log of a seed of 32 bytes. */
export const signerKey = (name: string, seed: Uint8Array): SignerKey => {
  const spki = createPublicKey(privateKey(seed)).export({ format: 'der', type: 'spki' })
  return { seed, verifier: verifierKey(name, LOG_KEY, new Uint8Array(spki.subarray(-32))) }
}

/** The text of a private key: `PRIVATE+KEY+NAME+ID+BASE64(type ‖ seed)`, the form that note tools read. Secret. */
export const formatSignerKey = ({ seed, verifier }: SignerKey): string =>
  `${PRIVATE}${verifier.name}+${hex(verifier.key_id)}+${typed(LOG_KEY, seed)}`

/** Reads the text of a private key. A failure does not repeat it. */
export const parseSignerKey = (text: string): SignerKey | Failure => {
  const [name, id, body] = split(text.startsWith(PRIVATE) ? text.slice(PRIVATE.length) : '')
  const bytes = body === undefined ? undefined : fromBase64(body)
  if (name === undefined || !isKeyName(name) || bytes?.byteLength !== 33 || bytes[0] !== LOG_KEY) {
    return invalid('a signing key is PRIVATE+KEY+NAME+ID+BASE64 of one byte of type and 32 of seed')
  }
  const key = signerKey(name, bytes.slice(1))
  return hex(key.verifier.key_id) === id ? key : invalid(`the signing key of ${name} has the id of another key`)
}

/** Signs a note's text as a log. */
export const signText = (text: string, key: SignerKey): NoteSignature => ({
  name: key.verifier.name,
  key_id: key.verifier.key_id,
  bytes: new Uint8Array(sign(null, Buffer.from(text), privateKey(key.seed))),
})

/**
 * The signatures of a note that verify under the given keys, in the note's order. A signature of an unknown key is
 * ignored; a bad one of a known key, or none of a known key at all, is a failure.
 */
export const verifyNote = (note: Note, keys: readonly VerifierKey[]): Verified[] | Failure => {
  const verified: Verified[] = []
  for (const signature of note.signatures) {
    const key = keys.find(({ name, key_id }) => name === signature.name && key_id === signature.key_id)
    if (!key || verified.some((earlier) => earlier.key === key)) continue
    const good = verifySignature(note.text, signature, key)
    if (!good) return invalid(`the signature of ${key.name}+${hex(key.key_id)} does not verify`)
    verified.push(good)
  }
  return verified.length > 0 ? verified : invalid('no known key has signed')
}

/** What one signature says under its key, or undefined where it does not verify. */
export const verifySignature = (text: string, { bytes }: NoteSignature, key: VerifierKey): Verified | undefined => {
  if (key.type === LOG_KEY) return check(text, bytes, key) ? { key } : undefined
  if (key.type !== WITNESS_KEY || bytes.byteLength !== 72) return undefined
  const time_s = new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0)
  if (time_s > BigInt(Number.MAX_SAFE_INTEGER)) return undefined
  const good = check(cosignedText(text, Number(time_s)), bytes.subarray(8), key)
  return good ? { key, time_s: Number(time_s) } : undefined
}

/** What a witness signs of a checkpoint's text (C2SP tlog-cosignature, cosignature/v1). */
export const cosignedText = (text: string, time_s: number): string => `cosignature/v1\ntime ${time_s}\n${text}`

const check = (text: string, signature: Uint8Array, key: VerifierKey): boolean =>
  signature.byteLength === 64 && verify(null, Buffer.from(text), publicKey(key.public_key), signature)

// The fixed DER heads of an Ed25519 key (RFC 8410 §4, §7), before its 32 bytes.
const SPKI_HEAD = Buffer.from('302a300506032b6570032100', 'hex')
const PKCS8_HEAD = Buffer.from('302e020100300506032b657004220420', 'hex')

const publicKey = (bytes: Uint8Array): KeyObject =>
  createPublicKey({ key: Buffer.concat([SPKI_HEAD, bytes]), format: 'der', type: 'spki' })
const privateKey = (seed: Uint8Array): KeyObject =>
  createPrivateKey({ key: Buffer.concat([PKCS8_HEAD, seed]), format: 'der', type: 'pkcs8' })

const PRIVATE = 'PRIVATE+KEY+'
const hex = (key_id: number): string => key_id.toString(16).padStart(8, '0')
const typed = (type: number, bytes: Uint8Array): string =>
  Buffer.concat([Uint8Array.of(type), bytes]).toString('base64')

// Base64 may have plus signs of its own, a name may not.
const split = (text: string): [name?: string, id?: string, body?: string] => {
  const first = text.indexOf('+')
  const second = text.indexOf('+', first + 1)
  return first < 0 || second < 0 ? [] : [text.slice(0, first), text.slice(first + 1, second), text.slice(second + 1)]
}

const invalid = (says: string): Failure => new Failure('field_invalid', { says, param: 'key' })
