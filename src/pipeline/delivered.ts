import type { AnswerFacts } from '../engines/openai-events.ts'
import { channelOf, type Fields, fieldsOf, indexOf, listOf, partsOf } from './event-parts.ts'
import { appendText, decodedText, NOTHING, type Text } from './text-bytes.ts'
import { ToolCalls } from './tool-calls.ts'

/** Text of one call that is kept; an answer that is longer cannot go on elsewhere. */
export const DELIVERED_BYTES_MAX = 1024 * 1024
/** The first event, kept for its id, is no larger. */
const FIRST_BYTES_MAX = 16 * 1024
const CHANNELS_MAX = 512

const CONTENT = channelOf(0, 'content')
const REASONING = channelOf(0, 'reasoning')

/** What of an answer has gone to the client, kept so that another engine can go on with it. Only the text is copied. */
export class Delivered {
  /** False once it is too long or holds what cannot be compared: then nothing is kept any more. */
  whole = true
  /** The highest index of a choice that was seen; -1 before any. */
  choice_max = -1
  /** Choices whose finish reason went out. */
  readonly finished = new Set<number>()
  #first: Uint8Array | undefined
  #bytes = 0
  readonly #texts = new Map<string, Text>()
  #calls: ToolCalls | undefined
  /** The first choice's content: all there is of most answers. */
  readonly #content: Text = { bytes: NOTHING, size: 0 }

  /** Takes note of an event that goes out: what was read of it, and its JSON at `[start, end)`. */
  note(facts: AnswerFacts, buffer: Uint8Array, start: number, end: number): void {
    if (!this.whole) return
    if (this.#first === undefined)
      this.#first = new Uint8Array(buffer.subarray(start, Math.min(end, start + FIRST_BYTES_MAX)))
    if (facts.choice_index_max > this.choice_max) this.choice_max = facts.choice_index_max
    if (facts.finishes.length > 0) for (const { index } of facts.finishes) this.finished.add(index)
    const { texts, text_kind } = facts
    if (texts === 0 && facts.tool_bytes === 0) return
    const is_plain = texts === 1 && facts.choices === 1 && facts.tool_bytes === 0 && text_kind !== 'other'
    if (!is_plain) return this.#noteParsed(buffer, start, end)
    const { choice_index_max: index, text_start, text_end } = facts
    const text =
      index > 0
        ? this.#textOf(channelOf(index, text_kind))
        : text_kind === 'content'
          ? this.#content
          : this.#textOf(REASONING)
    this.#append(text, buffer, text_start + 1, text_end - 1)
  }

  /** Takes note of a text that was put together here. */
  add(channel: string, text: string): void {
    if (!this.whole) return
    const json = Buffer.from(JSON.stringify(text))
    this.#append(channel === CONTENT ? this.#content : this.#textOf(channel), json, 1, json.length - 1)
  }

  /** The first event, parsed; empty if it was too large to be kept. */
  first(): Fields {
    return fieldsOf(readEvent(this.#first ?? NOTHING))
  }

  /** The content of the one choice as the inside of a JSON string; undefined if more than that, or nothing, was delivered. */
  contentOnly(): Uint8Array | undefined {
    if (!this.whole || this.choice_max > 0 || this.#texts.size > 0 || this.#content.size === 0) return undefined
    return this.#content.bytes.subarray(0, this.#content.size)
  }

  /** All texts by their channel; undefined if one cannot be read. */
  texts(): Map<string, string> | undefined {
    const all = new Map<string, string>()
    try {
      if (this.#content.size > 0) all.set(CONTENT, decodedText(this.#content, this.#content.size))
      for (const [channel, text] of this.#texts) all.set(channel, decodedText(text, text.size))
      return all
    } catch {
      return undefined // An engine's string that is none: nothing can be compared with it.
    }
  }

  #noteParsed(buffer: Uint8Array, start: number, end: number): void {
    const event = readEvent(buffer.subarray(start, end))
    if (event === undefined) return this.#giveUp()
    listOf(fieldsOf(event)['choices']).forEach((item, position) => {
      const choice = fieldsOf(item)
      const parts = partsOf(choice, indexOf(choice, position), (this.#calls ??= new ToolCalls()))
      if (parts === undefined) this.#giveUp()
      else for (const { channel, text } of parts) this.add(channel, text)
    })
  }

  #textOf(channel: string): Text {
    const known = this.#texts.get(channel)
    if (known) return known
    const text = { bytes: NOTHING, size: 0 }
    if (this.#texts.size >= CHANNELS_MAX) this.#giveUp()
    else this.#texts.set(channel, text)
    return text
  }

  #append(text: Text, from: Uint8Array, start: number, end: number): void {
    this.#bytes += end - start
    if (this.#bytes > DELIVERED_BYTES_MAX) return this.#giveUp()
    appendText(text, from, start, end)
  }

  #giveUp(): void {
    this.whole = false
    this.#texts.clear()
    this.#content.bytes = NOTHING
    this.#content.size = 0
  }
}

const readEvent = (json: Uint8Array): unknown => {
  try {
    return JSON.parse(Buffer.from(json).toString('utf8'))
  } catch {
    return undefined // Cut short on keeping, or sound only at first sight.
  }
}
