import { Value } from '@sinclair/typebox/value'
import { codePoint, didYouMean, type FaultList, join, shown } from './faults.ts'
import { Config } from './schema.ts'
import { allowedOf, nounOf, type Shape, shapeOf } from './shape.ts'
import { isTree, type Templates, type Tree } from './tree.ts'

/**
 * A tree as the schema reads it: a section that holds nothing is an empty one, numbers and booleans that came as the
 * text of a variable or flag (a path in `from_text`) become numbers and booleans, secrets lose blanks at both ends.
 */
export const settle = (value: unknown, from_text: ReadonlySet<string>): unknown =>
  settleAs(shapeOf(Config), value, '', from_text)

const settleAs = (shape: Shape, value: unknown, path: string, from_text: ReadonlySet<string>): unknown => {
  if (shape.properties) {
    const fields = shape.properties
    if (!isTree(value)) return value === null ? {} : value
    const settled = (key: string, entry: unknown) =>
      Object.hasOwn(fields, key) ? settleAs(fields[key]!, entry, join(path, key), from_text) : entry
    return Object.fromEntries(Object.entries(value).map(([key, entry]) => [key, settled(key, entry)]))
  }
  if (shape.items) {
    const items = shape.items
    if (!Array.isArray(value)) return value === null ? [] : value
    return value.map((entry, index) => settleAs(items, entry, join(path, index), from_text))
  }
  if (typeof value !== 'string') return value
  if (shape.writeOnly) return value.trim()
  return from_text.has(path) ? fromText(shape, value) : value
}

const fromText = (shape: Shape, text: string): unknown => {
  const types = (shape.anyOf ?? [shape]).map((one) => one.type)
  if (types.includes('boolean') && /^(true|false)$/.test(text)) return text === 'true'
  if ((types.includes('integer') || types.includes('number')) && /^-?\d{1,15}(\.\d{1,15})?$/.test(text)) {
    return Number(text)
  }
  return text
}

/** With every default filled in, at any depth. The tree may be faulty: what is there stays, of whatever kind. */
export const withDefaults = (tree: unknown): unknown => filled(shapeOf(Config), tree)

// Not Value.Default: it pours a mapping into the default of a list, and so makes a list of it.
const filled = (shape: Shape, given: unknown): unknown => {
  const value = given === undefined ? structuredClone(shape.default) : given
  if (shape.items && Array.isArray(value)) {
    const items = shape.items
    return value.map((entry) => filled(items, entry))
  }
  const fields = shape.properties
  if (!fields || !isTree(value)) return value
  const absent = Object.keys(fields).filter((key) => !Object.hasOwn(value, key))
  const entries = [...Object.entries(value), ...absent.map((key) => [key, undefined] as const)].map(
    ([key, entry]) => [key, Object.hasOwn(fields, key) ? filled(fields[key]!, entry) : entry] as const,
  )
  return Object.fromEntries(entries.filter(([, entry]) => entry !== undefined))
}

/** Whether a tree is a configuration: the last word, beside which {@link schemaFaults} only explains. */
export const isConfig = (tree: unknown): tree is Config => Value.Check(Config, tree)

/** Adds everything in a tree, defaults filled in, that its schema refuses: nothing exactly if {@link isConfig}. */
export const schemaFaults = (tree: unknown, templates: Templates, faults: FaultList): void =>
  collect(shapeOf(Config), tree, '', templates, faults)

const collect = (shape: Shape, value: unknown, path: string, templates: Templates, faults: FaultList): void => {
  const found = foundIn(shape, value, path, templates)
  if (found !== undefined) {
    const at = path === '' ? 'configuration' : path
    faults.add(at, found, `allowed: ${allowedOf(shape)}`)
  }
  if (shape.properties && isTree(value)) collectFields(shape, shape.properties, value, path, templates, faults)
  if (shape.items && Array.isArray(value)) {
    for (const [index, entry] of value.entries()) collect(shape.items, entry, join(path, index), templates, faults)
  }
}

const collectFields = (
  shape: Shape,
  fields: Readonly<Record<string, Shape>>,
  tree: Tree,
  path: string,
  templates: Templates,
  faults: FaultList,
): void => {
  for (const key of Object.keys(tree)) {
    if (Object.hasOwn(fields, key)) continue
    faults.add(join(path, key), 'is not a setting', () => didYouMean(key, Object.keys(fields)))
  }
  for (const [key, field] of Object.entries(fields)) {
    if (Object.hasOwn(tree, key)) collect(field, tree[key], join(path, key), templates, faults)
    else if (shape.required?.includes(key)) {
      faults.add(join(path, key), 'is missing', `needed: ${allowedOf(field)}`)
    }
  }
}

/** What is wrong with the value itself, its entries aside; undefined if nothing is. */
const foundIn = (shape: Shape, value: unknown, path: string, templates: Templates): string | undefined => {
  const what = shape.writeOnly ? secretShown(value) : (templates.get(path) ?? shown(value))
  if (!isKind(shape, value)) return value === null ? 'holds nothing' : `${what} is not ${nounOf(shape)}`
  if (Array.isArray(value)) {
    const wrong = value.length < (shape.minItems ?? 0) || value.length > (shape.maxItems ?? Infinity)
    return wrong ? `has ${value.length} entries` : undefined
  }
  if (typeof value === 'number') {
    if (value < (shape.minimum ?? -Infinity) || value <= (shape.exclusiveMinimum ?? -Infinity)) {
      return `${what} is too small`
    }
    return value > (shape.maximum ?? Infinity) ? `${what} is too large` : undefined
  }
  return typeof value === 'string' ? foundInText(shape, value, what) : undefined
}

const foundInText = (shape: Shape, text: string, what: string): string | undefined => {
  const of_lines = shape['x-lines'] ? text.replaceAll(/\r?\n/g, ' ') : text
  const bad = shape.writeOnly ? secretFault(text) : characterFault(of_lines, /\p{Cc}/u)
  if (bad !== undefined) return bad
  if (text === '' && (shape.minLength ?? 0) > 0) return 'is empty'
  if (text.length < (shape.minLength ?? 0) || text.length > (shape.maxLength ?? Infinity)) {
    return `has ${text.length} characters`
  }
  return shape.pattern !== undefined && !new RegExp(shape.pattern).test(text)
    ? `${what} is not ${nounOf(shape)}`
    : undefined
}

/** Why a secret cannot go into a header, without the secret; undefined if it can: it is printable ASCII. */
export const secretFault = (secret: string): string | undefined => characterFault(secret, /[^\x20-\x7e]/u)

const characterFault = (text: string, bad: RegExp): string | undefined => {
  const found = bad.exec(text)
  if (!found) return undefined
  const kind = /\p{Cc}/u.test(found[0]) ? 'control character' : 'character outside ASCII'
  return `holds a ${kind} (${codePoint(found[0])} at position ${found.index + 1})`
}

const secretShown = (value: unknown): string => (typeof value === 'object' ? shown(value) : `a ${typeof value}`)

const isWhole = (shape: Shape, value: unknown): boolean => foundIn(shape, value, '', new Map()) === undefined

const isKind = (shape: Shape, value: unknown): boolean => {
  if (shape.const !== undefined) return shape.const === value
  if (shape.anyOf) return shape.anyOf.some((one) => isWhole(one, value))
  switch (shape.type) {
    case 'object':
      return isTree(value)
    case 'array':
      return Array.isArray(value)
    case 'integer':
      return Number.isInteger(value)
    case 'number':
      return Number.isFinite(value)
    default:
      return typeof value === shape.type
  }
}
