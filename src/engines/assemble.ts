/**
 * Puts the deltas of a stream together to the messages that a client ends up with, for logs and output rules. What is
 * relayed is never touched by it.
 */

/** A tool call, its pieces joined. */
export type ToolCall = { id: string; name: string; arguments: string }

export type AssembledMessage = {
  role: string
  content: string
  reasoning: string
  refusal: string
  readonly tool_calls: ToolCall[]
  /** Empty until the choice has finished. */
  finish_reason: string
}

/** Messages by the index of their choice. */
export type Assembly = {
  readonly messages: Map<number, AssembledMessage>
  /** Characters that may still be taken. */
  chars_left: number
  /** True if something was left out because there was no room. */
  is_cut: boolean
  /** Where each choice's tool calls go on: by the index that the engine gives, or by "last". */
  readonly open_calls: Map<string, ToolCall>
}

const CHOICES_MAX = 128
const CALLS_MAX = 1024

/** An empty assembly that takes at most `chars_max` characters of text. */
export const newAssembly = (chars_max: number): Assembly => ({
  messages: new Map(),
  chars_left: chars_max,
  is_cut: false,
  open_calls: new Map(),
})

/**
 * Takes one parsed event, of chat or text completions; a whole answer (`message` for `delta`) is taken as well. What is
 * not of the expected type is passed over.
 *
 * Tool calls: engines number parallel calls all 0, or not at all. A new call begins when an id appears that no call of
 * the message has yet, or, without ids, a name after a call's arguments are whole.
 */
export const addEvent = (assembly: Assembly, event: unknown): void => {
  listOf(fieldsOf(event)['choices']).forEach((item, position) => {
    const choice = fieldsOf(item)
    const index = typeof choice['index'] === 'number' ? choice['index'] : position
    const message = messageAt(assembly, index)
    if (!message) return
    const delta = fieldsOf(choice['delta'] ?? choice['message'])
    const take = (text: unknown): string => taken(assembly, text)
    if (message.role === '') message.role = take(delta['role'])
    message.content += take(delta['content']) + take(choice['text'])
    message.reasoning += take(delta['reasoning_content'] ?? delta['reasoning'])
    message.refusal += take(delta['refusal'])
    for (const call of listOf(delta['tool_calls'])) addCall(assembly, index, message, fieldsOf(call))
    if (typeof choice['finish_reason'] === 'string') message.finish_reason = take(choice['finish_reason'])
  })
}

const addCall = (assembly: Assembly, choice: number, message: AssembledMessage, delta: Fields): void => {
  const made = fieldsOf(delta['function'] ?? delta['custom'])
  const id = textOf(delta['id'])
  const name = textOf(made['name'])
  const slot = `${choice} ${typeof delta['index'] === 'number' ? delta['index'] : 'last'}`
  const open = assembly.open_calls.get(slot)
  const call =
    open && !isNew(open, id, name)
      ? open
      : ((id === '' ? undefined : message.tool_calls.find((one) => one.id === id)) ?? begin(assembly, message, slot))
  if (!call) return
  if (call.id === '') call.id = taken(assembly, id)
  if (call.name !== name) call.name += taken(assembly, name)
  call.arguments += taken(assembly, made['arguments'] ?? made['input'])
}

const isNew = (call: ToolCall, id: string, name: string): boolean => {
  if (id !== '' && call.id !== '') return id !== call.id
  // Without ids, a name after whole arguments begins another call; before, it is the same name said again.
  return name !== '' && call.arguments.endsWith('}') && isJson(call.arguments)
}

const isJson = (text: string): boolean => {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

const begin = (assembly: Assembly, message: AssembledMessage, slot: string): ToolCall | undefined => {
  if (message.tool_calls.length >= CALLS_MAX) {
    assembly.is_cut = true
    return undefined
  }
  const call: ToolCall = { id: '', name: '', arguments: '' }
  message.tool_calls.push(call)
  assembly.open_calls.set(slot, call)
  return call
}

const messageAt = (assembly: Assembly, index: number): AssembledMessage | undefined => {
  const known = assembly.messages.get(index)
  if (known) return known
  if (assembly.messages.size >= CHOICES_MAX) {
    assembly.is_cut = true
    return undefined
  }
  const message = { role: '', content: '', reasoning: '', refusal: '', tool_calls: [], finish_reason: '' }
  assembly.messages.set(index, message)
  return message
}

/** A text as far as there is room for it; empty for anything else. */
const taken = (assembly: Assembly, value: unknown): string => {
  const text = textOf(value)
  if (text.length <= assembly.chars_left) {
    assembly.chars_left -= text.length
    return text
  }
  assembly.is_cut = true
  const part = text.slice(0, assembly.chars_left)
  assembly.chars_left = 0
  return part
}

type Fields = Readonly<Record<string, unknown>>
const fieldsOf = (value: unknown): Fields => (typeof value === 'object' && value !== null ? (value as Fields) : {})
const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : [])
const textOf = (value: unknown): string => (typeof value === 'string' ? value : '')
