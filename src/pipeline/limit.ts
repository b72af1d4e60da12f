import { Failure } from '../base/failure.ts'
import { giveRate, takeRate } from '../quota/gcra.ts'
import { type Claim, takeCounts } from '../table/counts.ts'
import { type Subject, subjectOf } from '../table/table.ts'
import { type Body, parseBody, readBody } from './body.ts'
import { type Call, type Identified, type Limited, pass } from './call.ts'
import { takeHold } from './hold.ts'
import type { House } from './house.ts'
import { replay } from './idempotency.ts'
import { mayUse } from './identify.ts'
import { rateExceeded } from './rate-headers.ts'

/**
 * Holds the call to its limits. What the head alone decides (calls at once, requests a minute, for key and tenant, all
 * or none) comes before the body is read; then the body is read, the model is known, and what depends on it is decided.
 * A repeat of a call with an Idempotency-Key is answered here.
 */
export const limit = async (call: Identified, house: House): Promise<Limited | Response | Failure> => {
  const refused = takeLimits(call, house)
  if (refused) return refused
  const { request, endpoint } = call.arrival
  const { server } = call.catalogue.config
  const hold = (more_bytes: number) => house.bodies.take(call, more_bytes)
  const bytes = await readBody(request, server.body_bytes_max, server.body_ms, hold)
  if (bytes instanceof Failure) return bytes
  house.metrics.add('bytes_in', bytes.length)
  const needs_model = endpoint.kind === 'engine'
  const body = parseBody(bytes, needs_model)
  if (body instanceof Failure) return body
  const open: Call = call
  open.body = body
  if (needs_model) {
    const model = call.catalogue.models.get(body.model)
    // One answer for both, or a key could find out which models exist.
    if (model === undefined || !mayUse(call.key, call.tenant, body.model)) return modelUnknown(body)
    open.model = model
  }
  const repeat = replay(call, body, house)
  const replayed = repeat && (await repeat)
  if (replayed) return replayed
  const unheld = open.model && takeHold(call as Parameters<typeof takeHold>[0], house)
  return unheld ?? pass<Limited>(call, 'limit')
}

const modelUnknown = ({ model }: Body): Failure =>
  new Failure('model_unknown', {
    says: `The model ${JSON.stringify(model)} does not exist or this key may not use it.`,
    param: 'model',
  })

/** Takes from every limit of key and tenant, or from none. Places at once are held until the call ends. */
const takeLimits = (call: Identified, house: House): Failure | undefined => {
  const { key, tenant } = call
  let key_subject: Subject | undefined
  if (key.concurrent !== undefined || key.requests_per_minute !== undefined) {
    key_subject = subjectOf(house.table, 'key', key.id)
    if (key_subject === undefined) return new Failure('table_full', { retry_after_s: 60 })
  }
  const full = takePlaces(call, house, key_subject)
  if (full || call.arrival.counted) return full
  return takeRequests(call, house, key_subject, tenant.subject)
}

/** A key's own limits never change, so a key without them is not counted; a tenant's may with the next configuration. */
const takePlaces = (call: Identified, house: House, key_subject: Subject | undefined): Failure | undefined => {
  const { key, tenant } = call
  const claims: Claim[] = [{ subject: tenant.subject, limit: tenant.config.limits.concurrent ?? UNLIMITED }]
  if (key_subject !== undefined) claims.push({ subject: key_subject, limit: key.concurrent ?? UNLIMITED })
  const refused = takeCounts(house.table, house.worker, claims)
  if (refused >= 0)
    return new Failure('concurrency_exceeded', {
      says: `This ${refused === 0 ? 'tenant' : 'key'} may have ${claims[refused]!.limit} calls at once.`,
      retry_after_s: 1,
    })
  const open: Call = call
  open.claims = claims
  return undefined
}

const UNLIMITED = 0x7fff_ffff

const takeRequests = (
  call: Identified,
  house: House,
  key_subject: Subject | undefined,
  tenant_subject: Subject,
): Failure | undefined => {
  const { table } = house
  const now_ms = call.received_at_ms
  const key_limit = call.key.requests_per_minute
  const tenant_limit = call.tenant.config.limits.requests_per_minute
  const open: Call = call
  if (key_limit !== undefined) {
    open.rate = takeRate(table, key_subject!, 'rate_tat_ns', key_limit, 1, now_ms)
    if (!open.rate.admitted) return rateExceeded('key', open.rate)
  }
  if (tenant_limit !== undefined) {
    const rate = takeRate(table, tenant_subject, 'rate_tat_ns', tenant_limit, 1, now_ms)
    if (open.rate === undefined || !rate.admitted || rate.remaining < open.rate.remaining) open.rate = rate
    if (!rate.admitted) {
      if (key_limit !== undefined) giveRate(table, key_subject!, 'rate_tat_ns', key_limit, 1)
      return rateExceeded('tenant', rate)
    }
  }
  return undefined
}
