import type { Delivered } from './delivered.ts'
import { type Fields, fieldsOf, indexOf, listOf, type Part, partsOf } from './event-parts.ts'
import { ToolCalls } from './tool-calls.ts'

/**
 * How an answer goes on at another engine. `prefix`: that engine was given the text so far and writes what follows.
 * `replay`: it was given the same request, and what it repeats is left out as long as it is the same.
 */
export type Way = 'prefix' | 'replay'

/** What stays as the first engine said it. */
const ENVELOPE = ['id', 'created', 'model', 'system_fingerprint'] as const

/** Makes the events of another engine's answer the rest of the first one's. */
export class Splice {
  /** The other answer is not the same as what the client has; nothing of it may go on. */
  diverged = false
  readonly #delivered: Delivered
  readonly #first: Fields
  readonly #usage: ((usage: Fields) => Fields) | undefined
  /** What a replay has still to say again, by channel; `at` is how much it did. */
  readonly #due: Map<string, { readonly text: string; at: number }>
  /** Choices that began before, and those that had ended. */
  readonly #begun: number
  readonly #finished: ReadonlySet<number>
  readonly #calls = new ToolCalls()

  /** `usage` makes the other engine's figures those of the whole answer; `alias` is the model's name for the client. */
  constructor(
    delivered: Delivered,
    way: Way,
    alias: string | undefined,
    usage: ((usage: Fields) => Fields) | undefined,
  ) {
    this.#delivered = delivered
    const first = delivered.first()
    this.#first = alias === undefined ? first : { ...first, model: alias }
    this.#usage = usage
    const due = way === 'replay' ? [...(delivered.texts() ?? [])] : []
    this.#due = new Map(due.map(([channel, text]) => [channel, { text, at: 0 }]))
    this.#begun = delivered.choice_max
    this.#finished = new Set(delivered.finished)
  }

  /** The event as the client gets it, as JSON, without its usage if so wished; undefined if it has nothing new for it. */
  rewrite(json: string, hides_usage = false): string | undefined {
    const event = readEvent(json)
    if (event === undefined) {
      this.diverged = true
      return undefined
    }
    for (const name of ENVELOPE) if (event[name] !== undefined) event[name] = this.#first[name] ?? event[name]
    if (hides_usage) delete event['usage']
    const usage = fieldsOf(event['usage'])
    if (this.#usage !== undefined && Object.keys(usage).length > 0) event['usage'] = this.#usage(usage)
    const choices = listOf(event['choices'])
    if (choices.length === 0) return JSON.stringify(event)
    const kept = choices.filter((item, position) => {
      const choice = fieldsOf(item)
      return this.#keeps(choice, indexOf(choice, position))
    })
    if (this.diverged || kept.length === 0) return undefined
    return JSON.stringify({ ...event, choices: kept })
  }

  /** True if all that the client has was said again, of the channels that begin so. */
  complete(channels = ''): boolean {
    for (const [channel, { text, at }] of this.#due) if (channel.startsWith(channels) && at < text.length) return false
    return true
  }

  /** Takes what is known out of a choice; false if nothing is left of it. */
  #keeps(choice: Fields, index: number): boolean {
    const parts = partsOf(choice, index, this.#calls)
    if (parts === undefined || this.diverged) return this.#diverge()
    const shown = parts.map((part) => this.#new(part, choice['logprobs'] ?? undefined))
    if (shown.includes(undefined)) return this.#diverge()
    const is_finish = typeof choice['finish_reason'] === 'string'
    const is_new = shown.some((text) => text !== '')
    const is_complete = this.complete(`${index} `)
    if ((is_finish || is_new) && !is_complete) return this.#diverge()
    const is_known = index <= this.#begun
    const had_ended = this.#finished.has(index)
    if (had_ended && is_new) return this.#diverge()
    if (index > this.#delivered.choice_max) this.#delivered.choice_max = index
    parts.forEach((part, nth) => {
      const text = shown[nth]!
      if (text !== part.text) part.set(text)
      if (text !== '') this.#delivered.add(part.channel, text)
    })
    const rest = is_known ? tidy(choice, this.#due.size > 0) : true
    if (had_ended) return false
    if (is_finish) this.#delivered.finished.add(index)
    return is_finish || is_new || (rest && is_complete)
  }

  /** What of a text the client does not have; undefined if it has something else. */
  #new({ channel, text }: Part, logprobs: unknown): string | undefined {
    const due = this.#due.get(channel)
    if (due === undefined || due.at >= due.text.length) return text
    const left = due.text.length - due.at
    if (text.length <= left) {
      if (!due.text.startsWith(text, due.at)) return undefined
      due.at += text.length
      return ''
    }
    // Figures for half a token do not exist.
    if (logprobs !== undefined || !text.startsWith(due.text.slice(due.at))) return undefined
    due.at = due.text.length
    return text.slice(left)
  }

  #diverge(): false {
    this.diverged = true
    return false
  }
}

const readEvent = (json: string): Fields | undefined => {
  try {
    return fieldsOf(JSON.parse(json))
  } catch {
    return undefined // Sound only at first sight.
  }
}

/** Takes the role, and tool calls that are known, out of a choice; true if it still says something beside texts. */
const tidy = (choice: Fields, is_replay: boolean): boolean => {
  const delta = fieldsOf(choice['delta'])
  delete delta['role']
  if (is_replay && Array.isArray(delta['tool_calls'])) {
    const calls = delta['tool_calls'].map(fieldsOf).filter((call) => {
      const made = fieldsOf(call['function'] ?? call['custom'])
      if (made['name'] === '') for (const name of ['id', 'type']) delete call[name]
      if (made['name'] === '') delete made['name']
      return Object.values(made).some((value) => value !== '') || call['id'] !== undefined
    })
    if (calls.length > 0) delta['tool_calls'] = calls
    else delete delta['tool_calls']
  }
  return Object.entries(delta).some(
    ([name, value]) =>
      value !== null && value !== '' && !TEXTS.includes(name) && !(Array.isArray(value) && value.length === 0),
  )
}

/** Looked at as texts already. */
const TEXTS = ['content', 'refusal', 'reasoning', 'reasoning_content', 'tool_calls', 'function_call']
