import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { Difference } from './check-note.ts'
import { type CommandOutput, givenKeys, readGiven } from './command-files.ts'
import { fsck } from './fsck.ts'
import { lockForWriter } from './writer-lock.ts'

export const FSCK_USAGE = 'weir fsck --data DIR [--key PUB]… [--checkpoint FILE]'

/**
 * `weir fsck`: checks the data folder of a stopped house. Exit code 0 only if all of it agrees, 1 with the first
 * difference on stderr. `--key` names keys that are known from elsewhere, instead of those in the folder; `--checkpoint`
 * a checkpoint that was kept elsewhere. `takeHouse` takes the folder from any house and answers who has it.
 */
export const fsckCommand = (
  argv: readonly string[],
  takeHouse: (data: string) => { release(): void } | string,
): CommandOutput => {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      data: { type: 'string' },
      key: { type: 'string', multiple: true },
      checkpoint: { type: 'string' },
    },
  })
  const { data = './data' } = values
  const refused = (says: string): CommandOutput => ({ exit_code: 1, stdout: '', stderr: `weir fsck: ${says}\n` })
  if (!existsSync(join(data, 'audit'))) return refused(`${data} is not the data folder of a house: it has no audit log`)
  const house = takeHouse(data)
  if (typeof house === 'string') return refused(house)
  const log = lockForWriter(join(data, 'audit'), 0)
  try {
    if (log === undefined) return refused(`the auditor of ${data} is still running`)
    const keys = givenKeys(values.key ?? [])
    const saved = values.checkpoint === undefined ? undefined : readGiven(values.checkpoint)
    const { fault, notes, counts } = fsck(data, { keys, saved })
    const noted = notes.map((note) => `note: ${note}\n`).join('')
    if (fault !== undefined) return { ...refused(fault), stdout: noted }
    const { leaves, signed, checkpoints, records } = counts
    const said = `sound: ${leaves} leaves, ${signed} signed, ${checkpoints} checkpoints, ${records} journal records\n`
    return { exit_code: 0, stdout: `${noted}${said}`, stderr: '' }
  } catch (cause) {
    if (cause instanceof Difference) return refused(cause.message)
    throw cause
  } finally {
    log?.release()
    house.release()
  }
}
