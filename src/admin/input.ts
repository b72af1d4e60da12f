import type { Static, TSchema } from '@sinclair/typebox'
import { Value, type ValueError, ValueErrorType } from '@sinclair/typebox/value'
import { Failure } from '../base/failure.ts'
import { didYouMean, join, shown } from '../config/faults.ts'
import { allowedOf, nounOf, shapeOf } from '../config/shape.ts'
import { jsonScanner } from '../engines/json-scan.ts'

/** Largest body of an admin request. */
export const ADMIN_BODY_BYTES_MAX = 256 * 1024

/**
 * Reads a JSON body of at most {@link ADMIN_BODY_BYTES_MAX} and holds it to a schema: every field known, none twice. The
 * failure names the first field at fault, what was found and what is allowed.
 */
export const readBody = async <Schema extends TSchema>(
  request: Request,
  schema: Schema,
): Promise<Static<Schema> | Failure> => {
  const bytes = await readBytes(request)
  if (bytes instanceof Failure) return bytes
  if (bytes.length === 0) return new Failure('json_invalid', { says: 'The request needs a JSON body; found none.' })
  const scan = scanner(bytes)
  if (scan instanceof Failure) return scan
  return checked(
    schema,
    JSON.parse(
      Buffer.from(bytes)
        .toString('utf8')
        .replace(/^\ufeff/, ''),
    ),
  )
}

// Objects below the top level in which a key must not stand twice either.
const scanner = jsonScanner(['limits.**', 'budgets.**'])

const readBytes = async (request: Request): Promise<Uint8Array | Failure> => {
  const too_large = () =>
    new Failure('body_too_large', { says: `The body exceeds the limit of ${ADMIN_BODY_BYTES_MAX} bytes.` })
  if (Number(request.headers.get('content-length') ?? 0) > ADMIN_BODY_BYTES_MAX) return too_large()
  const parts: Uint8Array[] = []
  let size = 0
  try {
    for await (const part of request.body ?? []) {
      size += part.length
      if (size > ADMIN_BODY_BYTES_MAX) return too_large()
      parts.push(part)
    }
  } catch (cause) {
    return new Failure('body_cut', { cause })
  }
  return Buffer.concat(parts)
}

/** The query of an address under a schema: no field twice, none unknown; whole numbers come as text and leave as numbers. */
export const readQuery = <Schema extends TSchema>(url: URL, schema: Schema): Static<Schema> | Failure => {
  const types = new Map(Object.entries(shapeOf(schema).properties ?? {}).map(([name, { type }]) => [name, type]))
  const fields: Record<string, unknown> = Object.create(null)
  for (const [name, text] of url.searchParams) {
    if (Object.hasOwn(fields, name)) return fieldFault(name, 'stands twice', 'allowed: once')
    const whole = types.get(name) === 'integer' && /^\d{1,15}$/.test(text)
    fields[name] = whole ? Number(text) : text
  }
  return checked(schema, { ...fields })
}

/** A value that keeps to a schema, or the first field that does not. Nothing is stripped, converted or filled in. */
export const checked = <Schema extends TSchema>(schema: Schema, value: unknown): Static<Schema> | Failure => {
  if (Value.Check(schema, value)) return value
  const error = Value.Errors(schema, value).First()
  if (error === undefined) throw new Error('a value was refused without an error')
  return explained(schema, error)
}

/** The failure of one field: `limits.concurrent: -1 is too small; allowed: a whole number from 0`. */
export const fieldFault = (field: string, found: string, allowed: string): Failure =>
  new Failure('field_invalid', {
    says: `${field === '' ? 'body' : field}: ${found}; ${allowed}`,
    param: field || 'body',
  })

const explained = (schema: TSchema, error: ValueError): Failure => {
  const field = fieldOf(error.path)
  const shape = shapeOf(error.schema)
  if (error.type === ValueErrorType.ObjectAdditionalProperties) {
    const name = error.path.split('/').at(-1) ?? ''
    return fieldFault(field, 'is not a field', didYouMean(unescaped(name), fieldsAround(schema, error.path)))
  }
  if (error.type === ValueErrorType.ObjectRequiredProperty)
    return fieldFault(field, 'is missing', `needed: ${allowedOf(shape)}`)
  return fieldFault(field, foundIn(error), `allowed: ${allowedOf(shape)}`)
}

const foundIn = ({ type, value, schema }: ValueError): string => {
  if (TOO_SMALL.has(type)) return `${shown(value)} is too small`
  if (TOO_LARGE.has(type)) return `${shown(value)} is too large`
  if (WRONG_LENGTH.has(type))
    return typeof value === 'string' ? `has ${value.length} characters` : `has ${(value as unknown[]).length} entries`
  return `${shown(value)} is not ${nounOf(shapeOf(schema))}`
}

const TOO_SMALL: ReadonlySet<ValueErrorType> = new Set([ValueErrorType.IntegerMinimum, ValueErrorType.NumberMinimum])
const TOO_LARGE: ReadonlySet<ValueErrorType> = new Set([ValueErrorType.IntegerMaximum, ValueErrorType.NumberMaximum])
const WRONG_LENGTH: ReadonlySet<ValueErrorType> = new Set([
  ValueErrorType.ArrayMinItems,
  ValueErrorType.ArrayMaxItems,
  ValueErrorType.StringMinLength,
  ValueErrorType.StringMaxLength,
])

/** The names of the fields beside the one at a path. */
const fieldsAround = (schema: TSchema, path: string): string[] => {
  let shape = shapeOf(schema)
  for (const step of path.split('/').slice(1, -1)) {
    const below = shape.items ?? shape.properties?.[unescaped(step)]
    if (below === undefined) break
    shape = below
  }
  return Object.keys(shape.properties ?? {})
}

/** A JSON pointer (RFC 6901) as a path: `/targets/0/engine` is `targets[0].engine`. */
const fieldOf = (pointer: string): string =>
  pointer
    .split('/')
    .slice(1)
    .map(unescaped)
    .reduce((path, step) => join(path, /^\d+$/.test(step) ? Number(step) : step), '')

const unescaped = (step: string): string => step.replaceAll('~1', '/').replaceAll('~0', '~')
