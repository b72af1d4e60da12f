import type { Piece, RawResponse } from './raw-client.ts'

/** An event as the WHATWG standard ("9.2.6 Interpreting an event stream") delivers it; events without data are none. */
export type SseEvent = {
  readonly data: string
  readonly event: string
  readonly id: string
  /** When its closing empty line was in. `performance.now()`. */
  readonly at_ms: number
}

export type SseRead = {
  readonly events: readonly SseEvent[]
  /** The text of comment lines, after the colon. */
  readonly comments: readonly string[]
  /** Every byte of the body. */
  readonly bytes: Buffer
  /** True if the last event is `[DONE]`. */
  readonly done: boolean
  readonly ended: RawResponse['ended']
  /** The data of every event but `[DONE]`, parsed. Throws if one is not JSON. */
  chunks(): any[]
  /** `choices[index].delta.content` (or `.text`) of all chunks, joined. */
  text(index?: number): string
  /** The last `usage` that is not null; undefined if there was none. */
  usage(): any
  /** The finish reasons that are not null, in order. */
  finish(): string[]
  /** The `error` objects, in order. */
  errors(): any[]
}

/** Reads the body of a `fetch` response, or of a response that the raw client has read, as an event stream. */
export const readSse = async (response: Response | RawResponse): Promise<SseRead> => {
  if (!(response instanceof Response)) return view(response.pieces, response.ended)
  const pieces: Piece[] = []
  const reader = response.body?.getReader()
  try {
    for (;;) {
      const next = await reader?.read()
      if (!next || next.done) return view(pieces, 'whole')
      pieces.push({ at_ms: performance.now(), bytes: Buffer.from(next.value) })
    }
  } catch {
    return view(pieces, 'cut')
  }
}

/** The events in a whole body, without times. */
export const sseEvents = (body: string | Uint8Array): readonly SseEvent[] =>
  view([{ at_ms: 0, bytes: Buffer.from(body) }], 'whole').events

const view = (pieces: readonly Piece[], ended: SseRead['ended']): SseRead => {
  const bytes = Buffer.concat(pieces.map((piece) => piece.bytes))
  const { events, comments } = interpret(bytes, pieces)
  const done = events.at(-1)?.data === '[DONE]'
  const chunks = () => events.filter((event) => event.data !== '[DONE]').map((event) => JSON.parse(event.data))
  const choices = () => chunks().flatMap((chunk) => chunk.choices ?? [])
  return {
    events,
    comments,
    bytes,
    done,
    ended,
    chunks,
    text: (index = 0) =>
      choices()
        .filter((choice) => choice.index === index)
        .map((choice) => choice.delta?.content ?? choice.text ?? '')
        .join(''),
    usage: () => chunks().findLast((chunk) => chunk.usage)?.usage,
    finish: () => choices().flatMap((choice) => choice.finish_reason ?? []),
    errors: () => chunks().flatMap((chunk) => chunk.error ?? []),
  }
}

/** Plain and slow on purpose: the whole body at once, so that it shares no idea with an incremental scanner. */
const interpret = (bytes: Buffer, pieces: readonly Piece[]) => {
  const events: SseEvent[] = []
  const comments: string[] = []
  let data: string[] = []
  let event = 'message'
  let id = ''
  for (const { text, end } of linesOf(bytes)) {
    if (text === '') {
      if (data.length > 0) events.push({ data: data.join('\n'), event, id, at_ms: timeOf(pieces, end) })
      data = []
      event = 'message'
      continue
    }
    const colon = text.indexOf(':')
    const name = colon < 0 ? text : text.slice(0, colon)
    const value = colon < 0 ? '' : text.slice(colon + 1).replace(/^ /, '')
    if (colon === 0) comments.push(text.slice(1))
    else if (name === 'data') data.push(value)
    else if (name === 'event') event = value
    else if (name === 'id' && !value.includes('\0')) id = value
  }
  return { events, comments }
}

/** Complete lines with the offset after their line end (LF, CRLF or CR). A byte order mark is taken off. */
const linesOf = (bytes: Buffer): { text: string; end: number }[] => {
  // Latin-1 keeps one character a byte, so a match's place is a byte offset.
  const latin1 = bytes.toString('latin1')
  const found: { text: string; end: number }[] = []
  let start = latin1.startsWith('\xef\xbb\xbf') ? 3 : 0
  for (const line_end of latin1.matchAll(/\r\n|\n|\r/g)) {
    found.push({ text: bytes.toString('utf8', start, line_end.index), end: line_end.index + line_end[0].length })
    start = line_end.index + line_end[0].length
  }
  return found
}

const timeOf = (pieces: readonly Piece[], end: number): number => {
  let seen = 0
  for (const piece of pieces) {
    seen += piece.bytes.length
    if (seen >= end) return piece.at_ms
  }
  return Number.NaN
}
