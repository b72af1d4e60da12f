import { type TProperties, Type } from '@sinclair/typebox'
import { INSTANT } from './instant.ts'

/** Options of a mapping that takes no unknown key. */
export const closed = { additionalProperties: false } as const
/** {@link closed}, and the whole mapping may be absent: its settings have defaults. */
export const section = { additionalProperties: false, default: {} } as const

/** A whole number with a range and a default. */
export const int = (minimum: number, maximum: number, fallback: number, description: string) =>
  Type.Integer({ minimum, maximum, default: fallback, description })

/** A whole number from 0 that may be absent: no limit. */
export const limit = (maximum: number, description: string) =>
  Type.Optional(Type.Integer({ minimum: 0, maximum, description }))

/** One of some words. */
export const choiceOf = <const T extends string>(values: readonly T[]) =>
  Type.Unsafe<T>(Type.Union(values.map((value) => Type.Literal(value))))

/** One of some words, with a default. */
export const choice = <const T extends string>(values: readonly T[], fallback: NoInfer<T>, description: string) => ({
  ...choiceOf(values),
  default: fallback,
  description,
})

/** A name that may stand in a path, a header and a metrics label. */
export const name = (description: string) =>
  Type.String({
    pattern: '^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}$',
    title: 'a name',
    'x-allowed': 'letters, digits and . _ : / @ -, beginning with a letter or digit, at most 128',
    description,
  })

/** An amount of USD; nine digits before the point keep it, in nanodollars, within a signed 64-bit integer. */
export const usd = (description: string) =>
  Type.String({
    pattern: '^[0-9]{1,9}(\\.[0-9]{1,9})?$',
    title: 'an amount of USD',
    'x-allowed': 'a decimal in quotes such as "12.50", at most 9 digits before the point and 9 after',
    description,
  })

/** A price in USD per million tokens; six digits before the point keep the charge of a call within 64 bits. */
export const usdPerMillion = (description: string) =>
  Type.String({
    pattern: '^[0-9]{1,6}(\\.[0-9]{1,6})?$',
    title: 'a price',
    'x-allowed': 'a decimal in quotes such as "0.20", at most 6 digits before the point and 6 after',
    description,
  })

/** A point in time. Whether the calendar has it is checked elsewhere. */
export const instant = (description: string) =>
  Type.String({
    pattern: INSTANT.source,
    maxLength: 40,
    title: 'a time',
    'x-allowed': 'a time with its zone, such as 2026-03-01T00:00:00Z',
    description,
  })

/** A list of short texts, empty if absent. */
export const strings = (maxItems: number, description: string) =>
  Type.Array(Type.String({ minLength: 1, maxLength: 128 }), { default: [], maxItems, description })

/** A listening address with a default. */
export const host = (fallback: string, description: string) =>
  Type.String({ minLength: 1, maxLength: 255, default: fallback, description })

/** The same settings without their defaults, so that an absent one stays absent and the house's own counts. */
export const withoutDefaults = <T extends TProperties>(properties: T): T =>
  Object.fromEntries(
    Object.entries(properties).map(([key, { default: _fallback, ...schema }]) => [key, schema]),
  ) as unknown as T
