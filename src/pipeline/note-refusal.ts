import type { Failure } from '../base/failure.ts'
import type { Call } from './call.ts'
import { credential } from './credential.ts'
import { rememberRefusal } from './explain.ts'
import type { House } from './house.ts'

/** Remembers a refusal for `explain`, and counts it if it is of those that are counted; a call that has its intent in the journal is there anyway. */
export const noteRefusal = (failure: Failure, call: Call | undefined, house: House): void => {
  if (call !== undefined) rememberRefusal(failure, call, house)
  if ((failure.status !== 401 && failure.status !== 403 && failure.status !== 429) || call?.intended) return
  const key = call?.key ?? (KNOWN.has(failure.code) && call ? keyOf(call, house) : undefined)
  house.refusals.count(key?.id ?? '', key?.tenant ?? '', failure.code, house.now())
}

/** Failures of a key that is known, and not used for the call. */
const KNOWN: ReadonlySet<string> = new Set(['key_revoked', 'key_expired'])

const keyOf = (call: Call, house: House) => {
  const secret = credential(call.headers)
  return typeof secret === 'string' ? house.keys.by_sha256.get(Bun.SHA256.hash(secret, 'hex')) : undefined
}
