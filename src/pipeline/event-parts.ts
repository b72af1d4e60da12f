import type { ToolCalls } from './tool-calls.ts'

/** The generated text in one parsed event, piece by piece, to be compared, cut and put together. */

export type Fields = Record<string, unknown>

/** One text of an event: which it belongs to, and how to put another in its place. */
export type Part = {
  /** The choice, and which of its texts: `0 content`, `0 reasoning`, `1 tool 2 arguments`, `1 tool 2.1 name`. */
  readonly channel: string
  readonly text: string
  set(text: string): void
}

/** A channel of a choice. */
export const channelOf = (index: number, kind: string): string => `${index} ${kind}`

export const fieldsOf = (value: unknown): Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Fields) : {}

export const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : [])

export const indexOf = (holder: Fields, position: number): number =>
  typeof holder['index'] === 'number' ? holder['index'] : position

/**
 * The texts of a choice of a stream, empty ones left out; undefined if it holds what is no text: it cannot be compared.
 * `calls` are the tool calls of the answer so far.
 */
export const partsOf = (choice: Fields, index: number, calls: ToolCalls): Part[] | undefined => {
  const parts: Part[] = []
  const add = (kind: string, holder: Fields, keys: readonly string[]): boolean => {
    const held = keys.filter((key) => holder[key] !== undefined && holder[key] !== null && holder[key] !== '')
    const text = held.length === 0 ? '' : holder[held[0]!]
    if (typeof text !== 'string') return false
    const set = (value: string) => held.forEach((key) => (holder[key] = value))
    if (text !== '') parts.push({ channel: channelOf(index, kind), text, set })
    return true
  }
  const delta = fieldsOf(choice['delta'])
  const sound =
    add('content', choice, ['text']) &&
    add('content', delta, ['content']) &&
    add('reasoning', delta, REASONING) &&
    add('refusal', delta, ['refusal']) &&
    delta['audio'] === undefined &&
    addTool(add, 'function', fieldsOf(delta['function_call'])) &&
    listOf(delta['tool_calls']).every((item, position) => {
      const call = fieldsOf(item)
      const made = [fieldsOf(call['function']), fieldsOf(call['custom'])]
      const begins = made.some(({ name }) => typeof name === 'string' && name !== '')
      const kind = `tool ${calls.nameOf(index, indexOf(call, position), begins ? call['id'] : undefined)}`
      return made.every((one) => addTool(add, kind, one))
    })
  return sound ? parts : undefined
}

/** Engines tell one reasoning text under either name, or under both. */
const REASONING = ['reasoning_content', 'reasoning']

type Add = (kind: string, holder: Fields, keys: readonly string[]) => boolean

const addTool = (add: Add, kind: string, made: Fields): boolean =>
  add(`${kind} name`, made, ['name']) && add(`${kind} arguments`, made, ['arguments', 'input'])
