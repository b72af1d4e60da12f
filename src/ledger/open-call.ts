import type { Attempt, CallRecord, Ending, Intent, Progress } from '../journal/record.ts'

/** What the journal has said so far of a call that has no ledger row yet. */
export type OpenCall = {
  readonly call_id: string
  /** The journal series of its first record. */
  readonly series: string
  readonly intent: Intent | null
  readonly attempts: readonly Attempt[]
  /** The latest one. */
  readonly progress: Progress | null
  readonly ending: Ending | null
}

/** Further engines kept of one call; more are not believed. */
const ATTEMPTS_KEPT_MAX = 32

/** A call of which nothing is known. */
export const unknownCall = (call_id: string, series: string): OpenCall => ({
  call_id,
  series,
  intent: null,
  attempts: [],
  progress: null,
  ending: null,
})

/**
 * Adds a record to what is known, in whatever order records come: the first intent and the first ending count, of
 * progress the latest. Returns the very same object if the record says nothing new.
 */
export const learn = (call: OpenCall, record: CallRecord): OpenCall => {
  switch (record.kind) {
    case 'intent':
      return call.intent === null ? { ...call, intent: record } : call
    case 'ending':
      return call.ending === null ? { ...call, ending: record } : call
    case 'progress':
      return call.progress === null || isLater(record, call.progress) ? { ...call, progress: record } : call
    case 'attempt':
      if (call.attempts.length >= ATTEMPTS_KEPT_MAX || call.attempts.some((seen) => isSame(seen, record))) return call
      return { ...call, attempts: [...call.attempts, record].sort((one, other) => one.at_ms - other.at_ms) }
  }
}

const isLater = (one: Progress, other: Progress): boolean =>
  one.at_ms - other.at_ms > 0 || (one.at_ms === other.at_ms && one.completion_tokens > other.completion_tokens)

const isSame = (one: Attempt, other: Attempt): boolean =>
  one.at_ms === other.at_ms && one.engine === other.engine && one.because === other.because

/** The time of the last record of a call, 0 if there is none. */
export const lastSeenMs = (call: OpenCall): number =>
  Math.max(
    call.intent?.at_ms ?? 0,
    call.attempts.at(-1)?.at_ms ?? 0,
    call.progress?.at_ms ?? 0,
    call.ending?.at_ms ?? 0,
  )

/** An open call as JSON text; hashes become hex. */
export const encodeOpenCall = (call: OpenCall): string =>
  JSON.stringify({
    ...call,
    intent: call.intent && { ...call.intent, request_sha256: hex(call.intent.request_sha256) },
    ending: call.ending && { ...call.ending, response_sha256: hex(call.ending.response_sha256) },
  })

/** The reverse of {@link encodeOpenCall}. Requires its output. */
export const decodeOpenCall = (text: string): OpenCall => {
  const call: Encoded = JSON.parse(text)
  return {
    ...call,
    intent: call.intent && { ...call.intent, request_sha256: Uint8Array.fromHex(call.intent.request_sha256) },
    ending: call.ending && { ...call.ending, response_sha256: Uint8Array.fromHex(call.ending.response_sha256) },
  }
}

type Encoded = Omit<OpenCall, 'intent' | 'ending'> & {
  readonly intent: (Omit<Intent, 'request_sha256'> & { readonly request_sha256: string }) | null
  readonly ending: (Omit<Ending, 'response_sha256'> & { readonly response_sha256: string }) | null
}

const hex = (bytes: Uint8Array): string => bytes.toHex()
