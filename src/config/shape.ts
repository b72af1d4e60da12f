import type { TSchema } from '@sinclair/typebox'

/** The part of a schema that faults, redaction and documentation read. */
export type Shape = {
  readonly type?: string
  readonly properties?: Readonly<Record<string, Shape>>
  readonly required?: readonly string[]
  readonly items?: Shape
  readonly anyOf?: readonly Shape[]
  readonly const?: unknown
  readonly default?: unknown
  readonly title?: string
  readonly description?: string
  readonly 'x-allowed'?: string
  /** A text of several lines. */
  readonly 'x-lines'?: boolean
  readonly pattern?: string
  readonly writeOnly?: boolean
  readonly minimum?: number
  readonly exclusiveMinimum?: number
  readonly maximum?: number
  readonly minLength?: number
  readonly maxLength?: number
  readonly minItems?: number
  readonly maxItems?: number
}

/** A schema as the plain data that it is. */
export const shapeOf = (schema: TSchema): Shape => schema as Shape

/** What a value of the shape is called: `a whole number`, `a list`, `a name`. */
export const nounOf = (shape: Shape): string =>
  shape.title ??
  (shape.anyOf || shape.const !== undefined ? 'one of the choices' : (NOUNS[shape.type ?? ''] ?? 'a value'))

/** What the shape allows, in words: `a whole number from 0 to 65535`, `day, week or month`. */
export const allowedOf = (shape: Shape): string => {
  if (shape['x-allowed'] !== undefined) return shape['x-allowed']
  if (shape.const !== undefined) return String(shape.const)
  if (shape.anyOf) return listed(shape.anyOf.map(allowedOf))
  return `${nounOf(shape)}${boundsOf(shape)}`
}

const NOUNS: Readonly<Record<string, string>> = {
  object: 'a mapping',
  array: 'a list',
  string: 'text',
  integer: 'a whole number',
  number: 'a number',
  boolean: 'true or false',
}

const boundsOf = (shape: Shape): string => {
  if (shape.type === 'array') return range(' of', shape.minItems, shape.maxItems, ' entries')
  if (shape.type === 'string') return range(' of', shape.minLength, shape.maxLength, ' characters')
  const numbers = range(' from', shape.minimum, shape.maximum, '')
  return shape.exclusiveMinimum === undefined ? numbers : ` above ${shape.exclusiveMinimum}${numbers}`
}

const range = (word: string, least: number | undefined, most: number | undefined, unit: string): string => {
  if (least === undefined)
    return most === undefined ? '' : `${unit === '' ? ', at most' : ' of at most'} ${most}${unit}`
  return most === undefined ? `${word} at least ${least}${unit}` : `${word} ${least} to ${most}${unit}`
}

const listed = (words: readonly string[]): string =>
  words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} or ${words.at(-1)}`
