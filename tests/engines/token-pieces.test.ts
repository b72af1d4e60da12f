import { describe, expect, test } from 'bun:test'
import { countTokens as count_cl100k } from 'gpt-tokenizer/encoding/cl100k_base'
import { countTokens as count_o200k } from 'gpt-tokenizer/encoding/o200k_base'
import { countInPieces, isParting } from '../../src/engines/token-pieces.ts'
import { forAll, pick } from '../kit/wait.ts'

/** Counting in pieces against counting at once, with the real encodings. */

const as_text = { disallowedSpecial: new Set<string>() }
const COUNTS = {
  o200k_base: (text: string) => count_o200k(text, as_text),
  cl100k_base: (text: string) => count_cl100k(text, as_text),
}

const WORDS = [
  ...[
    'hello',
    'wörld',
    "don't",
    'I’m',
    '12345',
    'HTTPServer',
    '你好世界',
    '。',
    '，',
    'naïve',
    '👩‍👩‍👧',
    'e\u0301',
    '<|endoftext|>',
  ],
  ...[
    ' ',
    '  ',
    '\n',
    '\n\n',
    '\r\n',
    '\t',
    ' \n ',
    '.',
    '...',
    '/',
    '{"a":',
    '}',
    "'",
    "'s",
    ' ll',
    '_',
    'がんばる',
    'Ünï',
  ],
]

const expectSplits = (text: string, count: (text: string) => number) => {
  const whole = count(text)
  let places = 0
  for (let at = 1; at < text.length; at++) {
    if (!isParting(text, at)) continue
    places++
    const parts = count(text.slice(0, at)) + count(text.slice(at))
    if (parts !== whole)
      throw new Error(
        `${parts} tokens in parts, ${whole} at once: ${JSON.stringify([text.slice(0, at), text.slice(at)])}`,
      )
  }
  return places
}

describe.each(Object.entries(COUNTS))('%s', (_name, count) => {
  test('every place to part a text leaves its tokens as they are', () => {
    let places = 0
    forAll(400, (roll) => {
      const text = Array.from({ length: 1 + roll(14) }, () => pick(roll, WORDS)).join(pick(roll, ['', ' ', '\n']))
      places += expectSplits(text, count)
    })
    expect(places).toBeGreaterThan(400)
  })

  test('a text in pieces of any size has the tokens of the whole, if it has words', () => {
    const text = 'The quick brown fox, 12 of them, jumped over "the lazy dog" \n and so on.\n'.repeat(20)
    for (let size = 24; size < 400; size += 7) expect(countInPieces(text, count, size)).toBe(count(text))
  })

  test('without a place to part it a text is cut between characters, for a token or two', () => {
    for (const text of ['x'.repeat(3_000), '👍'.repeat(1_000), '好'.repeat(2_000)]) {
      const whole = count(text)
      const seen: string[] = []
      const counted = countInPieces(
        text,
        (piece) => {
          seen.push(piece)
          return count(piece)
        },
        501,
      )
      expect(seen.join('')).toBe(text)
      expect(seen.every((piece) => piece.isWellFormed() && piece.length <= 501)).toBe(true)
      expect(counted).toBeGreaterThanOrEqual(whole)
      expect(counted).toBeLessThanOrEqual(whole + 2 * seen.length)
    }
  })
})

test('nothing has no tokens', () => expect(countInPieces('', COUNTS.o200k_base)).toBe(0))
