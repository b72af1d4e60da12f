import { Type } from '@sinclair/typebox'
import { hashLeaf } from '../audit/hash.ts'
import { parseTilePath } from '../audit/tiles.ts'
import { consistencyJson, inclusionJson } from '../audit/wire.ts'
import { Failure } from '../base/failure.ts'
import type { OpsHouse } from './port.ts'
import { type AdminRoute, type Answer, adminRoute, openRoute } from './route.ts'

const closed = { additionalProperties: false } as const
const size = (description: string) => Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, description })

const HASH = 'NohFywIqYB4PX63ow5Aw8dq0lntO4TYKZKVayG4U2O4='
const NOTE = `weir.example.com/log\n42\n${HASH}\n\n— weir.example.com/log 1lepIUflbRzrRBbfNPi/DlZ/Z24AxLIciWSvNNLd/ATYfHrkwxCb3qxhyY7Wm0PqdG6Nb/1qpkg4NxTrK1YOIieAuwA=\n`
const KEY = 'weir.example.com/log+d657a921+AXV1dXV1dXV1dXV1dXV1dXV1dXV1dXV1dXV1dXV1dXV1'

const tile = (path: string): AdminRoute =>
  openRoute(
    {
      method: 'GET',
      path: `/audit/tile/${path}`,
      tag: 'audit',
      summary: 'A tile of hashes, or a bundle of entries',
      description:
        'C2SP tlog-tiles, for log monitors: `tile/LEVEL/NUMBER`, `tile/entries/NUMBER`, a partial one ending in `.p/WIDTH`.',
      answers: 'application/octet-stream',
      example: '32 bytes a hash',
      failures: ['not_found'],
      run: ({ params }, { audit }) => {
        const steps = path.split('/').map((step) => params[step.slice(1)] ?? '')
        const asked = parseTilePath(`tile/${steps.join('/')}`)
        if (asked === undefined) return new Failure('not_found', { says: 'No tile has such an address.' })
        const reader = audit.reader()
        const bytes = reader instanceof Failure ? reader : reader.tile(asked)
        return bytes instanceof Failure ? bytes : { body: bytes, type: 'application/octet-stream' }
      },
    },
    ({ level }) => level !== 'entries',
  )

/** The Merkle log: what anyone needs who checks the ledger. */
export const AUDIT_ROUTES: readonly AdminRoute[] = [
  openRoute({
    method: 'GET',
    path: '/audit/checkpoint',
    tag: 'audit',
    summary: 'The newest signed checkpoint',
    description:
      'A C2SP signed note: origin, size and root of the log, its signature, and those of witnesses. Keep one: later proofs can be held against it.',
    answers: 'text/plain; charset=utf-8',
    example: NOTE,
    failures: ['not_found'],
    run: (_asked, { audit }) => {
      const reader = audit.reader()
      const latest = reader instanceof Failure ? reader : reader.latest()
      if (latest instanceof Failure) return latest
      if (latest === undefined) return new Failure('not_found', { says: 'The log has no checkpoint yet.' })
      return { body: latest.note, type: 'text/plain; charset=utf-8' }
    },
  }),
  adminRoute({
    method: 'GET',
    path: '/audit/entries/:index',
    tag: 'audit',
    summary: 'One leaf of the log',
    description:
      '`leaf` is its bytes in base64, canonical JSON (RFC 8785) of a row of the ledger; `entry` the same as JSON.',
    example: { index: 41, leaf_hash: HASH, leaf: 'eyJhdF9tcyI6MX0=', entry: { at_ms: 1, type: 'refusal' } },
    failures: ['not_found'],
    run: ({ params }, { audit }) => {
      const reader = audit.reader()
      if (reader instanceof Failure) return reader
      const index = /^\d{1,15}$/.test(params['index'] ?? '') ? Number(params['index']) : -1
      const leaf = index < 0 || index >= reader.size() ? undefined : reader.leaf(index)
      if (leaf === undefined)
        return new Failure('not_found', {
          says: `The log has leaves 0 to ${reader.size() - 1}; a row is signed within a second.`,
        })
      if (leaf instanceof Failure) return leaf
      const entry: unknown = JSON.parse(new TextDecoder().decode(leaf))
      return { json: { index, leaf_hash: hashLeaf(leaf).toBase64(), leaf: leaf.toBase64(), entry } }
    },
  }),
  openRoute({
    method: 'GET',
    path: '/audit/inclusion',
    tag: 'audit',
    summary: 'Proof that a leaf is in the log',
    description: 'RFC 9162 §2.1.3. `size` is that of the newest checkpoint if absent.',
    query: Type.Object(
      { index: size('Number of the leaf.'), size: Type.Optional(size('Size of the log to prove it in.')) },
      closed,
    ),
    example: { index: 1, size: 2, leaf_hash: HASH, root: HASH, proof: [HASH] },
    failures: ['not_found'],
    run: ({ query }, house) =>
      answered(house, (reader) => {
        const claim = reader.inclusion(query.index, query.size)
        return claim instanceof Failure ? claim : { json: inclusionJson(claim) }
      }),
  }),
  openRoute({
    method: 'GET',
    path: '/audit/consistency',
    tag: 'audit',
    summary: 'Proof that the log only grew',
    description:
      'RFC 9162 §2.1.4. `to` is the newest checkpoint’s size if absent; then the checkpoint and the keys come along, and `weir verify` takes the answer as it is.',
    query: Type.Object(
      { from: size('The earlier size, at least 1.'), to: Type.Optional(size('The later size.')) },
      closed,
    ),
    example: { from: 1, to: 2, from_root: HASH, to_root: HASH, proof: [HASH], checkpoint: NOTE, public_keys: [KEY] },
    failures: ['not_found'],
    run: ({ query }, house) =>
      answered(house, (reader) => {
        const claim = reader.consistency(query.from, query.to)
        if (claim instanceof Failure) return claim
        const latest = reader.latest()
        const public_keys = house.audit.publicKeys()
        if (latest instanceof Failure) return latest
        if (public_keys instanceof Failure) return public_keys
        const signed = latest?.checkpoint.size === claim.to && { checkpoint: latest.note, public_keys }
        return { json: { ...consistencyJson(claim), ...signed } }
      }),
  }),
  openRoute({
    method: 'GET',
    path: '/audit/public-key',
    tag: 'audit',
    summary: 'The keys of the log',
    description:
      '`public_key` is the current key’s 32 bytes (Ed25519), `verifier_key` the same as C2SP notes name it, `keys` all there ever were, oldest first.',
    example: { origin: 'weir.example.com/log', public_key: HASH, verifier_key: KEY, keys: [KEY] },
    failures: ['not_found'],
    run: (_asked, { audit }) => {
      const keys = audit.publicKeys()
      if (keys instanceof Failure) return keys
      const verifier_key = keys.at(-1) ?? ''
      const [origin = ''] = verifier_key.split('+')
      const typed = Buffer.from(verifier_key.slice(origin.length + 10), 'base64')
      return { json: { origin, public_key: typed.subarray(1).toString('base64'), verifier_key, keys } }
    },
  }),
  ...[':level/:one', ':level/:one/:two', ':level/:one/:two/:three', ':level/:one/:two/:three/:four'].map(tile),
]

const answered = (
  { audit }: OpsHouse,
  ask: (reader: Exclude<ReturnType<OpsHouse['audit']['reader']>, Failure>) => Answer | Failure,
): Answer | Failure => {
  const reader = audit.reader()
  return reader instanceof Failure ? reader : ask(reader)
}
