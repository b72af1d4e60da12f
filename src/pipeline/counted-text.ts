import type { Engine } from '../balance/catalogue.ts'
import { closeJson } from '../engines/half-json.ts'
import type { Call, Routed } from './call.ts'
import { estimated, streamTokens, type Tokens, tokensOf } from './estimate.ts'
import { generatedIn, textsOf } from './generated-text.ts'
import type { House } from './house.ts'
import { promptTokens } from './intent.ts'
import type { WholeAnswer } from './outcome.ts'
import type { Way } from './splice-stream.ts'
import { type Standing, splicedUsage } from './spliced-usage.ts'
import type { StreamSource } from './stream-source.ts'

/** A piece of a text that still grows may wait so long for its count. */
const PIECE_MS = 15_000
/** How long the end of a call waits for a count: nobody is there, a client waits for its last bytes, the worker is to go. */
const WAIT_MS = { alone: 10_000, heard: 2_000, leaving: 1_000 }

/** One engine's part of a streamed answer, and the tokens of it that the engine did not count itself. */
export class CountedPart {
  readonly #call: Call
  readonly #house: House
  readonly #source: StreamSource
  /** How it was asked for; undefined for the first part. */
  readonly #way: Way | undefined
  /** Pieces of a long text, being counted while it goes on; all of the text since the engine told so often. */
  #pieces: Promise<number | undefined>[] = []
  #told = 0
  #counted: number | undefined

  constructor(call: Call, house: House, source: StreamSource, way: Way | undefined) {
    this.#call = call
    this.#house = house
    this.#source = source
    this.#way = way
  }

  /** True if it has text that is to be counted here. */
  get due(): boolean {
    const { counted, diverged, text } = this.#source
    return !counted && !diverged && text.bytes > 0
  }

  /** What the client has with this part, and had `before` it; by events and bytes as long as nothing else is known. */
  standing(before: Standing | undefined, prompt_tokens: number): Standing {
    const { usage, text, diverged } = this.#source
    const counted = this.#counted ?? streamTokens(text.events, text.bytes)
    const exact = this.#source.counted
    const own = usage && {
      // What was generated since the engine told comes on top.
      tokens: exact ? usage : { ...usage, completion_tokens: usage.completion_tokens + counted },
      by_engine: exact,
    }
    if (before !== undefined && this.#way !== undefined) return splicedUsage(this.#way, before, own, counted, diverged)
    return own ?? { tokens: estimated(prompt_tokens, counted), by_engine: false }
  }

  /** Has counted what is not to be kept. */
  follow(): void {
    const { text } = this.#source
    if (text.told !== this.#told) {
      this.#told = text.told
      this.#pieces = []
    }
    for (const piece of text.parts()) this.#pieces.push(count(this.#call, this.#house, [piece], PIECE_MS))
  }

  /** Has all its text counted, which is not kept any longer; if that is not done in time, nothing changes. */
  async settle(within_ms: number): Promise<void> {
    this.follow()
    const { text } = this.#source
    const rest = text.take()
    if (text.unread_bytes > 0) return
    const pieces = [...this.#pieces, rest.length === 0 ? 0 : count(this.#call, this.#house, rest, within_ms)]
    const counts = await Promise.race([Promise.all(pieces), Bun.sleep(within_ms).then(() => [undefined])])
    if (!counts.includes(undefined)) this.#counted = counts.reduce<number>((sum, each) => sum + each!, 0)
  }
}

/** Counts texts; at once undefined where nothing can count. */
const count = async (
  call: Call,
  { counter }: House,
  texts: readonly string[],
  within_ms: number,
): Promise<number | undefined> => counter?.count(call.model!.config.tokenizer, texts, within_ms)

/** How long the end of a call may wait for a count. */
export const countWaitMs = (call: Call, house: House): number =>
  house.leaving ? WAIT_MS.leaving : call.client_gone ? WAIT_MS.alone : WAIT_MS.heard

/** Tokens of a whole answer: as the engine counted them, else by the size of the texts. */
export const wholeTokens = ({ facts }: WholeAnswer, call: Routed): Tokens =>
  facts.usage ?? estimated(promptTokens(call), tokensOf(facts.text_bytes + facts.reasoning_bytes + facts.tool_bytes))

/** Tokens of a whole answer whose engine did not count them. */
export const countedWhole = async (answer: WholeAnswer, call: Routed, house: House): Promise<Tokens> => {
  const texts = house.counter && textsOf(answer.bytes)?.map(([, text]) => text)
  const tokens = texts?.length ? await count(call, house, texts, countWaitMs(call, house)) : undefined
  return tokens === undefined ? wholeTokens(answer, call) : estimated(promptTokens(call), tokens)
}

/** Tokens of what came of a whole answer that broke off; 0 if nothing of its text did. */
export const countedHalf = async (half: Uint8Array, call: Routed, house: House): Promise<number> => {
  const texts = generatedIn(closeJson(half))?.map(([, text]) => text) ?? []
  if (texts.length === 0) return 0
  const tokens = await count(call, house, texts, countWaitMs(call, house))
  return tokens ?? texts.reduce((sum, text) => sum + tokensOf(Buffer.byteLength(text)), 0)
}

/** Engines that ended an answer without usage. */
const silent = new WeakSet<Engine>()

/** An engine did not count a whole answer, and is not expected to count the next. */
export const isSilent = (engine: Engine | undefined): void => {
  if (engine !== undefined) silent.add(engine)
}

/** Has the counter loaded, if the engine is not expected to count: its client is not to wait for that. */
export const expectCount = (call: Call, { counter }: House): void => {
  const { target, model } = call
  if (target !== undefined && model !== undefined && silent.has(target.engine)) counter?.warm(model.config.tokenizer)
}
