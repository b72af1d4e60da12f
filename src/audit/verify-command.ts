import { parseArgs } from 'node:util'
import { checkProof } from './bundle-check.ts'
import { Difference } from './check-note.ts'
import { type CommandOutput, givenKeys, readGiven } from './command-files.ts'

export const VERIFY_USAGE = 'weir verify FILE [--key PUB]… [--checkpoint FILE] [--consistency FILE]'

/**
 * `weir verify`: checks a proof of a call, an invoice or a consistency proof, offline. Exit code 0 only if all of it
 * holds, 1 with what does not on stderr, 2 if it was asked wrongly.
 */
export const verifyCommand = (argv: readonly string[]): CommandOutput => {
  const { values, positionals } = parseArgs({
    args: [...argv],
    allowPositionals: true,
    options: {
      key: { type: 'string', multiple: true },
      checkpoint: { type: 'string' },
      consistency: { type: 'string' },
    },
  })
  const [file, ...more] = positionals
  if (file === undefined || more.length > 0) return { exit_code: 2, stdout: '', stderr: `${VERIFY_USAGE}\n` }
  const given = (path: string | undefined) => (path === undefined ? undefined : readGiven(path))
  try {
    const { says } = checkProof(readGiven(file), {
      keys: givenKeys(values.key ?? []),
      saved: given(values.checkpoint),
      consistency: given(values.consistency),
    })
    return { exit_code: 0, stdout: `${['verified', ...says].join('\n  ')}\n`, stderr: '' }
  } catch (cause) {
    if (!(cause instanceof Difference)) throw cause
    return { exit_code: 1, stdout: '', stderr: `weir verify: ${cause.message}\n` }
  }
}
