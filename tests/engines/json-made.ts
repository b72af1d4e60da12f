import type { Roll } from './for-all.ts'

/** JSON text made at random, in the odd but legal forms that re-printing would change. */

const pick = <T>(roll: Roll, from: readonly T[]): T => from[roll(from.length)]!

const SPACES = ['', '', '', ' ', '\n', '\r\n', '\t', '  \t\n ']
const NUMBERS = [
  '0',
  '-0',
  '1.0',
  '9007199254740993',
  '-9223372036854775808',
  '1e400',
  '1E+2',
  '0.10',
  '2.50e-07',
  '12',
]
const TEXTS = [
  '',
  'a',
  'hi there',
  '안녕 🌍',
  'é',
  '\\u00e9',
  '\\ud83c\\udf0d',
  '\\ud800',
  '\\"usage\\":',
  '\\\\',
  '\\/',
  '\\n\\t',
  '{"',
  '[1,',
  ',}',
  ': ',
  'data: x',
  '\u2028',
  'x'.repeat(127),
  `${'y'.repeat(300)}\\"`,
  `\\u0041${'z'.repeat(140)}é`,
].map((text) => text.replace(/^[{[,:]"?/, (found) => found.replace('"', '\\"')))

export const space = (roll: Roll): string => pick(roll, SPACES)

export const madeString = (roll: Roll): string => `"${pick(roll, TEXTS)}${pick(roll, TEXTS)}"`

/** Any value, nested at most `depth` deep. */
export const madeValue = (roll: Roll, depth = 3): string => {
  switch (roll(depth > 0 ? 8 : 5)) {
    case 0:
      return pick(roll, NUMBERS)
    case 1:
      return pick(roll, ['true', 'false', 'null'])
    case 2:
    case 3:
    case 4:
      return madeString(roll)
    case 5:
      return madeArray(roll, depth - 1)
    default:
      return madeObject(roll, madeKeys(roll), depth - 1)
  }
}

const madeArray = (roll: Roll, depth: number): string => {
  const items = Array.from({ length: roll(4) }, () => `${space(roll)}${madeValue(roll, depth)}${space(roll)}`)
  return `[${items.length === 0 ? space(roll) : items.join(',')}]`
}

/** An object with these keys, given as JSON strings. */
export const madeObject = (roll: Roll, keys: readonly string[], depth = 2): string => {
  const members = keys.map((key) => madeMember(roll, key, madeValue(roll, depth)))
  return `{${members.length === 0 ? space(roll) : members.join(',')}}`
}

export const madeMember = (roll: Roll, key: string, value: string): string =>
  `${space(roll)}${key}${space(roll)}:${space(roll)}${value}${space(roll)}`

/** Keys that differ once unescaped. */
export const madeKeys = (roll: Roll): string[] => [
  ...new Map(Array.from({ length: roll(5) }, () => madeString(roll)).map((key) => [JSON.parse(key), key])).values(),
]
