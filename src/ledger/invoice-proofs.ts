import { bundleText, type BundleLine } from '../audit/bundle.ts'
import type { LogReader } from '../audit/read-side.ts'
import type { Failure } from '../base/failure.ts'
import type { Store } from './database.ts'

/** Whose calls, and from when to when: half-open, [from_ms, to_ms). `from` is the size of a checkpoint that was kept. */
export type InvoiceAsked = {
  readonly tenant: string
  readonly from_ms: number
  readonly to_ms: number
  readonly from?: number
}

const WHOSE = 'FROM calls WHERE tenant = ? AND at_ms >= ? AND at_ms < ? AND log_index < ?'

/**
 * The text of an invoice's bundle (`audit/bundle.ts`), piece by piece: every call of a tenant in a time as a line with its
 * proof, and their sum. Calls that no checkpoint covers yet (of the last second) are left out, and of the claim as well.
 */
export const invoiceBundle = (
  { sqlite }: Store,
  reader: LogReader,
  public_keys: readonly string[],
  { tenant, from_ms, to_ms, from }: InvoiceAsked,
): Generator<string, Failure | undefined> => {
  const asked: [string, number, number, number] = [tenant, from_ms, to_ms, reader.size()]
  const sums = sqlite
    .prepare<{ n: bigint; sum: bigint }, typeof asked>(
      `SELECT count(*) AS n, coalesce(sum(charge_nanodollars), 0) AS sum ${WHOSE}`,
    )
    .get(...asked)
  const invoice = { tenant, from_ms, to_ms, calls: Number(sums?.n ?? 0n), charge_nanodollars: String(sums?.sum ?? 0n) }
  const rows = sqlite.prepare<{ log_index: bigint; salt: Uint8Array | null }, typeof asked>(
    `SELECT log_index, salt ${WHOSE} ORDER BY at_ms, id`,
  )
  const lines = function* (): Generator<BundleLine> {
    for (const { log_index, salt } of rows.iterate(...asked))
      yield { index: Number(log_index), salt: salt?.toHex() ?? null }
  }
  return bundleText(reader, public_keys, { kind: 'invoice', invoice, ...(from !== undefined && { from }) }, lines())
}
