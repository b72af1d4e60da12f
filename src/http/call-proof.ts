import { Failure } from '../base/failure.ts'
import type { AskProof, House } from '../pipeline/house.ts'
import { whoCalls } from '../pipeline/identify.ts'

/** The address of a call's proof, in the router's form. */
export const PROOF_PATH = '/v1/calls/:id/proof'

const IN_FLIGHT_MAX = 8
const ANSWER_MS = 5_000

/** Asks the control process for proofs over its socket; few at a time, since it serves the operator as well. */
export const proofAsker = (socket: string): AskProof => {
  let in_flight = 0
  return async (id, tenant, from) => {
    if (in_flight >= IN_FLIGHT_MAX) return later('Too many proofs are asked for at once.')
    in_flight++
    try {
      const query = new URLSearchParams({ id, tenant, ...(from !== undefined && { from: String(from) }) })
      const signal = AbortSignal.timeout(ANSWER_MS)
      const response = await fetch(`http://control/proof?${query}`, { unix: socket, signal, redirect: 'error' })
      if (response.ok) return await response.text()
      const { error } = (await response.json()) as { error: { message: string; param: string | null } }
      if (response.status === 404) return new Failure('not_found', { says: error.message })
      if (response.status !== 400) return later('The audit log cannot be read now.')
      return new Failure('field_invalid', { says: error.message, param: error.param ?? 'from' })
    } catch (cause) {
      return new Failure('overloaded', { says: 'Proofs cannot be made now.', retry_after_s: 1, cause })
    } finally {
      in_flight--
    }
  }
}

const later = (says: string): Failure => new Failure('overloaded', { says, retry_after_s: 1 })

/**
 * `GET /v1/calls/{id}/proof`: proof that one of the key's tenant's own calls is in the log, for `weir verify`; whose it is
 * not, to them there is no such call. `?from=SIZE` names the size of a checkpoint that the caller kept.
 */
export const callProof = async (request: Request, id: string, house: House): Promise<Response | Failure> => {
  const who = whoCalls(request.headers, house, house.now())
  if (who instanceof Failure) return who
  const from = URL.parse(request.url)?.searchParams.get('from') ?? undefined
  if (from !== undefined && !/^\d{1,15}$/.test(from))
    return new Failure('field_invalid', {
      param: 'from',
      says: 'from must be the size of a checkpoint, a whole number.',
    })
  const text = await house.askProof(id, who.tenant.config.name, from === undefined ? undefined : Number(from))
  if (text instanceof Failure) return text
  return new Response(text, { headers: { 'content-type': 'application/json', 'cache-control': 'no-store' } })
}
