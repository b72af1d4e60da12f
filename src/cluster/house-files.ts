import { closeSync, existsSync, mkdirSync, openSync, readdirSync, readFileSync, rmSync, writeSync } from 'node:fs'
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
    admin_token: `${root}/admin-token`,
    lock: `${root}/lock`,
  }
}

/** Makes the folders of a house. */
export const makeFolders = (files: HouseFiles): void => {
  for (const folder of [files.data, `${files.data}/run`, files.journal, files.audit])
    mkdirSync(folder, { recursive: true, mode: 0o700 })
}

/**
 * Takes the data folder for this process, so that two houses never share one. A lock whose process is gone is taken over.
 * Answers undefined, or the pid of the house that has it.
 */
export const lockFolder = (files: HouseFiles, pid: number): number | undefined => {
  for (let turn = 0; turn < 3; turn++) {
    try {
      const fd = openSync(files.lock, 'wx', 0o600)
      writeSync(fd, String(pid))
      closeSync(fd)
      return undefined
    } catch (cause) {
      if ((cause as { code?: string }).code !== 'EEXIST') throw cause
      const holder = Number(readFileSync(files.lock, 'utf8'))
      if (holder > 0 && holder !== pid && isWeir(holder)) return holder
      rmSync(files.lock, { force: true })
    }
  }
  throw new Error(`${files.lock} cannot be taken`)
}

/** True if the pid is a running house: a pid can be taken by another program after a restart of the machine. */
const isWeir = (pid: number): boolean => {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('main.ts')
  } catch {
    return false // No such process.
  }
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
