/** What the description of the client API says of headers. */

const header = (description: string, schema: object = { type: 'string' }) => ({ description, schema })
const number = { type: 'integer' }

/** Headers of an answer to a call, as OpenAPI describes them. */
export const ANSWER_HEADERS = {
  'x-weir-call-id': header('Id of the call: quote it when you ask about a call.'),
  'x-weir-model': header('The model that answered, which may be a fallback.'),
  'x-weir-engine': header('The engine that answered.'),
  'x-weir-cost-usd': header('What the call costs; on answers that are not streams.'),
  'x-weir-replayed': header('`true` if it is the first answer to this Idempotency-Key.'),
  'x-ratelimit-limit-requests': header('Requests a minute.', number),
  'x-ratelimit-remaining-requests': header('What is left of them.', number),
  'x-ratelimit-reset-requests': header('Until all are back, such as `12s`.'),
  'x-ratelimit-limit-tokens': header('Tokens a minute.', number),
  'x-ratelimit-remaining-tokens': header('What is left of them; the most that this call may use is taken off.', number),
  'x-ratelimit-reset-tokens': header('Until all are back.'),
}

/** Headers that a call may carry besides its key and those of jobs. */
export const REQUEST_HEADERS = [
  ['traceparent', 'W3C trace context, passed on to the engine.'],
  [
    'x-weir-session',
    'A name of your own for a conversation: where the model balances by `session_affinity`, its calls go to the same engine while that is healthy and has room.',
  ],
  [
    'x-weir-priority',
    '`high`, `normal` or `low`: whose turn comes first while calls wait for an engine. Capped by the tenant and the key; anything else is `normal`.',
  ],
  [
    'Idempotency-Key',
    'A name of your own for this call, at most 255 characters. Sent again with the same body and API key, within a day, it gets the first answer again, byte for byte, and is charged once (`x-weir-replayed: true`). While the first runs the answer is 409, with another body 422; after a failure, or an answer that was cut, it runs anew.',
  ],
].map(([name, description]) => ({ in: 'header', name, required: false, description, schema: { type: 'string' } }))
