import { chmodSync, readFileSync, writeFileSync } from 'node:fs'
import { startSignals } from '../balance/signals.ts'
import { openAuditView } from '../admin/audit-view.ts'
import { nowMs } from '../base/clock.ts'
import { Failure } from '../base/failure.ts'
import { newSecret } from '../base/ids.ts'
import { demo_tenant } from '../config/demo.ts'
import type { NumberedConfig } from '../config/load.ts'
import { opsPlane } from '../http/ops-plane.ts'
import { startProofs } from '../http/proof-service.ts'
import { openReader, openWriter, type Store } from '../ledger/database.ts'
import { allKeys, createKey, keyOfSecret, sha256Hex } from '../ledger/keys-store.ts'
import { tenantIncreases } from '../ledger/adjustment-orders.ts'
import { allTenants } from '../ledger/tenants-store.ts'
import { appendKeys, writeKeyFile } from '../table/key-file.ts'
import { HEADER } from '../table/layout.ts'
import { openTable } from '../table/table.ts'
import type { ChildContext, ChildLife } from './child.ts'
import type { Boot } from './messages.ts'
import { startSweeper } from './sweeper.ts'

/** The control process: the ops plane, and the one writer of keys and tenants. */
export const runControl = async (context: ChildContext): Promise<ChildLife> => {
  const { boot, log, ready, tell } = context
  const { files } = boot
  const table = openTable(files.table)
  const store = openWriter(files.data, 'house')
  if (boot.demo) makeDemoKey(store, boot, tell)
  // A control process that is restarted must not replace the file that workers have read: it says everything again.
  if (Atomics.load(table.i64, HEADER.key_file_bytes) === 0n) writeKeyFile(files.keys, table, allKeys(store))
  else appendKeys(files.keys, table, allKeys(store))
  const announceTenants = () =>
    context.tenants(
      allTenants(store).map(({ tenant }) => tenant),
      tenantIncreases(store, nowMs()),
    )
  announceTenants()
  let current: NumberedConfig = boot
  const ledger_reader = openReader(files.data, 'ledger')
  const audit = openAuditView(files.audit, files.letters)
  const app = opsPlane({
    table,
    catalogue: () => current,
    house_db: store,
    ledger_reader,
    audit,
    key_file_path: files.keys,
    admin_token_sha256: sha256Hex(adminToken(boot)),
    tenantsChanged: announceTenants,
    now: nowMs,
    log,
  }).listen({ port: boot.port, hostname: boot.config.server.ops_host, reusePort: false })
  const signals = startSignals({ config: boot.config, table, fetch, now: nowMs, log })
  const sweeper = startSweeper(files.idempotency, table, () => current.config, log)
  const proofs = startProofs(`${files.data}/run/control.sock`, { ledger_reader, audit }, log)
  ready(app.server!.port!)
  return {
    onConfig: (message) => {
      current = message
      signals.reload(message.config)
    },
    drain: async () => {
      signals.stop()
      sweeper.stop()
      proofs.stop()
      await app.server?.stop(true)
      store.sqlite.close()
    },
  }
}

/** The operator's token: from the environment, else from its file, else a new one in its file. */
const adminToken = (boot: Boot): string => {
  if (boot.admin_token !== undefined) return boot.admin_token
  try {
    const kept = readFileSync(boot.files.admin_token, 'utf8').trim()
    if (kept !== '') return kept
  } catch (cause) {
    if ((cause as { code?: string }).code !== 'ENOENT') throw cause
  }
  const token = newSecret()
  writeFileSync(boot.files.admin_token, `${token}\n`, { mode: 0o600 })
  chmodSync(boot.files.admin_token, 0o600)
  return token
}

/** The key of the demo tenant: the one that was given, or a new one if there is none yet, told once. */
const makeDemoKey = (store: Store, boot: Boot, tell: (text: string) => void): void => {
  if (boot.demo_key !== undefined && keyOfSecret(store, boot.demo_key) !== undefined) return
  if (boot.demo_key === undefined && allKeys(store).some((key) => key.tenant === demo_tenant)) return
  const secret = boot.demo_key === undefined ? {} : { secret: boot.demo_key }
  const made = createKey(store, { tenant: demo_tenant, name: 'demo', ...secret }, nowMs())
  if (made instanceof Failure) throw new Error(`WEIR_DEMO_KEY cannot be used: ${made.detail.says ?? made.code}`)
  if (boot.demo_key === undefined) tell(`demo key (shown once): ${made.secret}`)
}
