import { priceAt } from '../balance/catalogue.ts'
import { usd } from '../base/money.ts'
import type { Call } from './call.ts'
import { chargeNanodollars, servingModel } from './charge.ts'
import type { Tokens } from './estimate.ts'
import { addRateHeaders } from './rate-headers.ts'

/** By lower-case name. */
export type AnswerHeaders = Record<string, string>

/** A `Headers` that is filled anew for each answer with these names, and what stands in it. */
type Form = { readonly names: readonly string[]; readonly values: string[]; readonly headers: Headers }

/** The forms used last, the newest first. */
const forms: Form[] = []
const FORMS_MAX = 4

/**
 * An answer with these headers. The response copies a `Headers` in a quarter of the time in which it takes up a plain
 * object, and from one answer to the next only a few values change.
 */
export const answerOf = (body: BodyInit, headers: AnswerHeaders, status = 200): Response =>
  new Response(body, { status, headers: formOf(headers) })

const formOf = (headers: AnswerHeaders): Headers => {
  const names = Object.keys(headers)
  const known = forms.find((form) => sameNames(form.names, names))
  if (known === undefined) {
    const form = { names, values: Object.values(headers), headers: new Headers(headers) }
    forms.unshift(form)
    forms.length = Math.min(forms.length, FORMS_MAX)
    return form.headers
  }
  for (let at = 0; at < names.length; at++) {
    const value = headers[names[at]!]!
    if (value === known.values[at]) continue
    // In this order: a value that no header can carry throws, and must not count as set.
    known.headers.set(names[at]!, value)
    known.values[at] = value
  }
  return known.headers
}

const sameNames = (one: readonly string[], other: readonly string[]): boolean => {
  if (one.length !== other.length) return false
  for (let at = 0; at < one.length; at++) if (one[at] !== other[at]) return false
  return true
}

/** The gateway's own headers on an answer: what answered, under which id, and what is left of the limits. */
export const answerHeaders = (call: Call, content_type: string): AnswerHeaders => {
  const { target } = call
  const headers: AnswerHeaders = { 'content-type': content_type, 'x-weir-call-id': call.id }
  if (target) {
    headers['x-weir-model'] = target.model
    headers['x-weir-engine'] = target.engine.name
  }
  addRateHeaders(headers, call.rate, call.token_rate)
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
