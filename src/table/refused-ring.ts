import { HEADER, REFUSED_AT, REFUSED_SLOT_BYTES, REFUSED_SLOTS } from './layout.ts'
import type { Table } from './table.ts'

/**
 * Why the newest refused calls were refused, of all workers together: a ring of {@link REFUSED_SLOTS} texts, each of at
 * most {@link REFUSED_TEXT_BYTES_MAX} bytes. A slot is its sequence number (odd while it is written), the length and the
 * text. Two workers meet in a slot only when a whole ring passes while one writes; such a text is not JSON, and is not told.
 */
export const REFUSED_TEXT_BYTES_MAX = REFUSED_SLOT_BYTES - 8

/** Keeps a text, in place of the oldest; one that is too long is not kept, and false. */
export const keepRefused = (table: Table, text: string): boolean => {
  if (Buffer.byteLength(text) > REFUSED_TEXT_BYTES_MAX) return false
  const turn = Atomics.add(table.i32, HEADER.refused, 1) >>> 0
  const at = slotAt(turn % REFUSED_SLOTS)
  // Who was killed here has left it odd.
  const writing = Atomics.load(table.i32, at) | 1
  Atomics.store(table.i32, at, writing)
  table.i32[at + 1] = textOf(table, at, REFUSED_TEXT_BYTES_MAX).write(text)
  Atomics.store(table.i32, at, writing + 1)
  return true
}

/** The text that begins with `start`, if it is still there; the newest of several is not promised. */
export const findRefused = (table: Table, start: string): string | undefined => {
  for (let slot = 0; slot < REFUSED_SLOTS; slot++) {
    const at = slotAt(slot)
    const seq = Atomics.load(table.i32, at)
    if (seq === 0 || seq & 1) continue
    const length = Math.min(table.i32[at + 1]!, REFUSED_TEXT_BYTES_MAX)
    const text = textOf(table, at, length).toString('utf8')
    if (text.startsWith(start) && Atomics.load(table.i32, at) === seq) return text
  }
  return undefined
}

/** The index of a slot's first Int32. */
const slotAt = (slot: number): number => (REFUSED_AT + slot * REFUSED_SLOT_BYTES) / 4

const textOf = ({ i32 }: Table, at: number, length: number): Buffer =>
  Buffer.from(i32.buffer, i32.byteOffset + at * 4 + 8, length)
