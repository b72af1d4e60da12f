import { Failure } from '../base/failure.ts'
import type { LogReader } from './read-side.ts'
import { type ConsistencyJson, consistencyJson } from './wire.ts'

/**
 * A proof that can be checked by anyone, offline, with nothing but the log's public key or a checkpoint kept from before:
 *
 *     { "format": "weir-proof/1" of calls, "weir-proof/2" of invoices; "kind": "call" | "invoice",
 *       "invoice": { "tenant", "from_ms", "to_ms", "calls", "charge_nanodollars",       of an invoice only
 *                    "orders", "refunds_nanodollars", "adjustments_nanodollars", "grants_nanodollars",
 *                    "total_nanodollars" },
 *       "checkpoint": "…",                      the signed note that covers all lines
 *       "public_keys": ["NAME+ID+BASE64", …],   every key that the log ever signed with, oldest first
 *       "consistency": { "from", "to", "from_root", "to_root", "proof" },              if one was asked for
 *       "lines": [{ "index", "leaf", "path": [3, 0, 7], "salt" }, …],
 *       "nodes": ["…", …] }
 *
 * `leaf` is the leaf's bytes in base64, `path` its inclusion path (RFC 9162 §2.1.3, lowest first) by numbers of `nodes`,
 * which all lines share; so a line costs at most log2(size) small numbers, and neighbours share most of their nodes.
 * An invoice has a line for each of its calls, and then one for each leaf with orders (refunds, adjustments, grants).
 * `salt` (hex, or null once erased, and of orders) lets who has a body check it: SHA-256(salt ‖ SHA-256 of the body).
 */
export type BundleHead = {
  readonly kind: 'call' | 'invoice'
  readonly invoice?: InvoiceHead
  /** Size of a checkpoint that the reader of the proof has: the bundle will show that the log only grew since. */
  readonly from?: number
}

/**
 * What an invoice claims: calls and orders of a tenant in [from_ms, to_ms) and their sums, decimal strings. Those of orders
 * are in the tenant's favour; the total is charges less refunds and less adjustments.
 */
export type InvoiceHead = {
  readonly tenant: string
  readonly from_ms: number
  readonly to_ms: number
  readonly calls: number
  readonly charge_nanodollars: string
  readonly orders: number
  readonly refunds_nanodollars: string
  readonly adjustments_nanodollars: string
  readonly grants_nanodollars: string
  readonly total_nanodollars: string
}

/** A line before it has its proof. */
export type BundleLine = { readonly index: number; readonly salt: string | null }

/** By kind. An invoice without orders was of the first as well. */
const FORMATS = { call: 'weir-proof/1', invoice: 'weir-proof/2' } as const

/**
 * The text of a bundle, piece by piece, so that one of any size needs memory for its nodes only. Ends with a failure if a
 * line is not covered by a checkpoint yet, or the log cannot be read; what was yielded before it is worth nothing then.
 */
export const bundleText = function* (
  reader: LogReader,
  public_keys: readonly string[],
  head: BundleHead,
  lines: Iterable<BundleLine>,
): Generator<string, Failure | undefined> {
  const latest = reader.latest()
  if (latest instanceof Failure) return latest
  if (latest === undefined) return new Failure('not_found', { says: 'The log has no checkpoint yet.' })
  const { size } = latest.checkpoint
  const consistency = consistencyFrom(reader, head.from, size)
  if (consistency instanceof Failure) return consistency
  const { kind, invoice } = head
  const known = { format: FORMATS[kind], kind, ...(invoice && { invoice }), checkpoint: latest.note, public_keys }
  yield `${JSON.stringify({ ...known, ...(consistency && { consistency }) }).slice(0, -1)},"lines":[`
  const nodes = new Map<string, number>()
  let comma = ''
  for (const { index, salt } of lines) {
    if (index >= size)
      return new Failure('not_found', { says: `Leaf ${index} is not signed yet; it is within a second.` })
    const leaf = reader.leaf(index)
    if (leaf instanceof Failure) return leaf
    const claim = reader.inclusion(index, size)
    if (claim instanceof Failure) return claim
    const path = claim.proof.map((node) => numberOf(nodes, node.toBase64()))
    yield `${comma}${JSON.stringify({ index, leaf: leaf.toBase64(), path, salt })}`
    comma = ','
  }
  yield `],"nodes":${JSON.stringify([...nodes.keys()])}}`
  return undefined
}

/** The whole text of a small bundle. */
export const wholeBundle = (...asked: Parameters<typeof bundleText>): string | Failure => {
  const pieces = bundleText(...asked)
  let text = ''
  for (;;) {
    const { done, value } = pieces.next()
    if (done) return value ?? text
    text += value
  }
}

const consistencyFrom = (
  reader: LogReader,
  from: number | undefined,
  to: number,
): ConsistencyJson | undefined | Failure => {
  if (from === undefined || from === 0) return undefined
  const claim = reader.consistency(from, to)
  return claim instanceof Failure ? claim : consistencyJson(claim)
}

const numberOf = (nodes: Map<string, number>, node: string): number => {
  const known = nodes.get(node)
  if (known !== undefined) return known
  nodes.set(node, nodes.size)
  return nodes.size - 1
}
