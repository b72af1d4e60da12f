import type { Failure } from '../base/failure.ts'
import { answerOf } from './answer-headers.ts'
import type { Routed } from './call.ts'
import type { House } from './house.ts'
import { keepAnswer } from './idempotency.ts'
import { onDisk } from './relay-whole.ts'
import { endCall } from './settle.ts'
import { sha256 } from './body.ts'

const BEFORE = Buffer.from('{"status":"success","received":')
const AFTER = Buffer.from('}')

/** Answers `/data` itself: the body as it came, byte for byte, in the envelope that load tests expect. */
export const echo = async (call: Routed, house: House): Promise<Response | Failure> => {
  const bytes = Buffer.concat([BEFORE, call.body.bytes.subarray(call.body.scan.bom ? 3 : 0), AFTER])
  house.metrics.add('answers_2xx', 1)
  house.metrics.add('bytes_out', bytes.length)
  const headers = { 'content-type': 'application/json', 'x-weir-call-id': call.id }
  if (call.keeping) await keepAnswer(call, house, 200, headers, bytes)
  const position = endCall(call, house, { ending: 'whole', status: 200, response_sha256: sha256(bytes) })
  const failed = position === undefined ? undefined : await onDisk(position, call, house)
  return failed ?? answerOf(bytes as BodyInit, headers)
}
