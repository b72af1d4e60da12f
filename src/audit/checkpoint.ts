import { Failure } from '../base/failure.ts'
import { isSize } from './geometry.ts'
import { HASH_BYTES } from './hash.ts'
import { formatNote, fromBase64, type Note, type NoteSignature, parseNote } from './note.ts'
import { type SignerKey, signText, type Verified, type VerifierKey, verifyNote } from './note-key.ts'

/** The head of a log at one size (C2SP tlog-checkpoint). `origin` names the log; `root` is 32 bytes. */
export type Checkpoint = { readonly origin: string; readonly size: number; readonly root: Uint8Array }

/** The text that is signed: origin, size and root in base64, one line each. Requires an origin without newlines. */
export const checkpointText = ({ origin, size, root }: Checkpoint): string => `${origin}\n${size}\n${root.toBase64()}\n`

/** A checkpoint as a signed note: one signature line a key, in the order of the keys. Requires at least one key. */
export const signCheckpoint = (checkpoint: Checkpoint, keys: readonly SignerKey[]): string => {
  const text = checkpointText(checkpoint)
  return formatNote({ text, signatures: keys.map((key) => signText(text, key)) })
}

/** Reads a signed checkpoint without judging its signatures. Extension lines are allowed and kept in the note's text. */
export const parseCheckpoint = (note: string): { checkpoint: Checkpoint; note: Note } | Failure => {
  const parsed = parseNote(note)
  if (parsed instanceof Failure) return parsed
  const [origin, size, root, ...extensions] = parsed.text.slice(0, -1).split('\n')
  if (!origin || extensions.includes(''))
    return invalid('a checkpoint begins with origin, size and root, and has no empty line')
  if (size === undefined || !/^(0|[1-9][0-9]{0,15})$/.test(size) || !isSize(Number(size))) {
    return invalid('the size of a checkpoint is a decimal number below 2^53 without leading zeros')
  }
  const hash = root === undefined ? undefined : fromBase64(root)
  if (hash?.byteLength !== HASH_BYTES) return invalid(`the root of a checkpoint is base64 of ${HASH_BYTES} bytes`)
  return { checkpoint: { origin, size: Number(size), root: hash }, note: parsed }
}

/**
 * Reads a signed checkpoint and verifies it: every signature of a known key must be good, and at least one must be of a
 * known key. Returns who signed, in the note's order.
 */
export const verifyCheckpoint = (
  note: string,
  keys: readonly VerifierKey[],
): { checkpoint: Checkpoint; signed_by: Verified[] } | Failure => {
  const parsed = parseCheckpoint(note)
  if (parsed instanceof Failure) return parsed
  const signed_by = verifyNote(parsed.note, keys)
  return signed_by instanceof Failure ? signed_by : { checkpoint: parsed.checkpoint, signed_by }
}

/** The same checkpoint with further signatures behind its own; those it already has are not doubled. */
export const addSignatures = (note: Note, more: readonly NoteSignature[]): string => {
  const signatures = [...note.signatures]
  for (const one of more) {
    if (!signatures.some(({ name, key_id }) => name === one.name && key_id === one.key_id)) signatures.push(one)
  }
  return formatNote({ text: note.text, signatures })
}

const invalid = (says: string): Failure => new Failure('field_invalid', { says, param: 'checkpoint' })
