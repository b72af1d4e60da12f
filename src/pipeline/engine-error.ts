import type { AnswerError } from '../engines/answer-error.ts'

/** What engines call their errors where they give no number, and the status that it stands for. */
const BY_NAME: Readonly<Record<string, number | undefined>> = Object.assign(Object.create(null), {
  invalid_request_error: 400,
  badrequesterror: 400,
  context_length_exceeded: 400,
  content_filter: 400,
  content_policy_violation: 400,
  unprocessableentityerror: 422,
  authentication_error: 401,
  authenticationerror: 401,
  invalid_api_key: 401,
  permission_error: 403,
  permissiondeniederror: 403,
  not_found_error: 404,
  notfounderror: 404,
  model_not_found: 404,
  request_too_large: 413,
  rate_limit_error: 429,
  ratelimiterror: 429,
  rate_limit_exceeded: 429,
  insufficient_quota: 429,
  overloaded_error: 529,
})

/**
 * The status that an error inside a 200 would have had: its numeric code, else what its code or type stands for, else
 * 502. Always in [400, 599].
 */
export const errorStatus = ({ code, type }: AnswerError): number => {
  const number = /^\d{3}$/.test(code) ? Number(code) : 0
  if (number >= 400 && number <= 599) return number
  return BY_NAME[code.toLowerCase()] ?? BY_NAME[type.toLowerCase()] ?? 502
}

/** Characters of an error in no known shape that the client gets to see. */
const SAYS_MAX = 1_024

/**
 * The error as an OpenAI client reads it: the engine's own bytes if they hold an `error` object, else one made of what
 * could be read of them.
 */
export const errorJson = (bytes: Uint8Array | undefined, { message, type, code }: AnswerError): Uint8Array => {
  const json = bytes === undefined ? undefined : Buffer.from(bytes).toString('utf8').toWellFormed()
  if (json !== undefined && /"error"\s*:\s*\{/.test(json)) return bytes!
  const says = message === '' ? (json?.slice(0, SAYS_MAX) ?? 'The engine failed.') : message
  const named = {
    message: says,
    type: type === '' ? 'server_error' : type,
    param: null,
    code: code === '' ? null : code,
  }
  return Buffer.from(JSON.stringify({ error: named }))
}
