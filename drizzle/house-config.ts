import { defineConfig } from 'drizzle-kit'

/** `house.db`, written by the control process. */
export default defineConfig({ dialect: 'sqlite', schema: './src/ledger/house-tables.ts', out: './drizzle/house' })
