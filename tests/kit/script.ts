import { STATUS_CODES } from 'node:http'

/** One move of a scripted engine. Build them with the functions of this file; {@link script} makes a list of them. */
export type Step =
  | { readonly do: 'head'; readonly bytes: Uint8Array; readonly framing: Framing }
  | { readonly do: 'body'; readonly bytes: Uint8Array }
  | { readonly do: 'wire'; readonly bytes: Uint8Array }
  | { readonly do: 'wait'; readonly ms: number }
  | { readonly do: 'until'; readonly opened: PromiseLike<unknown> }
  | { readonly do: 'bytewise'; readonly steps: Script; readonly pause_ms: number }
  | { readonly do: 'forever'; readonly bytes: Uint8Array; readonly pause_ms: number; readonly bytes_max: number }
  | { readonly do: 'end' | 'cut' | 'rst' | 'never' | 'stop_reading' | 'go_on_reading' }

/** How the body of the answer is delimited: decides what `body` steps and `end` put on the wire. */
export type Framing = 'chunked' | 'length' | 'close'

export type Script = readonly Step[]
export type HeaderTable = Readonly<Record<string, string>>
type Nested = Step | readonly Nested[]

/** A list of steps; lists inside (as {@link json} gives) are flattened. A script without an end never ends its answer. */
export const script = (...steps: readonly Nested[]): Script =>
  steps.flatMap((step) => ('do' in step ? [step] : script(...step)))

const utf8 = (content: string | Uint8Array): Uint8Array =>
  typeof content === 'string' ? Buffer.from(content) : content

/** Status line and headers. `framing` adds `transfer-encoding: chunked` for `chunked` and nothing for the others. */
export const head = (status: number, headers: HeaderTable = {}, framing: Framing = 'chunked'): Step => {
  const all = framing === 'chunked' ? { ...headers, 'transfer-encoding': 'chunked' } : headers
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`)
  const text = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'Odd'}\r\n${lines.join('')}\r\n`
  return { do: 'head', bytes: Buffer.from(text, 'latin1'), framing }
}

/** 200, an event stream, chunked. */
export const sse200: Step = head(200, { 'content-type': 'text/event-stream' })

/** Body bytes as they are; their own chunk where the framing is chunked. */
export const body = (content: string | Uint8Array): Step => ({ do: 'body', bytes: utf8(content) })

/** Bytes on the wire as they are, whatever the framing. */
export const raw = (content: string | Uint8Array): Step => ({ do: 'wire', bytes: utf8(content) })

/** One event: `data: ` + x + LF LF. Anything but a string is written as JSON. */
export const D = (x: unknown): Step => body(`data: ${typeof x === 'string' ? x : JSON.stringify(x)}\n\n`)

export const DONE: Step = D('[DONE]')

const envelope = { id: 'chatcmpl-t1', object: 'chat.completion.chunk', created: 1_700_000_000, model: 'm1' }

/** A chat completion chunk with one choice. */
export const CH = (delta: object, finish: string | null = null) => ({
  ...envelope,
  choices: [{ index: 0, delta, finish_reason: finish }],
})

/** The usage chunk: no choices. `details` is merged into the usage object. */
export const US = (prompt: number, completion: number, details: object = {}) => ({
  ...envelope,
  choices: [] as object[],
  usage: { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion, ...details },
})

/** A whole chat completion, not streamed. */
export const WHOLE = (content: string, prompt: number, completion: number, finish = 'stop') => ({
  ...envelope,
  object: 'chat.completion',
  choices: [{ index: 0, message: { role: 'assistant', content }, finish_reason: finish }],
  usage: { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion },
})

/** A whole answer with Content-Length; a string or bytes go out as they are, anything else as JSON. Includes the end. */
export const json = (status: number, content: unknown, headers: HeaderTable = {}): Script => {
  const bytes = utf8(typeof content === 'string' || content instanceof Uint8Array ? content : JSON.stringify(content))
  const all = { 'content-type': 'application/json', 'content-length': String(bytes.length), ...headers }
  return [head(status, all, 'length'), { do: 'body', bytes }, end]
}

export const redirect = (status: number, location: string): Script => json(status, '', { location })

export const wait = (ms: number): Step => ({ do: 'wait', ms })

/** Goes on when the promise resolves: for tests that steer the engine by hand. */
export const until = (opened: PromiseLike<unknown>): Step => ({ do: 'until', opened })

/** The declared end of the body: last chunk, nothing for `length`, a FIN for `close`. The connection stays for the next request. */
export const end: Step = { do: 'end' }
/** Closes TCP as it stands, without a final chunk. */
export const cut: Step = { do: 'cut' }
/** Resets the connection. */
export const rst: Step = { do: 'rst' }
/** Says nothing more until the client leaves. */
export const never: Step = { do: 'never' }
/** Leaves what the client sends unread (backpressure), until {@link go_on_reading}. */
export const stop_reading: Step = { do: 'stop_reading' }
export const go_on_reading: Step = { do: 'go_on_reading' }

/** Plays the steps with each byte, chunk framing included, in a write of its own. */
export const bytewise = (...steps: readonly Nested[]): Step => ({
  do: 'bytewise',
  steps: script(...steps),
  pause_ms: 0,
})

/** {@link bytewise} with a pause after each byte, so that each is a read of its own. */
export const drip = (pause_ms: number, ...steps: readonly Nested[]): Step => ({
  do: 'bytewise',
  steps: script(...steps),
  pause_ms,
})

const pieces = (bytes: Uint8Array, offsets: readonly number[]): Uint8Array[] =>
  [0, ...offsets].map((from, index) => bytes.subarray(from, offsets[index] ?? bytes.length))

/** Body bytes cut at the offsets, each piece a write (and a chunk) of its own, with pauses between. */
export const split = (content: string | Uint8Array | Step, offsets: readonly number[], wait_ms: number): Script =>
  pieces(bytesOf(content), offsets).flatMap((piece, index) => (index ? [wait(wait_ms), body(piece)] : [body(piece)]))

/** {@link split} for bytes that go on the wire as they are. */
export const splitRaw = (content: string | Uint8Array, offsets: readonly number[], wait_ms: number): Script =>
  pieces(utf8(content), offsets).flatMap((piece, index) => (index ? [wait(wait_ms), raw(piece)] : [raw(piece)]))

/** The body bytes that a step stands for: `bytesOf(D(x))`. Empty for a step without bytes. */
export const bytesOf = (content: string | Uint8Array | Step): Uint8Array => {
  if (typeof content === 'string' || content instanceof Uint8Array) return utf8(content)
  return 'bytes' in content ? content.bytes : new Uint8Array(0)
}

/** Writes the same bytes again and again (an endless header, an endless body) until the client leaves or `bytes_max` went. */
export const forever = (content: string | Uint8Array, pause_ms = 0, bytes_max = 256 * 1024 * 1024): Step => ({
  do: 'forever',
  bytes: utf8(content),
  pause_ms,
  bytes_max,
})
