import { demo_limits } from './settings.ts'
import { addSentence, type Roll } from './text.ts'

type Schema = { readonly [key: string]: unknown }

/** A value that fits a JSON Schema as far as a demo needs: types, enum, const, default, bounds, items, properties. */
export const sampleOf = (schema: unknown, roll: Roll, name = '', depth = 0): unknown => {
  if (typeof schema !== 'object' || schema === null || depth > demo_limits.schema_depth_max) return null
  const rule = schema as Schema
  if ('const' in rule) return rule['const']
  if ('default' in rule) return rule['default']
  if (isFull(rule['enum'])) return rule['enum'][roll(rule['enum'].length)]
  if (isFull(rule['examples'])) return rule['examples'][roll(rule['examples'].length)]
  const choice = rule['anyOf'] ?? rule['oneOf'] ?? rule['allOf']
  if (isFull(choice)) return sampleOf(choice[0], roll, name, depth + 1)
  const type = Array.isArray(rule['type']) ? rule['type'][0] : rule['type']
  switch (type ?? ('properties' in rule ? 'object' : 'string')) {
    case 'object':
      return objectOf(rule, roll, depth)
    case 'array':
      return arrayOf(rule, roll, name, depth)
    case 'string':
      return stringOf(rule, roll, name)
    case 'integer':
      return Math.ceil(numberIn(rule, roll))
    case 'number':
      return numberIn(rule, roll)
    case 'boolean':
      return roll(2) === 1
    default:
      return null
  }
}

const isFull = (list: unknown): list is readonly unknown[] => Array.isArray(list) && list.length > 0

const objectOf = (rule: Schema, roll: Roll, depth: number): unknown => {
  const properties = (rule['properties'] ?? {}) as Record<string, unknown>
  const names = Object.keys(properties).slice(0, 64)
  return Object.fromEntries(names.map((name) => [name, sampleOf(properties[name], roll, name, depth + 1)]))
}

const arrayOf = (rule: Schema, roll: Roll, name: string, depth: number): unknown => {
  const least = typeof rule['minItems'] === 'number' ? Math.min(rule['minItems'], 16) : 1
  return Array.from({ length: Math.max(least, 1) }, () => sampleOf(rule['items'], roll, name, depth + 1))
}

/** Values that suit usual parameter names. */
const USUAL: readonly (readonly [name: RegExp, values: readonly string[]])[] = [
  [/city|location|place|town/i, ['Seoul', 'Lyon', 'Basel', 'Porto']],
  [/country/i, ['Korea', 'France', 'Portugal']],
  [/unit/i, ['celsius', 'fahrenheit']],
  [/date|day/i, ['2026-05-01', '2026-09-17']],
  [/time/i, ['09:30', '17:45']],
  [/mail/i, ['ferry@example.com']],
  [/url|link/i, ['https://example.com/river']],
  [/query|question|search|keyword/i, ['water level today', 'locks on the canal']],
]

const stringOf = (rule: Schema, roll: Roll, name: string): string => {
  const usual = USUAL.find(([pattern]) => pattern.test(name))?.[1]
  if (usual) return usual[roll(usual.length)]!
  const tokens: string[] = []
  addSentence(roll, tokens)
  const text = tokens.slice(0, 3).join('').trim()
  return typeof rule['maxLength'] === 'number' ? text.slice(0, rule['maxLength']) : text
}

const numberIn = (rule: Schema, roll: Roll): number => {
  const low = typeof rule['minimum'] === 'number' ? rule['minimum'] : 1
  const high = typeof rule['maximum'] === 'number' ? rule['maximum'] : low + 99
  return low + Math.floor((Math.max(high - low, 0) * roll(101)) / 100)
}
