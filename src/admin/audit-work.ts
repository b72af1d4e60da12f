import { Type } from '@sinclair/typebox'
import { wholeBundle } from '../audit/bundle.ts'
import { Failure } from '../base/failure.ts'
import { quoted } from '../config/faults.ts'
import { type AdminAction, logged } from '../ledger/admin-log.ts'
import type { Letter } from '../ledger/mailbox.ts'
import { oneCall } from '../ledger/queries.ts'
import { strangerFault } from './invoices.ts'
import type { Operator } from './operator.ts'
import type { OpsHouse } from './port.ts'
import { type AdminRoute, type Answer, adminRoute } from './route.ts'

const closed = { additionalProperties: false } as const

/** A call's proof as a bundle; `tenant` bounds whose calls are found. A failure while no checkpoint covers it. */
export const callProof = (
  { ledger_reader, audit }: Pick<OpsHouse, 'ledger_reader' | 'audit'>,
  id: string,
  from?: number,
  tenant?: string,
): string | Failure => {
  const row = oneCall(ledger_reader, id)?.row
  if (row === undefined || (tenant !== undefined && row.tenant !== tenant))
    return new Failure('not_found', {
      says: `There is no call ${quoted(id)}; a call is posted within about a second of its end.`,
    })
  const reader = audit.reader()
  const keys = audit.publicKeys()
  if (reader instanceof Failure) return reader
  if (keys instanceof Failure) return keys
  if (row.log_index === null) return new Failure('not_found', { says: `Call ${quoted(id)} has no leaf.` })
  const line = { index: row.log_index, salt: row.salt?.toHex() ?? null }
  return wholeBundle(reader, keys, { kind: 'call', ...(from !== undefined && { from }) }, [line])
}

const From = Type.Optional(
  Type.Integer({
    minimum: 0,
    maximum: Number.MAX_SAFE_INTEGER,
    description: 'Size of a checkpoint that you kept; the proof then shows that the log only grew since.',
  }),
)

const BUNDLE_EXAMPLE = {
  format: 'weir-proof/1',
  kind: 'call',
  checkpoint: 'weir.example.com/log\n42\n…',
  public_keys: ['weir.example.com/log+d657a921+AXV1…'],
  lines: [{ index: 41, leaf: 'eyJhdF9tcyI6MX0=', path: [0, 1, 2], salt: '0f1e2d3c4b5a69788796a5b4c3d2e1f0' }],
  nodes: ['NohFywIqYB4PX63ow5Aw8dq0lntO4TYKZKVayG4U2O4=', '…', '…'],
}

/** What is done about the log: proofs of calls, its keys, the salts. */
export const AUDIT_WORK_ROUTES: readonly AdminRoute[] = [
  adminRoute({
    method: 'GET',
    path: '/admin/calls/:id/proof',
    tag: 'audit',
    summary: 'Proof that a call is in the log',
    description:
      'A file for `weir verify`, which needs nothing of this house. Its tenant gets the same at `/v1/calls/{id}/proof`.',
    query: Type.Object({ from: From }, closed),
    example: BUNDLE_EXAMPLE,
    failures: ['not_found'],
    run: ({ params, query }, house) => {
      const text = callProof(house, params['id'] ?? '', query.from)
      return text instanceof Failure ? text : { body: text, type: 'application/json' }
    },
  }),
  adminRoute({
    method: 'POST',
    path: '/admin/audit/rotate',
    tag: 'audit',
    summary: 'Begin to sign with a new key',
    description: 'One checkpoint is signed by both keys, the ones after it by the new one. Old checkpoints stay valid.',
    example: { verifier_key: 'weir.example.com/log+d657a921+AXV1…', checkpoint: 'weir.example.com/log\n42\n…' },
    failures: ['overloaded'],
    run: ({ operator }, house) => told(house, operator, { kind: 'rotate_key' }, 'audit.rotate', 'signing key'),
  }),
  adminRoute({
    method: 'POST',
    path: '/admin/audit/erase-salts',
    tag: 'audit',
    summary: 'Cut the link between a tenant’s rows and the bodies of its calls, for ever',
    description:
      'The rows and their proofs stay. What was said in a call can no longer be shown to belong to it, nor guessed.',
    body: Type.Object(
      { tenant: Type.String({ minLength: 1, maxLength: 128, description: 'Name of the tenant.' }) },
      closed,
    ),
    body_example: { tenant: 'acme' },
    example: { erased: 1_204 },
    failures: ['not_found', 'overloaded'],
    run: ({ operator, body }, house) =>
      strangerFault(body.tenant, house) ??
      told(house, operator, { kind: 'erase_salts', tenant: body.tenant }, 'audit.erase_salts', body.tenant),
  }),
]

const told = async (
  house: OpsHouse,
  { name: actor }: Operator,
  letter: Letter,
  action: string,
  subject: string,
): Promise<Answer | Failure> => {
  const done = await house.audit.ask(letter)
  if (done instanceof Failure) return done
  const { checkpoint: _note, ...detail } = done
  const noted = logged(
    house.house_db,
    () => done,
    (): AdminAction => ({ at_ms: Math.round(house.now()), actor, action, subject, detail }),
  )
  return noted instanceof Failure ? noted : { json: done }
}
