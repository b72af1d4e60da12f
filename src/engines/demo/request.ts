import { Refusal } from './refusal.ts'
import { demo_limits } from './settings.ts'
import type { Message } from './prompt.ts'

/** A parsed body. Unknown fields are ignored, as vLLM does; null means absent. */
export type Body = Readonly<Record<string, unknown>>

type Rule = readonly [holds: (value: unknown) => boolean, wants: string]

const isInteger = (least: number, most: number): Rule => [
  (value) => Number.isInteger(value) && (value as number) >= least && (value as number) <= most,
  `an integer from ${least} to ${most}`,
]
const isNumber = (least: number, most: number): Rule => [
  (value) => typeof value === 'number' && value >= least && value <= most,
  `a number from ${least} to ${most}`,
]
const isBoolean: Rule = [(value) => typeof value === 'boolean', 'a boolean']
const isObject: Rule = [(value) => typeof value === 'object' && !Array.isArray(value), 'an object']
const isStop: Rule = [
  (value) => typeof value === 'string' || (isStrings(value) && value.length <= demo_limits.stops_max),
  `a string or a list of at most ${demo_limits.stops_max} strings`,
]
const isStrings = (value: unknown): value is readonly string[] =>
  Array.isArray(value) && value.every((item) => typeof item === 'string')

const TOKENS = isInteger(1, 10_000_000)

/** The fields that the demo engine reads and what they must be. */
const FIELDS: readonly (readonly [field: string, rule: Rule])[] = [
  ['max_tokens', TOKENS],
  ['max_completion_tokens', TOKENS],
  ['min_tokens', isInteger(0, 10_000_000)],
  ['n', isInteger(1, demo_limits.choices_max)],
  ['temperature', isNumber(0, 2)],
  ['top_p', isNumber(0, 1)],
  ['seed', isInteger(Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER)],
  ['stream', isBoolean],
  ['stream_options', isObject],
  ['stop', isStop],
  ['ignore_eos', isBoolean],
  ['continue_final_message', isBoolean],
  ['add_generation_prompt', isBoolean],
  ['top_logprobs', isInteger(0, 20)],
  ['response_format', isObject],
]

/** Reads a body: a JSON object whose known fields are what they must be. */
export const readBody = (text: string): Body | Refusal => {
  let body: unknown
  try {
    body = JSON.parse(text)
  } catch (cause) {
    return new Refusal(400, `The body is not valid JSON: ${cause instanceof Error ? cause.message : String(cause)}`)
  }
  if (typeof body !== 'object' || body === null || Array.isArray(body))
    return new Refusal(400, 'The body must be a JSON object.')
  const found = body as Body
  for (const [field, [holds, wants]] of FIELDS) {
    const value = found[field]
    if (value !== undefined && value !== null && !holds(value))
      return new Refusal(400, `${field} must be ${wants}, found ${JSON.stringify(value)?.slice(0, 80)}.`, field)
  }
  if (isSet(found['stream_options']) && found['stream'] !== true)
    return new Refusal(400, 'stream_options needs stream to be true.', 'stream_options')
  return found
}

const isSet = (value: unknown): boolean => value !== undefined && value !== null

/** The messages of a chat, or what is wrong with them. */
export const readMessages = (body: Body): readonly Message[] | Refusal => {
  const messages = body['messages']
  if (!Array.isArray(messages) || messages.length === 0)
    return new Refusal(400, 'messages must be a list of at least one message.', 'messages')
  for (const [index, message] of (messages as unknown[]).entries()) {
    const fault = faultIn(message)
    if (fault) return new Refusal(400, `messages[${index}]${fault}`, 'messages')
  }
  if (body['continue_final_message'] !== true) return messages as Message[]
  if (body['add_generation_prompt'] !== false)
    return new Refusal(400, 'continue_final_message needs add_generation_prompt to be false.', 'continue_final_message')
  if ((messages.at(-1) as Message).role !== 'assistant')
    return new Refusal(400, 'continue_final_message needs the last message to be an assistant message.', 'messages')
  return messages as Message[]
}

const ROLES = new Set(['system', 'developer', 'user', 'assistant', 'tool', 'function'])

const faultIn = (message: unknown): string | undefined => {
  if (typeof message !== 'object' || message === null) return ' must be an object.'
  const { role, content, tool_calls } = message as Message
  if (!ROLES.has(role)) return `.role must be one of ${[...ROLES].join(', ')}.`
  if (typeof content === 'string' || Array.isArray(content)) return undefined
  if (!isSet(content)) return role === 'assistant' || isSet(tool_calls) ? undefined : '.content is missing.'
  return '.content must be a string or a list of parts.'
}

export type Tool = { readonly name: string; readonly parameters: unknown }

/** The functions a chat offers, or what is wrong with them. */
export const readTools = (body: Body): readonly Tool[] | Refusal => {
  const tools = body['tools']
  const choice = body['tool_choice']
  if (isSet(tools) && !Array.isArray(tools)) return new Refusal(400, 'tools must be a list.', 'tools')
  const found: Tool[] = []
  for (const [index, tool] of ((tools ?? []) as { function?: { name?: unknown; parameters?: unknown } }[]).entries()) {
    const name = tool?.function?.name
    if (typeof name !== 'string') return new Refusal(400, `tools[${index}].function.name must be a string.`, 'tools')
    found.push({ name, parameters: tool.function?.parameters })
  }
  if (!isSet(choice) || choice === 'none' || choice === 'auto') return found
  if (found.length === 0) return new Refusal(400, 'tool_choice needs tools.', 'tool_choice')
  if (choice === 'required') return found
  const named = (choice as { function?: { name?: unknown } }).function?.name
  if (found.some((tool) => tool.name === named)) return found
  return new Refusal(400, 'tool_choice must be none, auto, required, or name one of the tools.', 'tool_choice')
}

/** `stop` as a list without empty strings. */
export const stopsOf = (body: Body): readonly string[] => {
  const stop = body['stop']
  if (typeof stop === 'string') return stop === '' ? [] : [stop]
  return isStrings(stop) ? stop.filter((text) => text !== '') : []
}

/** The bound on each answer that the client set, if it did. */
export const tokensMax = (body: Body): number | undefined =>
  (body['max_completion_tokens'] as number | null | undefined) ??
  (body['max_tokens'] as number | null | undefined) ??
  undefined
