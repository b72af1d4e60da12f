/** A time with its zone, as ISO 8601 has it (`2026-03-01T00:00:00Z`). */
export const INSTANT = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d{1,3})?)?(Z|[+-]\d{2}:\d{2})$/

/** Milliseconds since the epoch of such a text; undefined for any other, and for a date that no calendar has. */
export const instantMs = (text: string): number | undefined => {
  if (!INSTANT.test(text)) return undefined
  const at_ms = Date.parse(text)
  const day = text.slice(0, 10)
  const day_ms = Date.parse(`${day}T00:00:00Z`)
  const exists = Number.isFinite(at_ms) && new Date(day_ms).toISOString().startsWith(day)
  return exists && at_ms >= 0 ? at_ms : undefined
}
