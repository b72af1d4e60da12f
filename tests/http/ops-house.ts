import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openAuditView } from '../../src/admin/audit-view.ts'
import { type Config, type TenantConfig } from '../../src/config/schema.ts'
import { loadConfig } from '../../src/config/load.ts'
import { opsPlane } from '../../src/http/ops-plane.ts'
import { openReader, openWriter } from '../../src/ledger/database.ts'
import { HEADER, WORKER, WORKER_STATE } from '../../src/table/layout.ts'
import { createTable, workerF64, workerI32 } from '../../src/table/table.ts'

export const ADMIN_TOKEN = 'admin-token-of-the-test'
export const NOW_MS = Date.UTC(2026, 0, 31, 9, 30)

const YAML = `
engines:
  - { name: vllm-a, url: "http://127.0.0.1:9/v1", key: engine-secret, capacity: 8 }
  - { name: odd/name, url: "http://127.0.0.1:9/v1" }
models:
  - { name: llama, targets: [{ engine: vllm-a }], price: { input: "0.20", output: "0.60" } }
  - { name: mistral, targets: [{ engine: vllm-a }], free: true }
tenants:
  - { name: acme }
  - { name: org/team }
`

/** A real ops plane over real stores and a real shared table, in a folder of its own, listening on loopback. */
export const openOpsHouse = (yaml = YAML) => {
  const data = mkdtempSync(join(tmpdir(), 'weir-ops-'))
  const table = createTable(join(data, 'shared.table'), 256, NOW_MS)
  const key_file_path = join(data, 'keys.jsonl')
  writeFileSync(key_file_path, '')
  const loaded = loadConfig({ text: yaml, env: {} })
  if ('faults' in loaded) throw new Error(JSON.stringify(loaded.faults))
  const config: Config = loaded.config
  const house_db = openWriter(data, 'house')
  const ledger_db = openWriter(data, 'ledger')
  const ledger_reader = openReader(data, 'ledger')
  const told: TenantConfig[][] = []
  const logged: unknown[] = []
  const clock = { now_ms: NOW_MS }
  const app = opsPlane({
    table,
    catalogue: () => ({ config, generation: 3, origin: { file: '/etc/weir.yaml', sha256: null } }),
    house_db,
    ledger_reader,
    audit: openAuditView(join(data, 'audit'), join(data, 'letters'), 40),
    key_file_path,
    admin_token_sha256: Bun.SHA256.hash(ADMIN_TOKEN, 'hex'),
    tenantsChanged: (made) => told.push([...made]),
    now: () => clock.now_ms,
    log: (...line) => logged.push(line),
  })
  app.listen({ hostname: '127.0.0.1', port: 0 })
  const url = `http://127.0.0.1:${app.server?.port}`
  const ask = async (method: string, path: string, body?: unknown, headers: Record<string, string> = {}) => {
    const response = await fetch(`${url}${path}`, {
      method,
      headers: { authorization: `Bearer ${ADMIN_TOKEN}`, ...headers },
      ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    })
    const text = await response.text()
    const json = response.headers.get('content-type')?.startsWith('application/json') ? JSON.parse(text) : undefined
    return { status: response.status, headers: response.headers, text, json }
  }
  return {
    data,
    url,
    app,
    ask,
    table,
    config,
    key_file_path,
    house_db,
    ledger_db,
    told,
    logged,
    clock,
    /** Makes a worker look live, as its own process would. */
    enliven: (worker: number) => {
      table.i32[workerI32(worker, WORKER.pid)] = 1_000 + worker
      table.i32[workerI32(worker, WORKER.state)] = WORKER_STATE.live
      table.f64[workerF64(worker, WORKER.heartbeat_ms)] = clock.now_ms
    },
    makeReady: () => {
      table.i32[HEADER.accountant_ready] = 1
    },
    close: async () => {
      await app.stop(true)
      for (const store of [house_db, ledger_db, ledger_reader]) store.sqlite.close()
      rmSync(data, { recursive: true, force: true })
    },
  }
}

export type OpsTestHouse = ReturnType<typeof openOpsHouse>
