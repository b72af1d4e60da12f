import type { Target } from '../balance/catalogue.ts'
import { errorOf } from '../engines/answer-error.ts'
import { fieldsOf } from './event-parts.ts'
import { type Answer, Miss, type Refusal } from './outcome.ts'

/** Larger errors speak of something else. */
const ERROR_BYTES_MAX = 64 * 1024

/**
 * The context that was too small for a prompt, in tokens, if that is why an engine refused the call: as the target
 * declares it, else as the engine's own words say, else 0. Undefined for any other outcome.
 */
export const contextTooSmall = (outcome: Answer | Miss, target: Target): number | undefined => {
  const refusal = outcome instanceof Miss ? outcome.shown : outcome
  if (!('kind' in refusal) || refusal.kind !== 'refusal' || (refusal.status !== 400 && refusal.status !== 413))
    return undefined
  const { code, message } = saidIn(refusal)
  const says = /(?:maximum|max) (?:context|model|sequence) length\D{0,32}(\d{2,9})?|context (?:length|window)/i.exec(
    message,
  )
  if (code !== 'context_length_exceeded' && says === null) return undefined
  return target.context_tokens ?? Number(says?.[1] ?? 0)
}

const saidIn = ({ bytes }: Refusal): { code: string; message: string } => {
  const nothing = { code: '', message: '' }
  if (bytes.length > ERROR_BYTES_MAX) return nothing
  try {
    const body = fieldsOf(JSON.parse(Buffer.from(bytes).toString('utf8')))
    return errorOf(body['error'] ?? body) ?? nothing
  } catch {
    return nothing // A proxy's page, which says nothing of contexts.
  }
}
