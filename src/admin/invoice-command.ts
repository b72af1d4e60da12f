import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { openAuditView } from './audit-view.ts'
import { nowMs } from '../base/clock.ts'
import { Failure } from '../base/failure.ts'
import { variable } from '../config/interpolate.ts'
import { fileOf, openReader, type Store } from '../ledger/database.ts'
import { invoiceCsv } from '../ledger/invoice-csv.ts'
import { type InvoicePeriod, invoicePeriod, invoiceTimezone, makeInvoice } from '../ledger/invoice.ts'
import { readTenant } from '../ledger/tenants-store.ts'
import { invoiceProofs } from './invoice-proof.ts'
import { type Asking, flagsOf, UsageFault } from './cli-flags.ts'
import { askText, type CommandResult, type Env, houseOf, Trouble } from './running-house.ts'

export const INVOICE_USAGE = `weir invoice --tenant T --month YYYY-MM [--format json|csv] [--proofs] [--timezone Z] [--offline]
Asks a running house (--ops URL, WEIR_OPS_URL or http://127.0.0.1:PORT with WEIR_OPS_PORT or 9090; the admin token by
WEIR_ADMIN_TOKEN or DIR/admin-token with --data DIR). With --offline it reads the ledger in --data DIR itself, running or
not. The month is one of the tenant's budget's time zone, which --offline knows only of tenants that the API made: else
it is UTC or what --timezone says. --proofs prints the proofs of all its calls and orders instead, for weir verify.
`

const FLAGS = ['tenant', 'month', 'format', 'timezone', 'proofs!', 'offline!', 'ops', 'data']

/** `weir invoice …`: `argv` begins after `invoice`. Never throws for what a user can cause. */
export const invoiceCommand = async (argv: readonly string[], env: Env): Promise<CommandResult> => {
  if (argv[0] === '--help' || argv[0] === 'help') return { exit_code: 0, stdout: INVOICE_USAGE, stderr: '' }
  try {
    const asking = flagsOf(argv, FLAGS, 0)
    const wanted = wantedOf(asking)
    const stdout =
      asking.flags['offline'] === undefined
        ? await fromHouse(wanted, asking, env)
        : await fromFolder(wanted, asking.flags['data'] ?? variable(env, 'WEIR_DATA') ?? './data')
    return { exit_code: 0, stdout: stdout.endsWith('\n') ? stdout : `${stdout}\n`, stderr: '' }
  } catch (cause) {
    if (cause instanceof UsageFault)
      return { exit_code: 2, stdout: '', stderr: `weir invoice: ${cause.message}\n\n${INVOICE_USAGE}` }
    if (cause instanceof Trouble) return { exit_code: 1, stdout: '', stderr: `weir invoice: ${cause.message}\n` }
    throw cause
  }
}

type Wanted = {
  readonly tenant: string
  readonly month: string
  readonly format: 'json' | 'csv'
  readonly timezone: string | undefined
  readonly proofs: boolean
}

const wantedOf = ({ flags }: Asking): Wanted => {
  const { tenant, month, format = 'json', timezone, proofs } = flags
  if (tenant === undefined) throw new UsageFault('--tenant is missing')
  if (month === undefined) throw new UsageFault('--month is missing')
  if (!/^\d{4}-(0[1-9]|1[0-2])$/.test(month)) throw new UsageFault(`--month needs YYYY-MM; found "${month}"`)
  if (format !== 'json' && format !== 'csv') throw new UsageFault(`--format needs json or csv; found "${format}"`)
  if (proofs !== undefined && format === 'csv')
    throw new UsageFault('--proofs are JSON; found --format csv beside them')
  return { tenant, month, format, timezone, proofs: proofs !== undefined }
}

const fromHouse = ({ tenant, month, format, timezone, proofs }: Wanted, asking: Asking, env: Env): Promise<string> => {
  const query = new URLSearchParams({ ...(!proofs && { format }), ...(timezone !== undefined && { timezone }) })
  const path = `/admin/invoices/${encodeURIComponent(tenant)}/${month}${proofs ? '/proofs' : ''}?${query}`
  return askText(houseOf(asking, env), 'GET', path)
}

const fromFolder = async (wanted: Wanted, data: string): Promise<string> => {
  if (!existsSync(fileOf(data, 'ledger')))
    throw new Trouble(`there is no ledger in ${data}; --data names another folder`)
  const ledger = openReader(data, 'ledger')
  const house = openReader(data, 'house')
  try {
    const made = readTenant(house, wanted.tenant)?.tenant
    const period = invoicePeriod(wanted.month, wanted.timezone ?? invoiceTimezone(made))
    if (period instanceof Failure) throw new UsageFault(period.detail.says ?? period.code)
    if (wanted.proofs) return proofsOf(ledger, wanted.tenant, period, data)
    const invoice = await makeInvoice(ledger, wanted.tenant, period, nowMs())
    return wanted.format === 'csv' ? invoiceCsv(invoice) : JSON.stringify(invoice, null, 2)
  } finally {
    ledger.sqlite.close()
    house.sqlite.close()
  }
}

const proofsOf = (ledger: Store, tenant: string, period: InvoicePeriod, data: string): string => {
  const text = invoiceProofs(
    { ledger_reader: ledger, audit: openAuditView(join(data, 'audit'), join(data, 'run/letters')) },
    tenant,
    period,
  )
  if (text instanceof Failure) throw new Trouble(text.detail.says ?? text.code)
  return text
}
