/** A number from 0 up to, not including, `below`. */
export type Roll = (below: number) => number

/** A reproducible source of numbers (Marsaglia's 32-bit xorshift). */
export const rollFrom = (seed: number): Roll => {
  let state = seed | 0 || 0x2545f491
  return (below) => {
    state ^= state << 13
    state ^= state >>> 17
    state ^= state << 5
    return (state >>> 0) % below
  }
}

const SUBJECTS = [
  'the quiet river',
  'a patient lock keeper',
  'the old stone weir',
  'a heron on the bank',
  'the morning mist',
  'a small green boat',
  'the café by the bridge',
  'the Rhône in spring',
  'an early ferry',
  'the careful engineer',
]
const VERBS = ['carries', 'measures', 'remembers', 'gathers', 'follows', 'greets', 'keeps', 'counts', 'shares']
const OBJECTS = [
  'every drop of rain',
  'the light from the hills',
  'a slow and even song',
  'the news from upstream',
  'the weight of the water',
  'a handful of leaves',
  'the names of the bridges',
  'each new season',
  'a promise of fair weather',
]
const TAILS = [
  'past the sleeping mill',
  'without losing count',
  'before the town wakes',
  'as the evening cools',
  'beyond the last lock',
  'while the reeds look on',
  'under a wide sky',
  'until the tide returns',
  '— and asks for nothing',
]

/** Words with their leading blank: each is a token. */
const words = (phrase: string): string[] => phrase.split(' ').map((word) => ` ${word}`)
const capital = (phrase: string): string => phrase.charAt(0).toUpperCase() + phrase.slice(1)

const openings = SUBJECTS.map((phrase) => words(capital(phrase)))
const middles = [VERBS.map(words), OBJECTS.map(words), TAILS.map(words)]

/** Adds one sentence to the tokens: about a dozen words, each with a blank before it, and a full stop. */
export const addSentence = (roll: Roll, tokens: string[]): void => {
  tokens.push(...openings[roll(openings.length)]!)
  for (const phrases of middles) tokens.push(...phrases[roll(phrases.length)]!)
  tokens.push('.')
}

/** Cuts any text into pieces of at most six characters, with the blanks before them; joined, they are the text. */
export const tokensOf = (text: string): string[] => text.match(/\s*\S{1,6}|\s+/gu) ?? []

/**
 * An endless text from a seed, token by token, and where it would end by itself: after two to five sentences. The same
 * seed gives the same text.
 */
export const story = (seed: number): { at(index: number): string; readonly natural_tokens: number } => {
  const roll = rollFrom(seed)
  const tokens: string[] = []
  const sentences = 2 + roll(4)
  for (let sentence = 0; sentence < sentences; sentence++) addSentence(roll, tokens)
  tokens[0] = tokens[0]!.trimStart()
  return {
    natural_tokens: tokens.length,
    at(index) {
      while (index >= tokens.length) addSentence(roll, tokens)
      return tokens[index]!
    },
  }
}
