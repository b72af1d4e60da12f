import { priceAt } from '../balance/catalogue.ts'
import { usd } from '../base/money.ts'
import type { Call } from './call.ts'
import { chargeNanodollars, servingModel } from './charge.ts'
import type { Tokens } from './estimate.ts'
import { rateHeaders } from './rate-headers.ts'

/** The gateway's own headers on an answer: what answered, under which id, and what is left of the limits. */
export const answerHeaders = (call: Call, content_type: string): Headers => {
  const { target } = call
  return new Headers({
    'content-type': content_type,
    'x-weir-call-id': call.id,
    ...(target && { 'x-weir-model': target.model, 'x-weir-engine': target.engine.name }),
    ...(call.rate || call.token_rate ? rateHeaders(call.rate, call.token_rate) : undefined),
  })
}

/** What a stream needs so that nothing on its way holds it back. */
export const streamHeaders = (call: Call): Headers => {
  const headers = answerHeaders(call, 'text/event-stream; charset=utf-8')
  headers.set('cache-control', 'no-cache')
  headers.set('x-accel-buffering', 'no')
  return headers
}

/** The charge as `x-weir-cost-usd` shows it: the ledger's rule, rounded once. Undefined for a model without a price. */
export const costUsd = (call: Call, usage: Tokens): string | undefined => {
  const model = servingModel(call)
  const price = model && priceAt(model, call.received_at_ms)
  if (price === undefined) return undefined
  return usd(chargeNanodollars(price, usage))
}
