import { existsSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { fileOf, openReader, openWriter } from './database.ts'
import { rebuildRollups } from './rebuild.ts'
import { findFaults } from './reconcile.ts'

export const LEDGER_USAGE = 'weir ledger rebuild --data DIR [--check]'

/**
 * `weir ledger rebuild`: makes the roll-ups anew out of the rows and prints every sum that differed, a JSON object a
 * line; then holds entries, balances and roll-ups against each other. `--check` changes nothing and may be asked of a
 * running house. Exit code 0 if nothing differed or what did is mended, 1 if the books are still wrong or the folder is
 * taken, 2 if it was asked wrongly.
 */
export const ledgerCommand = (
  [verb, ...argv]: readonly string[],
  takeHouse: (data: string) => { release(): void } | string,
): { exit_code: number; stdout: string; stderr: string } => {
  if (verb !== 'rebuild') return { exit_code: 2, stdout: '', stderr: `${LEDGER_USAGE}\n` }
  const { values } = parseArgs({ args: [...argv], options: { data: { type: 'string' }, check: { type: 'boolean' } } })
  const { data = './data', check = false } = values
  const refused = (says: string) => ({ exit_code: 1, stdout: '', stderr: `weir ledger: ${says}\n` })
  if (!existsSync(fileOf(data, 'ledger'))) return refused(`there is no ledger in ${data}`)
  const house = check ? undefined : takeHouse(data)
  if (typeof house === 'string') return refused(`${house}; --check looks without changing anything`)
  const store = check ? openReader(data, 'ledger') : openWriter(data, 'ledger')
  try {
    const differences = rebuildRollups(store, !check)
    const stdout = differences.map((difference) => `${JSON.stringify(difference)}\n`).join('')
    const faults = findFaults(store)
    const said = `${differences.length} roll-ups differed${check || differences.length === 0 ? '' : ' and are made anew'}`
    const stderr = [said, ...faults.map((fault) => `fault: ${fault}`)].map((line) => `${line}\n`).join('')
    return { exit_code: faults.length === 0 ? 0 : 1, stdout, stderr }
  } finally {
    store.sqlite.close()
    house?.release()
  }
}
