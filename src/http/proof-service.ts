import { chmodSync, rmSync } from 'node:fs'
import { callProof } from '../admin/audit-work.ts'
import type { OpsHouse } from '../admin/port.ts'
import { Failure } from '../base/failure.ts'
import type { Log } from '../observe/log.ts'
import { renderFailure } from './render.ts'

/**
 * Answers workers' requests for proofs on a socket in the house's own folder, which nobody else can enter: workers know
 * the caller's tenant, the control process has the ledger, and SQLite stays off the serving loops. Where the socket
 * cannot be made (its path may have some hundred bytes) that is logged, and there are no proofs on the data plane.
 */
export const startProofs = (
  socket: string,
  house: Pick<OpsHouse, 'ledger_reader' | 'audit'>,
  log: Log,
): { stop(): void } => {
  rmSync(socket, { force: true })
  try {
    const server = Bun.serve({ unix: socket, fetch: (request) => answer(new URL(request.url).searchParams, house) })
    chmodSync(socket, 0o600)
    return {
      stop: () => {
        void server.stop(true)
        rmSync(socket, { force: true })
      },
    }
  } catch (cause) {
    log('error', 'proofs_not_served', { socket, cause })
    return { stop: () => undefined }
  }
}

const answer = (asked: URLSearchParams, house: Pick<OpsHouse, 'ledger_reader' | 'audit'>): Response => {
  const from = asked.get('from')
  const size = from === null ? undefined : Number(from)
  const made = callProof(house, asked.get('id') ?? '', size, asked.get('tenant') ?? '')
  if (made instanceof Failure) return renderFailure(made)
  return new Response(made, { headers: { 'content-type': 'application/json' } })
}
