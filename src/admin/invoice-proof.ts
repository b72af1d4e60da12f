import { Failure } from '../base/failure.ts'
import { invoiceBundle } from '../ledger/invoice-proofs.ts'
import { postedOrders } from '../ledger/invoice-sums.ts'
import type { InvoicePeriod } from '../ledger/invoice.ts'
import type { OpsHouse } from './port.ts'

/** Calls and orders of which the proofs are made at one asking: about a kilobyte each. */
const LINES_MAX = 50_000

/** The proofs of every call and order of an invoice in one bundle for `weir verify`; a failure if they are too many. */
export const invoiceProofs = (
  {
    ledger_reader,
    audit,
  }: Pick<OpsHouse, 'ledger_reader'> & { readonly audit: Pick<OpsHouse['audit'], 'reader' | 'publicKeys'> },
  tenant: string,
  { from_ms, to_ms }: InvoicePeriod,
): string | Failure => {
  const calls = ledger_reader.sqlite
    .query<{ n: bigint }, [string, number, number]>(
      'SELECT count(*) AS n FROM calls WHERE tenant = ? AND at_ms >= ? AND at_ms < ?',
    )
    .get(tenant, from_ms, to_ms)
  const lines = Number(calls?.n ?? 0n) + postedOrders(ledger_reader, tenant, from_ms, to_ms).length
  if (lines > LINES_MAX)
    return new Failure('field_invalid', {
      says: `month: the proofs of ${lines} calls and orders are too many for one answer; at most ${LINES_MAX}.`,
      param: 'month',
    })
  const reader = audit.reader()
  if (reader instanceof Failure) return reader
  const keys = audit.publicKeys()
  if (keys instanceof Failure) return keys
  const pieces = invoiceBundle(ledger_reader, reader, keys, { tenant, from_ms, to_ms })
  let text = ''
  for (;;) {
    const { done, value } = pieces.next()
    if (done) return value ?? text
    text += value
  }
}
