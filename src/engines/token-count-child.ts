import { type CountText, countInPieces, type Encoding } from './token-pieces.ts'

/**
 * The process that counts tokens for one worker: what is asked over the channel is answered in turn. It lives as long as
 * the worker that started it, and is the only one that loads an encoding's ranks (0.3 to 0.7 s, 60 to 100 MB).
 */

/** A question, and its answer: the tokens of all texts together, -1 if they could not be counted. */
export type CountQuestion = { readonly id: number; readonly encoding: Encoding; readonly texts: readonly string[] }
export type CountAnswer = { readonly id: number; readonly tokens: number }

/** Words whose tokens are remembered; the library's 100,000 of up to a whole piece each could be large. */
const WORDS_REMEMBERED = 4_096
/** What looks like a special token is text of whoever wrote it. */
const AS_TEXT = { disallowedSpecial: new Set<string>() }

const loaded = new Map<Encoding, Promise<CountText>>()

const LOADERS = {
  o200k_base: () => import('gpt-tokenizer/encoding/o200k_base'),
  cl100k_base: () => import('gpt-tokenizer/encoding/cl100k_base'),
} as const satisfies Record<Encoding, unknown>

const load = async (encoding: Encoding): Promise<CountText> => {
  const { countTokens, setMergeCacheSize } = await LOADERS[encoding]()
  setMergeCacheSize(WORDS_REMEMBERED)
  return (text) => countTokens(text, AS_TEXT)
}

const answer = async ({ id, encoding, texts }: CountQuestion): Promise<CountAnswer> => {
  let counting = loaded.get(encoding)
  if (counting === undefined) loaded.set(encoding, (counting = load(encoding)))
  try {
    const count = await counting
    return { id, tokens: texts.reduce((sum, text) => sum + countInPieces(text, count), 0) }
  } catch {
    return { id, tokens: -1 } // The worker estimates instead, as without this process.
  }
}

process.on('message', (question: CountQuestion) => {
  void answer(question).then((told) => process.send?.(told))
})
process.on('disconnect', () => process.exit(0))
// A terminal tells the whole group; the worker may still have something to count.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => undefined)
