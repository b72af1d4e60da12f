import type { AnswerFacts } from '../engines/openai-events.ts'
import { channelOf, fieldsOf, indexOf, listOf, partsOf } from './event-parts.ts'
import { appendText, decodedText, NOTHING, type Text } from './text-bytes.ts'
import { ToolCalls } from './tool-calls.ts'

/**
 * Text of one stream that is kept to be counted, in bytes, all its choices and kinds together; a buffer has up to twice as
 * much room. What is longer is handed out in parts. A usual answer of 1,000 tokens is 4 to 5 KB.
 */
export const KEPT_BYTES_MAX = 16 * 1024
/** Texts of a stream that are kept apart: choices, and in each content, reasoning, arguments; the rest runs together. */
const CHANNELS_MAX = 64
/** How far back a part is shortened to end before a word, so that parts have as many tokens as the whole. */
const BACK_BYTES = 1_024

const CONTENT = channelOf(0, 'content')
const OTHERS = ''

/** What an engine generated since it last told its usage, kept until its tokens are known or must be counted. */
export class GeneratedText {
  /** Events that carried text, and the bytes of that text. */
  events = 0
  bytes = 0
  /** How often an engine's own count took the place of all text before. */
  told = 0
  /** Bytes of text that could not be read: they count by their size. */
  unread_bytes = 0
  #kept = 0
  #parts: string[] = []
  readonly #texts = new Map<string, Text>()
  #calls: ToolCalls | undefined
  /** The first choice's content: all there is of most answers. */
  readonly #content: Text = { bytes: NOTHING, size: 0 }

  /** Takes note of an event: what was read of it, and its JSON at `[start, end)`. */
  note(facts: AnswerFacts, buffer: Uint8Array, start: number, end: number): void {
    const bytes = facts.text_bytes + facts.reasoning_bytes + facts.tool_bytes
    if (bytes === 0) return
    this.events++
    this.bytes += bytes
    const { texts, text_kind, choice_index_max: index, text_start, text_end } = facts
    const is_plain = texts === 1 && facts.choices === 1 && facts.tool_bytes === 0 && text_kind !== 'other'
    if (!is_plain) return this.#noteParsed(buffer, start, end, bytes)
    const is_content = index === 0 && text_kind === 'content'
    this.#add(is_content ? CONTENT : channelOf(index, text_kind), buffer, text_start + 1, text_end - 1)
  }

  /** An engine's own count holds all that was generated so far. */
  counted(): void {
    this.told++
    this.events = this.bytes = this.unread_bytes = this.#kept = this.#content.size = 0
    if (this.#parts.length > 0) this.#parts = []
    if (this.#texts.size > 0) this.#texts.clear()
  }

  /** The parts of a long text that stand for themselves, handed out once. */
  parts(): string[] {
    const parts = this.#parts
    if (parts.length > 0) this.#parts = []
    return parts
  }

  /** What is left, the parts that were not handed out among it; nothing is kept any more. */
  take(): string[] {
    for (const text of this.#all()) this.#hand(text, text.size)
    this.#kept = 0
    this.#texts.clear()
    this.#content.bytes = NOTHING
    return this.parts()
  }

  #all(): Text[] {
    return [this.#content, ...this.#texts.values()]
  }

  #noteParsed(buffer: Uint8Array, start: number, end: number, bytes: number): void {
    const texts = textsOf(buffer.subarray(start, end), (this.#calls ??= new ToolCalls()))
    if (texts === undefined) this.unread_bytes += bytes
    else
      for (const [channel, text] of texts) {
        const json = Buffer.from(JSON.stringify(text))
        this.#add(channel, json, 1, json.length - 1)
      }
  }

  #add(channel: string, from: Uint8Array, start: number, end: number): void {
    const length = end - start
    if (this.#kept + length > KEPT_BYTES_MAX) this.#spill()
    const text = channel === CONTENT ? this.#content : this.#textOf(channel)
    appendText(text, from, start, end)
    this.#kept += length
    // A whole answer in one event: nothing of it needs to wait.
    if (this.#kept > KEPT_BYTES_MAX) this.#spill()
  }

  #textOf(channel: string): Text {
    const name = this.#texts.has(channel) || this.#texts.size < CHANNELS_MAX ? channel : OTHERS
    let text = this.#texts.get(name)
    if (text === undefined) this.#texts.set(name, (text = { bytes: NOTHING, size: 0 }))
    return text
  }

  /** Hands out what is kept, but for the last words, which may go on. */
  #spill(): void {
    for (const text of this.#all()) this.#hand(text, partingOf(text))
    this.#kept = this.#all().reduce((sum, { size }) => sum + size, 0)
  }

  #hand(text: Text, size: number): void {
    if (size === 0) return
    try {
      this.#parts.push(decodedText(text, size))
    } catch {
      this.unread_bytes += size // An engine's string that is none.
    }
    const rest = text.size - size
    // A buffer that one large event made is not kept.
    if (text.bytes.length > 2 * KEPT_BYTES_MAX) text.bytes = text.bytes.slice(size, text.size)
    else text.bytes.copyWithin(0, size, text.size)
    text.size = rest
  }
}

/** Where the last word of a text begins, a space before a letter; its end if that is not near. */
const partingOf = ({ bytes, size }: Text): number => {
  for (let at = size - 2; at > Math.max(0, size - BACK_BYTES); at--)
    if (bytes[at] === 0x20 && isLetter(bytes[at + 1]!)) return at
  return size
}

const isLetter = (byte: number): boolean => (byte | 0x20) >= 0x61 && (byte | 0x20) <= 0x7a

/**
 * The generated texts in the JSON of a whole answer, or of an event after those that made `calls`, by their channel;
 * undefined if it cannot be read.
 */
export const textsOf = (json: Uint8Array, calls = new ToolCalls()): Texts | undefined => {
  try {
    return generatedIn(JSON.parse(Buffer.from(json.buffer, json.byteOffset, json.byteLength).toString('utf8')), calls)
  } catch {
    return undefined // Sound only at first sight.
  }
}

type Texts = readonly (readonly [channel: string, text: string])[]

/** The same of an event or an answer that was parsed. */
export const generatedIn = (parsed: unknown, calls = new ToolCalls()): Texts | undefined => {
  const texts: [string, string][] = []
  for (const [position, item] of listOf(fieldsOf(parsed)['choices']).entries()) {
    const choice = fieldsOf(item)
    const { message, delta = message } = choice
    const parts = partsOf({ ...choice, delta }, indexOf(choice, position), calls)
    if (parts === undefined) return undefined
    for (const { channel, text } of parts) texts.push([channel, text])
  }
  return texts
}
