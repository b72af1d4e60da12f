import { masked } from './faults.ts'
import { Config } from './schema.ts'
import { allowedOf, type Shape, shapeOf } from './shape.ts'

/**
 * The JSON Schema (2020-12) of what may be written in a configuration file: settings with a default need not be there.
 * A fresh plain object on each call.
 */
export const configJsonSchema = (): Record<string, unknown> => ({
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  title: 'Weir configuration',
  ...writable(shapeOf(Config)),
})

/** A Markdown table of every setting: path, what is allowed, default, meaning. */
export const configTable = (): string =>
  [
    '| setting | allowed | default | meaning |',
    '|---|---|---|---|',
    ...rowsOf(shapeOf(Config), '', true).map((cells) => `| ${cells.map(cell).join(' | ')} |`),
  ].join('\n')

/** A configuration fit to be shown: secrets and what looks like one in an address are `***`. Nothing is shared with it. */
export const redacted = (config: Config): Config => redactedAs(shapeOf(Config), config) as Config

const redactedAs = (shape: Shape | undefined, value: unknown): unknown => {
  if (shape?.writeOnly) return '***'
  if (typeof value === 'string') return masked(value)
  if (Array.isArray(value)) return value.map((entry) => redactedAs(shape?.items, entry))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value).map(([key, entry]) => [key, redactedAs(shape?.properties?.[key], entry)]),
  )
}

const writable = (shape: Shape): Record<string, unknown> => {
  const { properties, items, anyOf, required, ...rest } = JSON.parse(JSON.stringify(shape)) as Shape
  const needed = required?.filter((key) => properties?.[key]?.default === undefined) ?? []
  return {
    ...rest,
    ...(anyOf && { anyOf: anyOf.map(writable) }),
    ...(items && { items: writable(items) }),
    ...(properties && {
      properties: Object.fromEntries(Object.entries(properties).map(([key, field]) => [key, writable(field)])),
    }),
    ...(needed.length > 0 && { required: needed }),
  }
}

type Cells = readonly [path: string, allowed: string, fallback: string, meaning: string]

const rowsOf = (shape: Shape, path: string, may_miss: boolean): Cells[] => {
  const of_entries = shape.items?.properties ? rowsOf(shape.items, `${path}[]`, true) : []
  const fields = Object.entries(shape.properties ?? {}).flatMap(([key, field]) =>
    rowsOf(field, path === '' ? key : `${path}.${key}`, !shape.required?.includes(key)),
  )
  if (shape.properties) return fields
  const fallback = shape.default === undefined ? (may_miss ? '' : 'needed') : `\`${JSON.stringify(shape.default)}\``
  const allowed = shape.items && !shape.items.properties ? `a list of: ${allowedOf(shape.items)}` : allowedOf(shape)
  return [[`\`${path}\``, allowed, fallback, shape.description ?? ''], ...of_entries]
}

const cell = (text: string): string => text.replaceAll('|', '\\|').replaceAll('\n', ' ')
