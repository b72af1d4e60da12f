import type { ModelConfig } from '../config/schema.ts'

/** The encodings by which the gateway can count. */
export type Encoding = ModelConfig['tokenizer']

/**
 * A text is counted in pieces of at most so many UTF-16 units: what a tokenizer needs for one long word grows with the
 * square of its length (25,000 equal letters took 0.87 s at once, 0.15 s in pieces).
 */
export const PIECE_CHARS_MAX = 4_096

/** Counts one text of which nothing is special. */
export type CountText = (text: string) => number

/**
 * Tokens of a text, counted in pieces. Exact where the text has a place to part it in every {@link PIECE_CHARS_MAX}
 * (a space before a word, the beginning of a line, a sign between two letters); elsewhere each cut may add a token or two.
 */
export const countInPieces = (text: string, count: CountText, piece_chars_max: number = PIECE_CHARS_MAX): number => {
  let tokens = 0
  for (let at = 0; at < text.length;) {
    const end = text.length - at <= piece_chars_max ? text.length : partingBefore(text, at, at + piece_chars_max)
    tokens += count(at === 0 && end === text.length ? text : text.slice(at, end))
    at = end
  }
  return tokens
}

/**
 * The last place in `(start, end]` where a text can be parted so that its parts have as many tokens as the whole; without
 * one `end`, or the place before it that is not inside a character. Requires `start < end < text.length`.
 */
export const partingBefore = (text: string, start: number, end: number): number => {
  for (let at = end; at > start; at--) if (isParting(text, at)) return at
  const is_inside = (text.charCodeAt(end - 1) & 0xfc00) === 0xd800 && end - 1 > start
  return is_inside ? end - 1 : end
}

const LETTER = /^\p{L}$/u
const SIGN = /^[\p{P}\p{S}]$/u
const isLetter = (char: string | undefined): boolean => char !== undefined && LETTER.test(char)

/**
 * True if every known encoding begins a new word there. Encodings part a text into words first: a word may begin with one
 * space or sign, and a line end stands before it. An apostrophe may begin a word's ending.
 */
export const isParting = (text: string, at: number): boolean => {
  const [before, here, after] = [text[at - 1], text[at], text[at + 1]]
  if (here === ' ') return isLetter(after)
  if (isLetter(here)) return before === '\n'
  return here !== "'" && here !== undefined && SIGN.test(here) && isLetter(before) && isLetter(after)
}
