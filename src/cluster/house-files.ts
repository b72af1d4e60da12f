import { existsSync, mkdirSync, readdirSync } from 'node:fs'
import { resolve } from 'node:path'
import { openReader } from '../ledger/database.ts'
import type { HouseFiles } from './messages.ts'

/** The paths under a data folder. */
export const houseFiles = (data: string): HouseFiles => {
  const root = resolve(data)
  return {
    data: root,
    table: `${root}/run/shared.table`,
    keys: `${root}/run/keys.jsonl`,
    journal: `${root}/journal`,
    ledger: `${root}/ledger.db`,
    house: `${root}/house.db`,
    audit: `${root}/audit`,
    idempotency: `${root}/idempotency`,
    letters: `${root}/run/letters`,
    admin_token: `${root}/admin-token`,
    lock: `${root}/run/house.lock`,
  }
}

/** Makes the folders of a house. */
export const makeFolders = (files: HouseFiles): void => {
  for (const folder of [files.data, `${files.data}/run`, files.journal, files.audit])
    mkdirSync(folder, { recursive: true, mode: 0o700 })
}

/**
 * The first incarnation number that was never used: neither by a journal file that is left, nor by one that was pruned
 * and whose series the ledger remembers as posted. Names are `wINDEX-INCARNATION-SEGMENT.journal`.
 */
export const nextIncarnation = (files: HouseFiles): number => {
  const names = [...readdirSync(files.journal), ...postedSeries(files)]
  return 1 + names.reduce((highest, name) => Math.max(highest, Number(/^w\d+-(\d+)/.exec(name)?.[1] ?? 0)), 0)
}

const postedSeries = (files: HouseFiles): string[] => {
  if (!existsSync(files.ledger)) return []
  const { sqlite } = openReader(files.data, 'ledger')
  try {
    return sqlite
      .query<{ series: string }, []>('SELECT series FROM positions')
      .all()
      .map(({ series }) => series)
  } finally {
    sqlite.close()
  }
}
