/** What an event is to a client: `data` is an event; `empty` has fields but no data; `comment` has no field at all. */
export type SseKind = 'data' | 'empty' | 'comment'

/** An event of a stream: its bytes, and what its fields say. */
export type SseEvent = {
  /** It stands at `[start, end)` of `buffer`, with the empty line that closes it. */
  buffer: Uint8Array
  start: number
  end: number
  kind: SseKind
  /** Its data, at `[data_start, data_end)` of `data_buffer`; several lines are joined with LF. */
  data_buffer: Uint8Array
  data_start: number
  data_end: number
  /** Its `event:` field, cut at 256 bytes; empty if there was none. */
  name: string
}

const COLON = 0x3a
const DATA = Buffer.from('data')
const EVENT = Buffer.from('event')
const NAME_BYTES_MAX = 256

/**
 * Reads the fields of an event whose place is set (WHATWG HTML §9.2.6). `lines` holds two numbers a line, relative to
 * the event's start: where its text ends, and where its terminator ends. `is_first`: a byte order mark may lead.
 */
export const readFields = (event: SseEvent, lines: readonly number[], is_first: boolean): void => {
  const { buffer, start } = event
  event.kind = 'comment'
  event.name = ''
  event.data_buffer = buffer
  event.data_start = event.data_end = start
  let count = 0
  let parts: number[] | undefined
  for (let i = 0, line = start; i < lines.length; line = start + lines[i + 1]!, i += 2) {
    const end = start + lines[i]!
    const text = i === 0 && is_first && hasMark(buffer, line, end) ? line + 3 : line
    if (text === end || buffer[text] === COLON) continue
    if (event.kind === 'comment') event.kind = 'empty'
    const value = valueStart(buffer, text, end, DATA)
    if (value >= 0) {
      if (end > value) event.kind = 'data'
      if (++count > 1) (parts ??= [event.data_start, event.data_end]).push(value, end)
      else {
        event.data_start = value
        event.data_end = end
      }
    } else {
      const named = valueStart(buffer, text, end, EVENT)
      if (named >= 0) event.name = decode.call(buffer, 'utf8', named, Math.min(end, named + NAME_BYTES_MAX))
    }
  }
  if (parts) join(event, parts)
}

const decode = Buffer.prototype.toString

/** Where the value of a line begins if its field has that name; else -1. */
const valueStart = (buffer: Uint8Array, start: number, end: number, name: Uint8Array): number => {
  const after = start + name.length
  if (after > end) return -1
  for (let i = 0; i < name.length; i++) if (buffer[start + i] !== name[i]) return -1
  // A line without a colon is a field with an empty value.
  if (after === end) return end
  if (buffer[after] !== COLON) return -1
  return after + 1 < end && buffer[after + 1] === 0x20 ? after + 2 : after + 1
}

const hasMark = (buffer: Uint8Array, start: number, end: number): boolean =>
  end - start >= 3 && buffer[start] === 0xef && buffer[start + 1] === 0xbb && buffer[start + 2] === 0xbf

/** Puts the data of several lines together. `parts` holds two numbers a line. */
const join = (event: SseEvent, parts: readonly number[]): void => {
  let length = parts.length / 2 - 1
  for (let i = 0; i < parts.length; i += 2) length += parts[i + 1]! - parts[i]!
  const joined = new Uint8Array(length)
  let at = 0
  for (let i = 0; i < parts.length; i += 2) {
    if (i > 0) joined[at++] = 0x0a
    joined.set(event.buffer.subarray(parts[i]!, parts[i + 1]!), at)
    at += parts[i + 1]! - parts[i]!
  }
  event.data_buffer = joined
  event.data_start = 0
  event.data_end = length
}
