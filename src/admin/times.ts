import { Type } from '@sinclair/typebox'
import { Failure } from '../base/failure.ts'
import { quoted } from '../config/faults.ts'
import { fieldFault } from './input.ts'

const ALLOWED = 'a date (2026-01-31) or a time with its zone (2026-01-31T09:30:00Z)'
const TIME = /^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d{1,3})?)?(Z|[+-]\d{2}:\d{2}))?$/

/** A field that holds a time: ISO 8601, a date alone being its midnight in UTC. Read it with {@link timeOf}. */
export const timeField = (description: string) =>
  Type.String({ maxLength: 40, pattern: TIME.source, title: 'a time', 'x-allowed': ALLOWED, description })

/** Milliseconds since the epoch of such a field; absent stays absent. A date that no calendar has (30 February) is refused. */
export const timeOf = (field: string, text: string | undefined): number | undefined | Failure => {
  if (text === undefined) return undefined
  const at_ms = TIME.test(text) ? Date.parse(text) : Number.NaN
  const day = text.slice(0, 10)
  const in_calendar = Number.isFinite(at_ms) && new Date(`${day}T00:00:00Z`).toISOString().startsWith(day)
  return in_calendar ? at_ms : fieldFault(field, `${quoted(text)} is not a time`, `allowed: ${ALLOWED}`)
}
