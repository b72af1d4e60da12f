import { hashOf } from '../balance/rendezvous.ts'
import type { StrategyName } from '../balance/strategies.ts'
import { skipSpace, skipValue } from '../engines/json-skip.ts'
import { readString } from '../engines/json-value.ts'
import { jsonScanner } from '../engines/json-scan.ts'
import { Failure } from '../base/failure.ts'
import { limits } from '../base/limits.ts'
import type { Enriched } from './call.ts'

/** Bytes of a message or prompt that tell conversations apart. */
const START_BYTES = 16 * 1024
/** Messages looked at for the first one of a user. */
const MESSAGES_MAX = 8

/** What affinity goes by for a call, 32 bits, or 0. Session: `x-weir-session`, else the end user, else the prompt's start. */
export const affinityKey = (call: Enriched, strategy: StrategyName): number => {
  switch (strategy) {
    case 'tenant_affinity':
      return keyed(call, call.tenant.name)
    case 'session_affinity': {
      const session = call.headers.get('x-weir-session') ?? call.body.end_user
      return session === '' ? promptKey(call) : keyed(call, `${call.tenant.name}\n${session}`)
    }
    case 'prefix_affinity':
      return promptKey(call)
    default:
      return 0
  }
}

const keyed = (call: Enriched, text: string): number => hashOf(text, hashOf(call.body.model))

/**
 * The start of the prompt: all messages up to the first one of a user, which is the same in every turn of a conversation
 * and differs between conversations that share a system prompt. Of a plain prompt its first bytes.
 */
const promptKey = (call: Enriched): number => {
  const { bytes, scan, model } = call.body
  const range = scan.values[call.arrival.endpoint.prompt_field]
  if (range === undefined) return 0
  const seed = hashOf(model)
  if (call.arrival.endpoint.prompt_field !== 'messages' || range.type !== 'array')
    return hashOf(bytes.subarray(range.start, Math.min(range.end, range.start + START_BYTES)), seed)
  let key = seed
  let at = skipSpace(bytes, range.start + 1, range.end)
  for (let nth = 0; nth < MESSAGES_MAX && bytes[at] === OPEN; nth++) {
    const end = skipValue(bytes, at, range.end, limits.json_depth_max)
    const message = bytes.subarray(at, end)
    key = hashOf(message.subarray(0, START_BYTES), key)
    if (roleOf(message) === 'user') break
    at = skipSpace(bytes, end, range.end)
    if (bytes[at] === COMMA) at = skipSpace(bytes, at + 1, range.end)
  }
  return key
}

const OPEN = 0x7b
const COMMA = 0x2c

const scanMessage = jsonScanner(['role'])

const roleOf = (message: Uint8Array): string | undefined => {
  const scan = scanMessage(message)
  return scan instanceof Failure ? undefined : readString(message, scan.values.role)
}
