import { type TenantIncrease, withIncreases } from '../config/budgets.ts'
import type { Config, TenantConfig } from '../config/schema.ts'

/** What a house serves beside what its file says. */
export type Additions = {
  /** The file's configuration with the demo engine, where nothing else is configured. */
  readonly withDemo: (config: Config) => Config
  /** Tenants that the admin API made. */
  readonly made_tenants: readonly TenantConfig[]
  /** Increases of budgets that the admin API made, of tenants from anywhere. */
  readonly increases: readonly TenantIncrease[]
  /** The configuration that the house was started with. */
  readonly first: Config
}

/** Settings of `server` that are read once: a port cannot change under running clients, nor a table under its readers. */
const FIXED = ['port', 'host', 'ops_port', 'ops_host', 'data', 'workers', 'subjects_max'] as const

/** What is served of a configuration: tenants of the admin API join those of the file, which win a name. */
export const servedConfig = (written: Config, { withDemo, made_tenants, increases, first }: Additions): Config => {
  const served = withDemo(written)
  const named = new Set(served.tenants.map((tenant) => tenant.name))
  const all = [...served.tenants, ...made_tenants.filter((tenant) => !named.has(tenant.name))]
  const tenants = all.map((tenant) => withIncreases(tenant, increases))
  const fixed = Object.fromEntries(FIXED.map((name) => [name, first.server[name]]))
  return { ...served, tenants, server: { ...served.server, ...fixed } }
}

/** Settings that a new configuration changes and a running house cannot: `server.port: 8080, the file now says 9000`. */
export const needRestart = (first: Config, next: Config): string[] => {
  const said = FIXED.filter((name) => first.server[name] !== next.server[name]).map(
    (name) => `server.${name}: ${first.server[name]} until a restart, now ${next.server[name]}`,
  )
  // The journal's writer is opened with these.
  const { durability, sync_ms } = first.ledger
  if (next.ledger.durability !== durability)
    said.push(`ledger.durability: ${durability} until a restart, now ${next.ledger.durability}`)
  if (next.ledger.sync_ms !== sync_ms)
    said.push(`ledger.sync_ms: ${sync_ms} until a restart, now ${next.ledger.sync_ms}`)
  return said
}
