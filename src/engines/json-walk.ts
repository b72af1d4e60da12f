import { skipColon, skipKey, skipSpace } from './json-skip.ts'

/** A document on which a walk goes on; `end` is where its bytes end. */
type Walked = { readonly bytes: Uint8Array; readonly end: number }

/**
 * Called at the value of a member, at `pos`; its key stands at `[name, name_end)` without quotes. `depth` levels of
 * nesting are left. Returns the position after the value, or `~at` for a fault at byte `at`, as `skipValue` does.
 */
export type OnMember<W extends Walked> = (walk: W, name: number, name_end: number, pos: number, depth: number) => number

/** Called at an element of an array; returns like {@link OnMember}. */
export type OnElement<W extends Walked> = (walk: W, pos: number, depth: number) => number

/** Goes through the members of the object that opens at `pos`; returns the position after it, or `~at` for a fault. */
export const walkObject = <W extends Walked>(walk: W, pos: number, depth: number, member: OnMember<W>): number => {
  const { bytes, end } = walk
  if (depth === 0) return ~pos
  let at = skipSpace(bytes, pos + 1, end)
  if (at < end && bytes[at] === 0x7d) return at + 1
  for (;;) {
    const name = at + 1
    at = skipKey(bytes, at, end)
    if (at < 0) return at
    const name_end = at - 1
    at = skipColon(bytes, at, end)
    if (at < 0) return at
    at = at < end ? member(walk, name, name_end, at, depth - 1) : ~end
    if (at < 0) return at
    at = skipSpace(bytes, at, end)
    if (at >= end) return ~end
    if (bytes[at] === 0x7d) return at + 1
    if (bytes[at] !== 0x2c) return ~at
    at = skipSpace(bytes, at + 1, end)
  }
}

/** Goes through the elements of the array that opens at `pos`; returns like {@link walkObject}. */
export const walkArray = <W extends Walked>(walk: W, pos: number, depth: number, element: OnElement<W>): number => {
  const { bytes, end } = walk
  if (depth === 0) return ~pos
  let at = skipSpace(bytes, pos + 1, end)
  if (at < end && bytes[at] === 0x5d) return at + 1
  for (;;) {
    at = at < end ? element(walk, at, depth - 1) : ~end
    if (at < 0) return at
    at = skipSpace(bytes, at, end)
    if (at >= end) return ~end
    if (bytes[at] === 0x5d) return at + 1
    if (bytes[at] !== 0x2c) return ~at
    at = skipSpace(bytes, at + 1, end)
  }
}
