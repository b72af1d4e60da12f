/** A text as the inside of a JSON string, so that nothing is decoded before it is needed. */
export type Text = { bytes: Uint8Array; size: number }

export const NOTHING = new Uint8Array(0)
const ROOM_BYTES = 512

/** Adds bytes `[start, end)` of another buffer to a text. */
export const appendText = (text: Text, from: Uint8Array, start: number, end: number): void => {
  const length = end - start
  if (text.size + length > text.bytes.length) {
    const more = new Uint8Array(Math.max(ROOM_BYTES, 2 * (text.size + length)))
    more.set(text.bytes.subarray(0, text.size))
    text.bytes = more
  }
  const { bytes } = text
  let at = text.size
  // A token is a few bytes: a loop is quicker than a view and a copy.
  for (let i = start; i < end; i++) bytes[at++] = from[i]!
  text.size = at
}

/** The first `size` bytes of a text as a string; throws if an engine's string is none. */
export const decodedText = ({ bytes }: Text, size: number): string =>
  JSON.parse(`"${Buffer.from(bytes.buffer, bytes.byteOffset, size).toString('utf8')}"`) as string
