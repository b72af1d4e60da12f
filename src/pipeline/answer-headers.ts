import { priceAt } from '../balance/catalogue.ts'
import { usd } from '../base/money.ts'
import type { Call } from './call.ts'
import { chargeNanodollars, servingModel } from './charge.ts'
import type { Tokens } from './estimate.ts'
import { rateHeaders } from './rate-headers.ts'

/** By lower-case name: a plain object costs the response half of what a `Headers` does. */
export type AnswerHeaders = Record<string, string>

/** The gateway's own headers on an answer: what answered, under which id, and what is left of the limits. */
export const answerHeaders = (call: Call, content_type: string): AnswerHeaders => {
  const { target } = call
  const headers: AnswerHeaders = { 'content-type': content_type, 'x-weir-call-id': call.id }
  if (target) {
    headers['x-weir-model'] = target.model
    headers['x-weir-engine'] = target.engine.name
  }
  if (call.rate || call.token_rate) Object.assign(headers, rateHeaders(call.rate, call.token_rate))
  return headers
}

/** What a stream needs so that nothing on its way holds it back. */
export const streamHeaders = (call: Call): AnswerHeaders => {
  const headers = answerHeaders(call, 'text/event-stream; charset=utf-8')
  headers['cache-control'] = 'no-cache'
  headers['x-accel-buffering'] = 'no'
  return headers
}

/** The charge as `x-weir-cost-usd` shows it: the ledger's rule, rounded once. Undefined for a model without a price. */
export const costUsd = (call: Call, usage: Tokens): string | undefined => {
  const model = servingModel(call)
  const price = model && priceAt(model, call.received_at_ms)
  if (price === undefined) return undefined
  return usd(chargeNanodollars(price, usage, call.images))
}
