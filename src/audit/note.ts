import { Failure } from '../base/failure.ts'

/**
 * Signed notes (C2SP signed-note): a text of whole lines, an empty line, and signature lines
 * `— NAME BASE64(key id ‖ signature)`. This file reads and writes the form; `note-key.ts` signs and verifies.
 */

/** A signature line. `bytes` is what follows the four bytes of the key id. */
export type NoteSignature = { readonly name: string; readonly key_id: number; readonly bytes: Uint8Array }

/** A note that was read; nothing in it is verified yet. `text` ends in a newline. */
export type Note = { readonly text: string; readonly signatures: readonly NoteSignature[] }

/** The most bytes of a note, room for 16 post-quantum signatures; and the most signatures read from one. */
export const NOTE_BYTES_MAX = 160 * 1024
export const NOTE_SIGNATURES_MAX = 32

/** Reads a note; a failure says what is wrong with its form. Text is refused unless it is the one way to write the note. */
export const parseNote = (note: string): Note | Failure => {
  if (note.length > NOTE_BYTES_MAX) return invalid(`a note has at most ${NOTE_BYTES_MAX} bytes`)
  if (!note.isWellFormed() || hasControl(note))
    return invalid('a note is UTF-8 without control characters but newlines')
  const gap = note.lastIndexOf('\n\n')
  if (gap < 0) return invalid('a note has an empty line before its signatures')
  if (!note.endsWith('\n')) return invalid('a note ends in a newline')
  const lines = note.slice(gap + 2, -1).split('\n')
  if (lines.length > NOTE_SIGNATURES_MAX) return invalid(`a note has at most ${NOTE_SIGNATURES_MAX} signatures`)
  const signatures: NoteSignature[] = []
  for (const line of lines) {
    const signature = parseSignatureLine(line)
    if (signature instanceof Failure) return signature
    signatures.push(signature)
  }
  return { text: note.slice(0, gap + 1), signatures }
}

/** Writes a note. Requires a text that ends in a newline, and at least one signature. */
export const formatNote = (note: Note): string => `${note.text}\n${note.signatures.map(formatSignatureLine).join('')}`

/** One signature line with its newline. */
export const formatSignatureLine = ({ name, key_id, bytes }: NoteSignature): string => {
  const body = new Uint8Array(4 + bytes.byteLength)
  new DataView(body.buffer).setUint32(0, key_id)
  body.set(bytes, 4)
  return `— ${name} ${body.toBase64()}\n`
}

/** Reads one signature line, without its newline. */
export const parseSignatureLine = (line: string): NoteSignature | Failure => {
  const [dash, name, base64, ...more] = line.split(' ')
  if (dash !== '—' || name === undefined || base64 === undefined || more.length > 0) {
    return invalid('a signature line is an em dash, a key name and base64, with one space between them')
  }
  if (!isKeyName(name)) return invalid('a key name is not empty and has neither spaces nor plus signs')
  const body = fromBase64(base64)
  if (!body || body.byteLength < 5) return invalid(`the signature of ${name} is not base64 of a key id and a signature`)
  return { name, key_id: new DataView(body.buffer).getUint32(0), bytes: body.slice(4) }
}

/** Whether a name may name a key: not empty, no Unicode spaces, no plus, nothing a note cannot hold. */
export const isKeyName = (name: string): boolean =>
  name.length > 0 && name.isWellFormed() && !/[\p{White_Space}+]/u.test(name) && !hasControl(name)

/** The bytes of standard base64 with padding, or undefined where the text is not the one way to write them. */
export const fromBase64 = (text: string): Uint8Array<ArrayBuffer> | undefined => {
  if (text.length % 4 !== 0 || !/^[A-Za-z0-9+/]*={0,2}$/.test(text)) return undefined
  const bytes = new Uint8Array(Buffer.from(text, 'base64'))
  return bytes.toBase64() === text ? bytes : undefined
}

// Newline is the one control character below U+0020 that a note may have.
const hasControl = (text: string): boolean => {
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at)
    if (unit < 0x20 && unit !== 0x0a) return true
  }
  return false
}

const invalid = (says: string): Failure => new Failure('field_invalid', { says, param: 'note' })
