import type { Prompt } from './prompt.ts'
import type { Body, Tool } from './request.ts'
import { stopsOf } from './request.ts'
import { sampleOf } from './sample.ts'
import { rollFrom, story, tokensOf } from './text.ts'

/** One answer, decided before its first token leaves: what is said, in which pieces, and why it ends. */
export type Plan = {
  readonly tokens: readonly string[]
  readonly finish: 'stop' | 'length' | 'tool_calls'
  /** The stop string that ended it. */
  readonly stop_reason: string | null
  /** Set if the tokens are the arguments of a call of this function. */
  readonly tool: { readonly id: string; readonly name: string } | undefined
}

type Wanted = {
  readonly body: Body
  readonly prompt: Prompt
  readonly tools: readonly Tool[]
  readonly tokens_max: number
}

/** The answer number `choice`. Depends on the prompt, the seed and the choice alone: not on the model or the time. */
export const planOf = (wanted: Wanted, choice: number): Plan => {
  const { body, prompt, tools } = wanted
  const given = typeof body['seed'] === 'number' ? body['seed'] : 0
  const seed = Bun.hash.xxHash32(prompt.basis, (given + choice) >>> 0)
  const tool = toolToCall(body, prompt, tools)
  if (tool) return toolPlan(tool, seed, wanted.tokens_max)
  const fixed = fixedText(body, prompt, seed)
  const tokens = fixed === undefined ? storyTokens(wanted, seed) : rest(tokensOf(fixed), prompt.continued)
  const cut = cutAt(tokens.slice(0, wanted.tokens_max), stopsOf(body))
  if (cut) return { tokens: cut.tokens, finish: 'stop', stop_reason: cut.stop, tool: undefined }
  const finish = tokens.length > wanted.tokens_max ? 'length' : 'stop'
  return { tokens: tokens.slice(0, wanted.tokens_max), finish, stop_reason: null, tool: undefined }
}

/**
 * The function to call. `required` or a name always calls; `auto` calls when the last message is the user's and speaks
 * of the function: it contains a word of its name of at least four letters.
 */
const toolToCall = (body: Body, prompt: Prompt, tools: readonly Tool[]): Tool | undefined => {
  const choice = body['tool_choice'] ?? 'auto'
  if (tools.length === 0 || choice === 'none') return undefined
  const asked = prompt.asked.toLowerCase()
  const speaksOf = ({ name }: Tool) =>
    name.split(/[^a-zA-Z]+/).some((word) => word.length > 3 && asked.includes(word.toLowerCase()))
  const spoken = tools.find(speaksOf)
  if (choice === 'auto') return prompt.last_role === 'user' ? spoken : undefined
  if (choice === 'required') return spoken ?? tools[0]
  const named = (choice as { function: { name: string } }).function.name
  return tools.find((tool) => tool.name === named)
}

const toolPlan = (tool: Tool, seed: number, tokens_max: number): Plan => {
  const tokens = tokensOf(JSON.stringify(sampleOf(tool.parameters ?? { type: 'object' }, rollFrom(seed))))
  const id = `call_${seed.toString(16).padStart(8, '0')}`
  const finish = tokens.length > tokens_max ? 'length' : 'tool_calls'
  return { tokens: tokens.slice(0, tokens_max), finish, stop_reason: null, tool: { id, name: tool.name } }
}

/** JSON if the client wants JSON; what stands behind a leading `echo ` if it asks for an echo; else undefined. */
const fixedText = (body: Body, prompt: Prompt, seed: number): string | undefined => {
  const format = body['response_format'] as { type?: unknown; json_schema?: { schema?: unknown } } | null | undefined
  if (format?.type === 'json_schema') return JSON.stringify(sampleOf(format.json_schema?.schema, rollFrom(seed)))
  if (format?.type === 'json_object') {
    const text = story(seed)
    const said = Array.from({ length: text.natural_tokens }, (_, index) => text.at(index)).join('')
    return JSON.stringify({ answer: said, sentences: said.split('. ').length })
  }
  return prompt.asked.startsWith('echo ') ? prompt.asked.slice(5) : undefined
}

/** Tokens of a story, after the part that the client has already; at most one more than may be sent. */
const storyTokens = ({ body, prompt, tokens_max }: Wanted, seed: number): string[] => {
  const endless = body['ignore_eos'] === true
  const least = typeof body['min_tokens'] === 'number' ? body['min_tokens'] : 0
  let text = story(seed)
  let at = 0
  let had = 0
  const tokens: string[] = []
  while (had < prompt.continued.length) {
    const token = text.at(at++)
    const left = prompt.continued.length - had
    if (!prompt.continued.startsWith(token.slice(0, left), had)) {
      // Not a text of this engine: another story begins where it stops.
      text = story(Bun.hash.xxHash32(prompt.continued, seed))
      at = 1
      tokens.push(/\s$/.test(prompt.continued) ? text.at(0) : ` ${text.at(0)}`)
      break
    }
    had += token.length
    if (token.length > left) tokens.push(token.slice(left))
  }
  const end = endless ? Number.POSITIVE_INFINITY : Math.max(text.natural_tokens, at + least)
  while (at < end && tokens.length <= tokens_max) tokens.push(text.at(at++))
  return tokens
}

/** The tokens of a fixed text after the part that the client has already, if it is the same text. */
const rest = (tokens: readonly string[], continued: string): readonly string[] => {
  if (continued === '') return tokens
  const text = tokens.join('')
  return text.startsWith(continued) ? tokensOf(text.slice(continued.length)) : tokens
}

/** The tokens before the first stop string, and which it was. */
const cutAt = (tokens: readonly string[], stops: readonly string[]): { tokens: string[]; stop: string } | undefined => {
  if (stops.length === 0) return undefined
  const text = tokens.join('')
  const found = stops.map((stop) => ({ stop, at: text.indexOf(stop) })).filter(({ at }) => at >= 0)
  if (found.length === 0) return undefined
  const first = found.reduce((least, other) => (other.at < least.at ? other : least))
  const kept: string[] = []
  let left = first.at
  for (const token of tokens) {
    if (left <= 0) break
    kept.push(token.slice(0, left))
    left -= token.length
  }
  return { tokens: kept, stop: first.stop }
}
