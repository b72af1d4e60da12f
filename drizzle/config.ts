import { defineConfig } from 'drizzle-kit'

/** `ledger.db`, written by the accountant. */
export default defineConfig({
  dialect: 'sqlite',
  schema: ['./src/ledger/tables.ts', './src/ledger/refusal-tables.ts'],
  out: './drizzle/ledger',
})
