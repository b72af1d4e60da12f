import { Failure } from '../base/failure.ts'
import { fromBase64 } from './note.ts'
import type { ConsistencyClaim, InclusionClaim } from './verify.ts'

/** An inclusion proof as JSON; hashes and proof nodes are standard base64. */
export type InclusionJson = { index: number; size: number; leaf_hash: string; root: string; proof: string[] }

/** A consistency proof as JSON. */
export type ConsistencyJson = { from: number; to: number; from_root: string; to_root: string; proof: string[] }

/** Writes an inclusion proof for JSON. */
export const inclusionJson = ({ index, size, leaf_hash, root, proof }: InclusionClaim): InclusionJson => ({
  index,
  size,
  leaf_hash: base64(leaf_hash),
  root: base64(root),
  proof: proof.map(base64),
})

/** Writes a consistency proof for JSON. */
export const consistencyJson = ({ from, to, from_root, to_root, proof }: ConsistencyClaim): ConsistencyJson => ({
  from,
  to,
  from_root: base64(from_root),
  to_root: base64(to_root),
  proof: proof.map(base64),
})

/** Reads an inclusion proof; a failure names the field at fault. What it claims is for `verify.ts` to judge. */
export const readInclusion = (json: unknown): InclusionClaim | Failure => {
  const value = fields(json)
  const [index, size] = [value['index'], value['size']]
  if (typeof index !== 'number') return wrong('index', 'a number')
  if (typeof size !== 'number') return wrong('size', 'a number')
  const [leaf_hash, root, proof] = [bytes(value['leaf_hash']), bytes(value['root']), list(value['proof'])]
  if (!leaf_hash) return wrong('leaf_hash', 'base64')
  if (!root) return wrong('root', 'base64')
  return proof ? { index, size, leaf_hash, root, proof } : wrong('proof', 'a list of base64')
}

/** Reads a consistency proof; a failure names the field at fault. */
export const readConsistency = (json: unknown): ConsistencyClaim | Failure => {
  const value = fields(json)
  const [from, to] = [value['from'], value['to']]
  if (typeof from !== 'number') return wrong('from', 'a number')
  if (typeof to !== 'number') return wrong('to', 'a number')
  const [from_root, to_root, proof] = [bytes(value['from_root']), bytes(value['to_root']), list(value['proof'])]
  if (!from_root) return wrong('from_root', 'base64')
  if (!to_root) return wrong('to_root', 'base64')
  return proof ? { from, to, from_root, to_root, proof } : wrong('proof', 'a list of base64')
}

const base64 = (hash: Uint8Array): string => hash.toBase64()
const bytes = (value: unknown): Uint8Array | undefined => (typeof value === 'string' ? fromBase64(value) : undefined)

const list = (value: unknown): Uint8Array[] | undefined => {
  if (!Array.isArray(value)) return undefined
  const nodes = value.map(bytes)
  return nodes.every((node) => node !== undefined) ? nodes : undefined
}

const fields = (json: unknown): Record<string, unknown> =>
  typeof json === 'object' && json !== null ? (json as Record<string, unknown>) : {}

const wrong = (param: string, form: string): Failure =>
  new Failure('field_invalid', { param, says: `${param} must be ${form}.` })
