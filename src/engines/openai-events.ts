import { limits } from '../base/limits.ts'
import { type AnswerError, readError } from './answer-error.ts'
import { bytesAre, skipSpace, skipValue } from './json-skip.ts'
import { decodeText, jsonRange, readJson } from './json-value.ts'
import { walkArray, walkObject } from './json-walk.ts'
import { promptSize, textBytes } from './prompt-size.ts'
import { readUsage, type Usage } from './usage.ts'

/** What a relay must know of one OpenAI-type JSON answer or one event of a stream of them. */
export type AnswerFacts = {
  /** `[DONE]`. Nothing else is set then. */
  done: boolean
  /** The bytes are not one JSON object. What was read before the fault is set. */
  malformed: boolean
  /** The error it carries, and nothing else if there is none. */
  error: AnswerError | undefined
  /** The `usage` that is not null; the last one where several stand. */
  usage: Usage | undefined
  /** Where the value of that `usage` stands, as an object; -1 if it is missing or null. */
  usage_start: number
  usage_end: number
  /** Where the value of `model` stands, quotes included; -1 if it is missing. */
  model_start: number
  model_end: number
  /** It carries usage, and `choices` is empty or missing (vLLM, OpenAI with `include_usage`). */
  usage_only: boolean
  /** The highest index of a choice in it; -1 if it has no choice. */
  choice_index_max: number
  /** Choices that finish here. */
  finishes: readonly Finish[]
  /** UTF-8 bytes generated: text and refusal, reasoning, names and arguments of tool calls. */
  text_bytes: number
  reasoning_bytes: number
  tool_bytes: number
  /** Elements of `choices`. */
  choices: number
  /** Values with generated text in them, tool calls aside; the last one that is a plain string: its range with quotes. */
  texts: number
  text_kind: TextKind
  text_start: number
  text_end: number
}

/** What a generated text is: of the answer, of the reasoning before it, or anything else (a refusal, parts). */
export type TextKind = 'content' | 'reasoning' | 'other'

export type Finish = { readonly index: number; readonly reason: string }

/** The walk through one answer: what it has found, and where it is. */
type Walk = {
  readonly bytes: Uint8Array
  readonly end: number
  readonly facts: AnswerFacts
  /** `"object":"error"`: the answer is the error object itself (vLLM). */
  is_error: boolean
  /** Of the choice at hand. */
  index: number
  reason: string
  /** Of the delta at hand: engines repeat one reasoning text under two names. */
  reasoning: number
}

const key = (name: string): Uint8Array => Buffer.from(name)
const DONE = key('[DONE]')
const [MODEL, CHOICES, USAGE, ERROR, OBJECT] = [key('model'), key('choices'), key('usage'), key('error'), key('object')]
const [INDEX, DELTA, MESSAGE, TEXT, FINISH] = [
  key('index'),
  key('delta'),
  key('message'),
  key('text'),
  key('finish_reason'),
]
const [CONTENT, REFUSAL, REASONING, REASONING_CONTENT] = [
  key('content'),
  key('refusal'),
  key('reasoning'),
  key('reasoning_content'),
]
const [TOOLS, FUNCTION_CALL, FUNCTION, CUSTOM] = [
  key('tool_calls'),
  key('function_call'),
  key('function'),
  key('custom'),
]
const [NAME, ARGUMENTS, INPUT] = [key('name'), key('arguments'), key('input')]
const NO_FINISH: readonly Finish[] = []

/**
 * Reads bytes `[start, end)`: the data of a stream event, or a whole JSON answer. Walks once over the bytes and decodes
 * only what is rare: usage, errors, finish reasons. Keys that are written with escapes are not recognised.
 */
export const readAnswer = (bytes: Uint8Array, start = 0, end = bytes.length): AnswerFacts => {
  const facts: AnswerFacts = {
    done: false,
    malformed: false,
    error: undefined,
    usage: undefined,
    usage_start: -1,
    usage_end: -1,
    model_start: -1,
    model_end: -1,
    usage_only: false,
    choice_index_max: -1,
    finishes: NO_FINISH,
    text_bytes: 0,
    reasoning_bytes: 0,
    tool_bytes: 0,
    choices: 0,
    texts: 0,
    text_kind: 'other',
    text_start: -1,
    text_end: -1,
  }
  const pos = skipSpace(bytes, start, end)
  if (bytes[pos] !== 0x7b || pos >= end) {
    facts.done = isDone(bytes, pos, end)
    facts.malformed = !facts.done
    return facts
  }
  const walk: Walk = { bytes, end, facts, is_error: false, index: 0, reason: '', reasoning: 0 }
  const after = walkObject(walk, pos, limits.json_depth_max, answerMember)
  facts.malformed = after < 0 || skipSpace(bytes, after, end) !== end
  if (facts.usage_start >= 0) {
    facts.usage_only = facts.choices === 0
    facts.usage = readUsage(readJson(bytes, { start: facts.usage_start, end: facts.usage_end }))
  }
  if (walk.is_error && !facts.malformed) facts.error ??= readError(bytes, pos, after)
  return facts
}

const isDone = (bytes: Uint8Array, pos: number, end: number): boolean =>
  pos + DONE.length <= end &&
  bytesAre(bytes, pos, pos + DONE.length, DONE) &&
  skipSpace(bytes, pos + DONE.length, end) === end

/** A member of the answer itself. */
const answerMember = (walk: Walk, name: number, name_end: number, pos: number, depth: number): number => {
  const { bytes, facts } = walk
  if (bytesAre(bytes, name, name_end, CHOICES) && bytes[pos] === 0x5b) return walkArray(walk, pos, depth, choiceAt)
  const end = skipValue(bytes, pos, walk.end, depth)
  if (end < 0) return end
  if (bytesAre(bytes, name, name_end, MODEL)) {
    facts.model_start = pos
    facts.model_end = end
  } else if (bytesAre(bytes, name, name_end, USAGE)) {
    if (bytes[pos] === 0x7b) {
      facts.usage_start = pos
      facts.usage_end = end
    }
  } else if (bytesAre(bytes, name, name_end, ERROR)) {
    facts.error = readError(bytes, pos, end) ?? facts.error
  } else if (bytesAre(bytes, name, name_end, OBJECT) && bytesAre(bytes, pos + 1, end - 1, ERROR)) {
    walk.is_error = true
  }
  return end
}

const choiceAt = (walk: Walk, pos: number, depth: number): number => {
  const { bytes, facts } = walk
  walk.index = facts.choices++
  walk.reason = ''
  const end = bytes[pos] === 0x7b ? walkObject(walk, pos, depth, choiceMember) : skipValue(bytes, pos, walk.end, depth)
  if (walk.index > facts.choice_index_max) facts.choice_index_max = walk.index
  if (walk.reason !== '') facts.finishes = [...facts.finishes, { index: walk.index, reason: walk.reason }]
  return end
}

const choiceMember = (walk: Walk, name: number, name_end: number, pos: number, depth: number): number => {
  const { bytes, facts } = walk
  if (bytes[pos] === 0x7b && (bytesAre(bytes, name, name_end, DELTA) || bytesAre(bytes, name, name_end, MESSAGE))) {
    walk.reasoning = 0
    const after = walkObject(walk, pos, depth, deltaMember)
    facts.reasoning_bytes += walk.reasoning
    return after
  }
  const end = skipValue(bytes, pos, walk.end, depth)
  if (end < 0) return end
  if (bytesAre(bytes, name, name_end, INDEX)) walk.index = smallInteger(bytes, pos, end) ?? walk.index
  else if (bytesAre(bytes, name, name_end, TEXT)) facts.text_bytes += textAt(walk, pos, end, 'content')
  else if (bytesAre(bytes, name, name_end, FINISH) && bytes[pos] === 0x22) {
    walk.reason = decodeText(bytes, pos + 1, end - 1).slice(0, limits.name_bytes_max)
  }
  return end
}

const deltaMember = (walk: Walk, name: number, name_end: number, pos: number, depth: number): number => {
  const { bytes, facts } = walk
  if (bytes[pos] === 0x5b && bytesAre(bytes, name, name_end, TOOLS)) return walkArray(walk, pos, depth, toolAt)
  if (bytes[pos] === 0x7b && bytesAre(bytes, name, name_end, FUNCTION_CALL)) return toolAt(walk, pos, depth)
  const end = skipValue(bytes, pos, walk.end, depth)
  if (end < 0) return end
  if (bytesAre(bytes, name, name_end, CONTENT)) facts.text_bytes += textAt(walk, pos, end, 'content')
  else if (bytesAre(bytes, name, name_end, REFUSAL)) facts.text_bytes += textAt(walk, pos, end, 'other')
  else if (bytesAre(bytes, name, name_end, REASONING_CONTENT) || bytesAre(bytes, name, name_end, REASONING)) {
    walk.reasoning = Math.max(walk.reasoning, textAt(walk, pos, end, 'reasoning'))
  }
  return end
}

const toolAt = (walk: Walk, pos: number, depth: number): number =>
  walk.bytes[pos] === 0x7b ? walkObject(walk, pos, depth, toolMember) : skipValue(walk.bytes, pos, walk.end, depth)

const toolMember = (walk: Walk, name: number, name_end: number, pos: number, depth: number): number => {
  const { bytes, facts } = walk
  if (bytesAre(bytes, name, name_end, FUNCTION) || bytesAre(bytes, name, name_end, CUSTOM))
    return toolAt(walk, pos, depth)
  const end = skipValue(bytes, pos, walk.end, depth)
  if (end < 0) return end
  if (
    bytesAre(bytes, name, name_end, ARGUMENTS) ||
    bytesAre(bytes, name, name_end, NAME) ||
    bytesAre(bytes, name, name_end, INPUT)
  ) {
    facts.tool_bytes += sizeAt(bytes, pos, end)
  }
  return end
}

/** Takes note of a value with generated text; its size. */
const textAt = ({ bytes, facts }: Walk, start: number, end: number, kind: TextKind): number => {
  const size = sizeAt(bytes, start, end)
  if (size === 0) return 0
  facts.texts++
  facts.text_kind = bytes[start] === 0x22 ? kind : 'other'
  facts.text_start = start
  facts.text_end = end
  return size
}

/** UTF-8 bytes of the text in a valid value: a string, or parts with strings in them. */
const sizeAt = (bytes: Uint8Array, start: number, end: number): number => {
  if (bytes[start] === 0x22) return textBytes(bytes, start + 1, end - 1)
  return bytes[start] === 0x6e ? 0 : promptSize(bytes, jsonRange(bytes, start, end, -1)).text_bytes
}

/** The index of a choice: up to three digits, else undefined. */
const smallInteger = (bytes: Uint8Array, start: number, end: number): number | undefined => {
  if (end - start > 3) return undefined
  let value = 0
  for (let at = start; at < end; at++) {
    const digit = bytes[at]! - 0x30
    if (digit < 0 || digit > 9) return undefined
    value = value * 10 + digit
  }
  return value
}
