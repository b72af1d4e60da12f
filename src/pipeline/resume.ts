import { skipSpace } from '../engines/json-skip.ts'
import { jsonScanner } from '../engines/json-scan.ts'
import { addMembers, type Edit, replaceValue, setMember } from '../engines/json-splice.ts'
import { type JsonRange, readInteger, readString } from '../engines/json-value.ts'
import { Failure } from '../base/failure.ts'
import type { Routed } from './call.ts'
import type { Delivered } from './delivered.ts'

/** How a broken answer may go on. */
export type Plan = {
  /** What makes the request one for the rest of the answer; undefined if only a replay may tell the rest. */
  readonly prefix: readonly Edit[] | undefined
}

/** With one of these the rest cannot be asked for: figures and grammars begin anew, or the prompt comes first. */
const WHOLE_ONLY = [
  'continue_final_message',
  'logprobs',
  'top_logprobs',
  'prompt_logprobs',
  'response_format',
  'structured_outputs',
  'guided_json',
  'guided_regex',
  'guided_choice',
  'guided_grammar',
  'tool_choice',
  'function_call',
  'echo',
  'suffix',
  'best_of',
  'use_beam_search',
] as const
const TOKEN_LIMITS = ['max_tokens', 'max_completion_tokens'] as const
const PATHS = [
  'messages',
  'prompt',
  'audio',
  'add_generation_prompt',
  'min_tokens',
  ...TOKEN_LIMITS,
  ...WHOLE_ONLY,
] as const
type Path = (typeof PATHS)[number]

const scanBody = jsonScanner<Path>(PATHS)

/** How the answer to a call may go on; undefined if it cannot. `tokens` is what was delivered of it. */
export const planOf = (call: Routed, delivered: Delivered, tokens: number): Plan | undefined => {
  const { bytes } = call.body
  const scan = scanBody(bytes)
  if (!delivered.whole || scan instanceof Failure || isSet(scan.values.audio)) return undefined
  if (delivered.texts() === undefined) return undefined
  const { values, root } = scan
  const barred = WHOLE_ONLY.some((name) => isSet(values[name]) && !isHarmless(readString(bytes, values[name])))
  const text = delivered.contentOnly()
  if (barred || text === undefined || call.body.n !== 1) return { prefix: undefined }
  const limits = tokens < (call.held?.ceiling_tokens ?? Infinity) ? lessTokens(bytes, values, tokens) : undefined
  const asked = call.arrival.endpoint.prompt_field === 'messages' ? inChat : inPrompt
  const edits = limits && asked(bytes, root, values, text)
  return { prefix: edits && [...edits, ...limits] }
}

type Values = { readonly [Name in Path]: JsonRange | undefined }

const isSet = (range: JsonRange | undefined): boolean =>
  range !== undefined && range.type !== 'null' && range.type !== 'false'

/** The tool choices that force nothing. */
const isHarmless = (text: string | undefined): boolean => text === 'auto' || text === 'none'

/** The limits without what was delivered; undefined if nothing is left of one. */
const lessTokens = (bytes: Uint8Array, values: Values, tokens: number): Edit[] | undefined => {
  const edits: Edit[] = []
  for (const name of TOKEN_LIMITS) {
    const range = values[name]
    const most = readInteger(bytes, range)
    // A number below 1 bounds nothing, and stays.
    if (range === undefined || most === undefined || most < 1) continue
    if (most <= tokens) return undefined
    edits.push(replaceValue(range, String(most - tokens)))
  }
  const least = readInteger(bytes, values.min_tokens)
  if (least !== undefined) edits.push(replaceValue(values.min_tokens!, String(Math.max(0, least - tokens))))
  return edits
}

/** The text so far as the start of the assistant's message, as vLLM takes it. */
const inChat = (bytes: Uint8Array, root: JsonRange, values: Values, text: Uint8Array): Edit[] | undefined => {
  const { messages } = values
  if (messages?.type !== 'array') return undefined
  const last = messages.end - 1
  if (skipSpace(bytes, messages.start + 1, last) >= last) return undefined
  const message = Buffer.concat([Buffer.from(',{"role":"assistant","content":"'), text, Buffer.from('"}')])
  return [
    { start: last, end: last, with: message },
    addMembers(bytes, root, [['continue_final_message', 'true']]),
    setMember(bytes, root, 'add_generation_prompt', values.add_generation_prompt, 'false'),
  ]
}

/** The text so far as the end of the prompt. Without a limit of its own the engine's default would count anew. */
const inPrompt = (_bytes: Uint8Array, _root: JsonRange, values: Values, text: Uint8Array): Edit[] | undefined => {
  const { prompt, max_tokens } = values
  if (prompt?.type !== 'string' || max_tokens?.type !== 'number') return undefined
  return [{ start: prompt.end - 1, end: prompt.end - 1, with: text }]
}
