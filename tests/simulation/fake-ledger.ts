import { Database } from 'bun:sqlite'
import { drizzle } from 'drizzle-orm/bun-sqlite'
import { migrate } from 'drizzle-orm/bun-sqlite/migrator'
import { join } from 'node:path'
import type { Config } from '../../src/config/schema.ts'
import type { Store } from '../../src/ledger/database.ts'
import { syncPrices } from '../../src/ledger/price-store.ts'
import { type PriceList, priceList } from '../../src/ledger/pricing.ts'

/** Ledgers in memory, with the real schema and the prices of a configuration, each a copy of one that was made once. */
export const ledgers = (config: Config): { open(): Store; readonly prices: PriceList } => {
  const made = new Database(':memory:', { safeIntegers: true, strict: true })
  const store = { sqlite: made, drizzle: drizzle({ client: made }) }
  migrate(store.drizzle, { migrationsFolder: join(import.meta.dir, '../../drizzle/ledger') })
  const prices = priceList(syncPrices(store, config.models, 0))
  const image = made.serialize()
  made.close()
  const open = () => {
    const sqlite = Database.deserialize(image, { safeIntegers: true, strict: true })
    return { sqlite, drizzle: drizzle({ client: sqlite }) }
  }
  return { open, prices }
}
