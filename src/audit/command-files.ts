import { readFileSync } from 'node:fs'
import { Difference, type PublicKey, readPublicKey } from './check-note.ts'

/** What a command prints and ends with. */
export type CommandOutput = { readonly exit_code: 0 | 1 | 2; readonly stdout: string; readonly stderr: string }

/** The text of a file that a command was given; a {@link Difference} that names it where it cannot be read. */
export const readGiven = (path: string): string => {
  try {
    return readFileSync(path, 'utf8')
  } catch (cause) {
    throw new Difference(`${path} cannot be read: ${(cause as { code?: string }).code ?? String(cause)}`)
  }
}

/** Keys as `--key` names them: the text of a key, or a file with one on each line. */
export const givenKeys = (values: readonly string[]): PublicKey[] =>
  values.flatMap((value) => {
    const text = /\+[0-9a-f]{8}\+/.test(value) ? value : readGiven(value)
    return text
      .split('\n')
      .filter((line) => line.trim() !== '')
      .map(readPublicKey)
  })
