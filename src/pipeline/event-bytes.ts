/** Events that the gateway itself writes, and the bytes of its own that may stand between an engine's events. */

/** A comment with one newline: no client takes it for an event, not even one that has seen an `id:`. */
export const PING: Uint8Array = Buffer.from(': ping\n')

export const DONE: Uint8Array = Buffer.from('data: [DONE]\n\n')

/** The empty line that an engine forgot at the end of its last event. */
export const CLOSING: Uint8Array = Buffer.from('\n\n')

const DATA = Buffer.from('data: ')

/** One event with JSON as its data: `data: ` before each of its lines, so that pretty-printed JSON stays one event. */
export const eventOf = (json: Uint8Array): Uint8Array => {
  const text = Buffer.from(json.buffer, json.byteOffset, json.byteLength)
  if (!text.includes(0x0a) && !text.includes(0x0d)) return Buffer.concat([DATA, text, CLOSING])
  // Latin-1 keeps every byte; line ends are never inside UTF-8 characters, and in JSON never inside strings.
  return Buffer.from(`data: ${text.toString('latin1').replaceAll(/\r\n|\n|\r/g, '\ndata: ')}\n\n`, 'latin1')
}
