import type { Store } from './database.ts'

/** The sum of all accounts, from the entries: 0 as long as the books are right. */
export const sumOfAccounts = (store: Store): bigint =>
  balances(store).reduce((sum, { balance_nanodollars }) => sum + balance_nanodollars, 0n)

export type Balance = { readonly account: string; readonly balance_nanodollars: bigint }

/** What every account has, folded from all entries; reads the whole table (about 0.4 s a million entries). */
export const balances = ({ sqlite }: Store): Balance[] =>
  sqlite
    .prepare<Balance, []>(
      `SELECT account, sum(amount) AS balance_nanodollars FROM (
         SELECT credit AS account, amount_nanodollars AS amount FROM entries
         UNION ALL SELECT debit, -amount_nanodollars FROM entries)
       GROUP BY account ORDER BY account`,
    )
    .all()
