import { randomBytes } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Failure } from '../base/failure.ts'
import { onDisk } from './log-files.ts'
import { isKeyName } from './note.ts'

/**
 * The name of the log in a folder: the one it was begun with, which stands in `FOLDER/origin`. A log that is begun takes
 * the wanted name, or `weir.local/` and a random id. A failure if another one is wanted for a log that has a name.
 */
export const originOf = (folder: string, wanted?: string): string | Failure =>
  onDisk('The name of the audit log cannot be read or written.', () => {
    const path = join(folder, 'origin')
    if (existsSync(path)) {
      const kept = readFileSync(path, 'utf8').trim()
      if (!isKeyName(kept))
        return new Failure('internal', { says: `${path} does not hold the name of a log: ${JSON.stringify(kept)}.` })
      if (wanted === undefined || wanted === kept) return kept
      return new Failure('field_invalid', {
        param: 'audit.origin',
        says: `audit.origin is "${wanted}", and this log was begun as "${kept}": a log keeps its name.`,
      })
    }
    const origin = wanted ?? `weir.local/${randomBytes(8).toString('hex')}`
    mkdirSync(folder, { recursive: true })
    writeFileSync(path, `${origin}\n`, { flag: 'wx', flush: true })
    return origin
  })
