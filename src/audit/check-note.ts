import { createPublicKey, verify } from 'node:crypto'
import { HASH_BYTES, sha256 } from './hash.ts'

/**
 * Signed checkpoints as a verifier reads them (C2SP signed-note, tlog-checkpoint, tlog-cosignature). It has nothing in
 * common with the code that writes them but SHA-256. What is wrong is thrown as a {@link Difference}.
 */

/** What a verifier found wrong, in one sentence. */
export class Difference extends Error {}

/** The public key of a log or a witness. */
export type PublicKey = {
  readonly name: string
  readonly id: string
  /** 1 for a log, 4 for a witness. */
  readonly type: number
  readonly bytes: Uint8Array
}

/** A checkpoint that was read; its signatures are not judged yet. */
export type CheckedNote = {
  readonly origin: string
  readonly size: number
  readonly root: Uint8Array
  readonly text: string
  readonly signatures: readonly { readonly name: string; readonly id: string; readonly bytes: Uint8Array }[]
}

/** Reads `NAME+ID+BASE64(type ‖ 32 bytes)`; the id must follow from the rest. */
export const readPublicKey = (line: string): PublicKey => {
  const found = /^([^\s+]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/]{44})$/.exec(line.trim())
  if (!found) throw new Difference(`"${line.trim().slice(0, 80)}" is not a public key: NAME+ID+BASE64`)
  const [, name = '', id = '', base64 = ''] = found
  const typed = Buffer.from(base64, 'base64')
  const want = sha256(Buffer.concat([Buffer.from(`${name}\n`), typed]))
    .toHex()
    .slice(0, 8)
  if (typed.byteLength !== 33 || id !== want) throw new Difference(`the public key ${name}+${id} has id ${want}`)
  return { name, id, type: typed[0]!, bytes: typed.subarray(1) }
}

/** Reads a checkpoint. `what` names it in what is thrown. */
export const readNote = (note: string, what: string): CheckedNote => {
  const gap = note.lastIndexOf('\n\n')
  const text = note.slice(0, gap + 1)
  const [origin = '', size = '', root = ''] = text.split('\n')
  if (gap < 0 || origin === '') throw new Difference(`${what} is not a signed note`)
  if (!/^(0|[1-9]\d{0,14})$/.test(size)) throw new Difference(`${what} has no size in its second line`)
  const hash = Buffer.from(root, 'base64')
  if (hash.byteLength !== HASH_BYTES || hash.toString('base64') !== root)
    throw new Difference(`${what} has no root in its third line`)
  const lines = note
    .slice(gap + 2)
    .split('\n')
    .filter((line) => line !== '')
  const signatures = lines.map((line) => {
    const found = /^— ([^\s+]+) ([A-Za-z0-9+/]+={0,2})$/.exec(line)
    const bytes = Buffer.from(found?.[2] ?? '', 'base64')
    if (!found || bytes.byteLength < 5) throw new Difference(`${what} has a line that is no signature`)
    return { name: found[1]!, id: bytes.subarray(0, 4).toString('hex'), bytes: bytes.subarray(4) }
  })
  return { origin, size: Number(size), root: hash, text, signatures }
}

/** Who of the given keys signed a checkpoint. A bad signature of a known key is thrown, and so is none of a log's key. */
export const signersOf = (note: CheckedNote, keys: readonly PublicKey[], what: string): string[] => {
  const signers: string[] = []
  let by_log = false
  for (const signature of note.signatures) {
    const key = keys.find(({ name, id }) => name === signature.name && id === signature.id)
    if (!key) continue
    const who = `${key.name}+${key.id}`
    if (!isGood(note.text, signature.bytes, key)) throw new Difference(`${what}: the signature of ${who} is not valid`)
    signers.push(who)
    by_log ||= key.type === 1 && key.name === note.origin
  }
  if (!by_log) throw new Difference(`${what} of ${note.origin} is not signed by a known key of that log`)
  return signers
}

// The fixed DER head of an Ed25519 public key (RFC 8410 §4).
const SPKI = Buffer.from('302a300506032b6570032100', 'hex')

const isGood = (text: string, signature: Uint8Array, key: PublicKey): boolean => {
  const public_key = createPublicKey({ key: Buffer.concat([SPKI, key.bytes]), format: 'der', type: 'spki' })
  if (key.type === 1) return signature.byteLength === 64 && verify(null, Buffer.from(text), public_key, signature)
  if (key.type !== 4 || signature.byteLength !== 72) return false
  const time_s = new DataView(signature.buffer, signature.byteOffset).getBigUint64(0)
  return verify(null, Buffer.from(`cosignature/v1\ntime ${time_s}\n${text}`), public_key, signature.subarray(8))
}
