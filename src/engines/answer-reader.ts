import { type AnswerFacts, readAnswer } from './openai-events.ts'
import { bytesAre, skipString } from './json-skip.ts'
import { textBytes } from './prompt-size.ts'

/** An event with one text in it: all that stands before and after the text, the quotes included. */
type Form = { readonly before: Uint8Array; readonly after: Uint8Array; readonly facts: AnswerFacts }

/**
 * Reads the events of one stream, as {@link readAnswer} does. They differ from one to the next in their text alone, so
 * the last one that was walked through is kept as a form: where the bytes around the text are the same, only the text is
 * looked at. What it answers holds until the next one is read.
 */
export class AnswerReader {
  #form: Form | undefined

  read(bytes: Uint8Array, start: number, end: number): AnswerFacts {
    const form = this.#form
    if (form !== undefined && fill(form, bytes, start, end)) return form.facts
    const facts = readAnswer(bytes, start, end)
    if (isForm(facts, bytes)) {
      const { text_start, text_end } = facts
      this.#form = { before: bytes.slice(start, text_start + 1), after: bytes.slice(text_end - 1, end), facts }
    }
    return facts
  }
}

/** True if one plain text is all that the event has to tell. */
const isForm = (facts: AnswerFacts, bytes: Uint8Array): boolean =>
  facts.texts === 1 &&
  facts.text_kind !== 'other' &&
  bytes[facts.text_start] === 0x22 &&
  facts.choices === 1 &&
  facts.finishes.length === 0 &&
  facts.tool_bytes === 0 &&
  facts.usage_start < 0 &&
  facts.error === undefined &&
  !facts.malformed

/** Puts what is new of an event into the form's facts; false if it is not of that form, and then nothing has changed. */
const fill = ({ before, after, facts }: Form, bytes: Uint8Array, start: number, end: number): boolean => {
  const text = start + before.length
  if (text + after.length > end || !bytesAre(bytes, start, text, before)) return false
  const text_end = skipString(bytes, text, end)
  if (!bytesAre(bytes, text_end - 1, end, after)) return false
  const size = textBytes(bytes, text, text_end - 1)
  // A text that is empty counts as none.
  if (size === 0) return false
  const moved = text - 1 - facts.text_start
  if (facts.model_start >= 0) {
    const by = facts.model_start < facts.text_start ? moved : text_end - facts.text_end
    facts.model_start += by
    facts.model_end += by
  }
  facts.text_start = text - 1
  facts.text_end = text_end
  if (facts.text_bytes > 0) facts.text_bytes = size
  else facts.reasoning_bytes = size
  return true
}
