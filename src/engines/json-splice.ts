import { Failure } from '../base/failure.ts'
import { skipSpace } from './json-skip.ts'
import type { JsonRange } from './json-value.ts'

/**
 * Edits of a JSON document that leave every other byte as it was written. Ranges come from a scan of the same bytes.
 * Values are given as JSON text; keys as plain text.
 */

/** Bytes `[start, end)` become `with`; an insertion where both are equal. */
export type Edit = { readonly start: number; readonly end: number; readonly with: Uint8Array }

/**
 * Applies edits, in any order, and returns the document as pieces to send one after the other: views of `bytes` where
 * nothing changed, so it must not change until they are sent. Insertions at one place stand in the order given.
 * Requires edits that do not overlap.
 */
export const splice = (bytes: Uint8Array, edits: readonly Edit[]): Uint8Array[] => {
  const ordered =
    edits.length < 2 ? edits : edits.toSorted((one, other) => one.start - other.start || one.end - other.end)
  const pieces: Uint8Array[] = []
  let at = 0
  for (const edit of ordered) {
    if (edit.start < at || edit.end < edit.start || edit.end > bytes.length) {
      throw new Error(
        `splice: [${edit.start}, ${edit.end}) overlaps an edit up to ${at} or leaves [0, ${bytes.length})`,
      )
    }
    if (edit.start > at) pieces.push(bytes.subarray(at, edit.start))
    if (edit.with.length > 0) pieces.push(edit.with)
    at = edit.end
  }
  if (at < bytes.length) pieces.push(at === 0 ? bytes : bytes.subarray(at))
  return pieces
}

/** Replaces a value. */
export const replaceValue = (value: JsonRange, json: string): Edit => ({
  start: value.start,
  end: value.end,
  with: Buffer.from(json),
})

/** A key and its value as JSON text. */
export type Member = readonly [key: string, json: string]

/**
 * Adds members to an object, at its start or its end. Requires keys that it does not have, and at most one such edit
 * of an object that is empty: give all members at once.
 */
export const addMembers = (
  bytes: Uint8Array,
  object: JsonRange,
  members: readonly Member[],
  where: 'start' | 'end' = 'end',
): Edit => {
  const text = members.map(([key, json]) => `${JSON.stringify(key)}:${json}`).join(',')
  const after_brace = object.start + 1
  const empty = skipSpace(bytes, after_brace, object.end) === object.end - 1
  const at = empty || where === 'start' ? after_brace : lastByte(bytes, object.end - 1) + 1
  const comma_before = !empty && where === 'end' && text !== '' ? ',' : ''
  const comma_after = !empty && where === 'start' && text !== '' ? ',' : ''
  return { start: at, end: at, with: Buffer.from(comma_before + text + comma_after) }
}

/** Replaces the value of a member, or adds the member at the end if `current` is undefined. */
export const setMember = (
  bytes: Uint8Array,
  object: JsonRange,
  key: string,
  current: JsonRange | undefined,
  json: string,
): Edit => (current ? replaceValue(current, json) : addMembers(bytes, object, [[key, json]]))

/**
 * Sets `outer_key.inner_key` in a document whose top-level value is `root`: `outer` and `inner` are where they stand,
 * undefined if they do not. A missing or null `outer` becomes an object with that one member; one of another type is
 * `field_invalid`.
 */
export const setNested = (
  bytes: Uint8Array,
  root: JsonRange,
  [outer_key, inner_key]: readonly [string, string],
  outer: JsonRange | undefined,
  inner: JsonRange | undefined,
  json: string,
): Edit | Failure => {
  if (outer?.type === 'object') return setMember(bytes, outer, inner_key, inner, json)
  if (outer && outer.type !== 'null') {
    return new Failure('field_invalid', {
      says: `"${outer_key}" is a JSON ${outer.type}; it must be an object or null.`,
      param: outer_key,
    })
  }
  return setMember(bytes, root, outer_key, outer, `{${JSON.stringify(inner_key)}:${json}}`)
}

/** Removes a member with one comma, so that what is left is valid. Requires that no other edit touches that object. */
export const removeMember = (bytes: Uint8Array, value: JsonRange): Edit => {
  const nothing = new Uint8Array(0)
  const next = skipSpace(bytes, value.end, bytes.length)
  if (bytes[next] === 0x2c) {
    return { start: value.key_start, end: skipSpace(bytes, next + 1, bytes.length), with: nothing }
  }
  const before = lastByte(bytes, value.key_start)
  return { start: bytes[before] === 0x2c ? before : value.key_start, end: value.end, with: nothing }
}

/** The position of the last byte before `pos` that is not white space. */
const lastByte = (bytes: Uint8Array, pos: number): number => {
  let at = pos - 1
  while (bytes[at] === 0x20 || bytes[at] === 0x0a || bytes[at] === 0x0d || bytes[at] === 0x09) at--
  return at
}
