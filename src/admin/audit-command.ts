import { didYouMean } from '../config/faults.ts'
import { type Asking, flagsOf, UsageFault } from './cli-flags.ts'
import { ask, askText, type CommandResult, type Env, houseOf, type RunningHouse, Trouble } from './running-house.ts'

export const AUDIT_USAGE = `weir audit checkpoint              prints the newest signed checkpoint: keep it, proofs can be held against it
weir audit public-key              prints the keys of the log, oldest first
weir audit rotate-key              signs with a new key from now on; one checkpoint is signed by both
weir audit erase-salts --tenant T  cuts the link between a tenant's rows and the bodies of its calls, for ever
Every command asks a running house: --ops URL, WEIR_OPS_URL or http://127.0.0.1:PORT with WEIR_OPS_PORT or 9090; the
admin token by WEIR_ADMIN_TOKEN or DIR/admin-token with --data DIR.
`

type Command = {
  readonly flags: readonly string[]
  readonly run: (house: RunningHouse, asking: Asking) => Promise<string>
}

const COMMANDS: Readonly<Record<string, Command>> = {
  checkpoint: { flags: [], run: (house) => askText(house, 'GET', '/audit/checkpoint') },
  'public-key': {
    flags: [],
    run: async (house) => `${((await ask(house, 'GET', '/audit/public-key'))['keys'] as string[]).join('\n')}\n`,
  },
  'rotate-key': {
    flags: [],
    run: async (house) => `${String((await ask(house, 'POST', '/admin/audit/rotate'))['verifier_key'])}\n`,
  },
  'erase-salts': {
    flags: ['tenant'],
    run: async (house, { flags }) => {
      const { erased } = await ask(house, 'POST', '/admin/audit/erase-salts', { tenant: flags['tenant'] })
      return `${String(erased)} salts were erased\n`
    },
  },
}

/** `weir audit …`: `argv` begins after `audit`. Never throws for what a user can cause. */
export const auditCommand = async (argv: readonly string[], env: Env): Promise<CommandResult> => {
  const [verb = '', ...rest] = argv
  if (verb === '--help' || verb === 'help') return { exit_code: 0, stdout: AUDIT_USAGE, stderr: '' }
  const refused = (says: string): CommandResult => ({
    exit_code: 2,
    stdout: '',
    stderr: `weir audit: ${says}\n\n${AUDIT_USAGE}`,
  })
  const command = Object.hasOwn(COMMANDS, verb) ? COMMANDS[verb] : undefined
  if (command === undefined)
    return refused(
      `${verb === '' ? 'a command is missing' : `"${verb}" is not a command`}; ${didYouMean(verb, Object.keys(COMMANDS))}`,
    )
  try {
    const asking = flagsOf(rest, ['ops', 'data', ...command.flags], 0)
    if (command.flags.includes('tenant') && asking.flags['tenant'] === undefined)
      throw new UsageFault('--tenant is missing')
    return { exit_code: 0, stdout: await command.run(houseOf(asking, env), asking), stderr: '' }
  } catch (cause) {
    if (cause instanceof UsageFault) return refused(cause.message)
    if (cause instanceof Trouble) return { exit_code: 1, stdout: '', stderr: `weir audit: ${cause.message}\n` }
    throw cause
  }
}
