import { Failure } from '../base/failure.ts'
import { giveRate, type RateState, takeRate } from '../quota/gcra.ts'
import { type Claim, takeCounts } from '../table/counts.ts'
import { type Subject, subjectOf } from '../table/table.ts'
import { parseBody, readBody } from './body.ts'
import { type Call, type Identified, type Limited, pass } from './call.ts'
import type { House } from './house.ts'
import { mayUse } from './identify.ts'

/**
 * Holds the call to its limits. What the head alone decides (calls at once, requests a minute, for key and tenant, all
 * or none) comes before the body is read; then the body is read, the model is known, and what depends on it is decided.
 */
export const limit = async (call: Identified, house: House): Promise<Limited | Failure> => {
  const refused = takeConcurrency(call, house) ?? takeRequests(call, house)
  if (refused) return refused
  const { server } = call.catalogue.config
  const bytes = await readBody(call.arrival.request, server.body_bytes_max, server.body_ms)
  if (bytes instanceof Failure) return bytes
  house.metrics.add('bytes_in', bytes.length)
  const needs_model = call.arrival.endpoint.kind === 'engine'
  const body = parseBody(bytes, needs_model)
  if (body instanceof Failure) return body
  const open: Call = call
  open.body = body
  if (needs_model) {
    const model = call.catalogue.models.get(body.model)
    // One answer for both, or a key could find out which models exist.
    if (model === undefined || !mayUse(call.key, call.tenant, body.model))
      return new Failure('model_unknown', {
        says: `The model ${JSON.stringify(body.model)} does not exist or this key may not use it.`,
        param: 'model',
      })
    open.model = model
  }
  return pass<Limited>(call, 'limit')
}

const takeConcurrency = (call: Identified, house: House): Failure | undefined => {
  const claims: Claim[] = []
  const named: string[] = []
  const wanted = [
    ['key', keySubject(call, house), call.key.concurrent],
    ['tenant', call.tenant.subject, call.tenant.config.limits.concurrent],
  ] as const
  for (const [name, subject, limit] of wanted) {
    if (subject === undefined) return new Failure('table_full', { retry_after_s: 60 })
    claims.push({ subject, limit: limit ?? 0x7fff_ffff })
    named.push(name)
  }
  const refused = takeCounts(house.table, house.worker, claims)
  if (refused < 0) {
    const open: Call = call
    open.claims = claims
    return undefined
  }
  return new Failure('concurrency_exceeded', {
    says: `This ${named[refused]} may have ${claims[refused]!.limit} calls at once.`,
    retry_after_s: 1,
  })
}

const takeRequests = (call: Identified, house: House): Failure | undefined => {
  const key_limit = call.key.requests_per_minute
  const tenant_limit = call.tenant.config.limits.requests_per_minute
  let key_rate: RateState | undefined
  const open: Call = call
  if (key_limit !== undefined) {
    const subject = keySubject(call, house)!
    open.rate = key_rate = takeRate(house.table, subject, 'rate_tat_ns', key_limit, 1, call.received_at_ms)
    if (!key_rate.admitted) return rateExceeded('key', key_rate)
  }
  if (tenant_limit !== undefined) {
    const rate = takeRate(house.table, call.tenant.subject, 'rate_tat_ns', tenant_limit, 1, call.received_at_ms)
    if (key_rate === undefined || !rate.admitted || rate.remaining < key_rate.remaining) open.rate = rate
    if (!rate.admitted) {
      if (key_limit !== undefined) giveRate(house.table, keySubject(call, house)!, 'rate_tat_ns', key_limit, 1)
      return rateExceeded('tenant', rate)
    }
  }
  return undefined
}

const rateExceeded = (whose: string, rate: RateState): Failure =>
  new Failure('rate_exceeded', {
    says: `The limit of ${rate.limit} requests a minute for this ${whose} is used up.`,
    retry_after_s: rate.retry_after_ms / 1000,
    headers: rateHeaders(rate),
  })

/** `x-ratelimit-*` as OpenAI names them; reset in seconds. */
export const rateHeaders = (rate: RateState): Record<string, string> => ({
  'x-ratelimit-limit-requests': String(rate.limit),
  'x-ratelimit-remaining-requests': String(rate.remaining),
  'x-ratelimit-reset-requests': `${Math.ceil(rate.reset_ms / 1000)}s`,
})

const keySubject = (call: Identified, house: House): Subject | undefined => subjectOf(house.table, 'key', call.key.id)
