import { keptRates, restoreRates } from '../table/kept-rates.ts'
import { HEADER } from '../table/layout.ts'
import { createTable } from '../table/table.ts'
import { houseFiles, makeFolders } from './house-files.ts'
import { lockHouse } from './house-lock.ts'
import type { HouseOptions } from './house-options.ts'
import { awaitOrphans } from './orphans.ts'
import { portTrouble } from './port.ts'
import { Supervisor } from './supervisor.ts'

/** Takes a data folder and makes it ready for a house; nothing is started yet. Rejects if that is impossible. */
export const openHouse = async (options: HouseOptions): Promise<Supervisor> => {
  const { server } = options.config
  const files = houseFiles(server.data)
  makeFolders(files)
  const lock = lockHouse(files)
  if (typeof lock === 'number')
    throw new Error(`the data folder ${files.data} belongs to a running house${lock > 0 ? `, pid ${lock}` : ''}`)
  await awaitOrphans(files, options.kill)
  const trouble = portTrouble(server.host, server.port) ?? portTrouble(server.ops_host, server.ops_port)
  if (trouble !== undefined) throw new Error(trouble)
  const rates = keptRates(files.table, options.now())
  const table = createTable(files.table, server.subjects_max, options.now())
  const count = restoreRates(table, rates)
  if (count > 0) options.log('info', 'limits_kept', { count })
  table.i32[HEADER.supervisor_pid] = options.pid
  return new Supervisor(options, files, table, lock)
}
