import { didYouMean } from '../config/faults.ts'
import { type Asking, flagsOf, UsageFault } from './cli-flags.ts'
import { ask, type CommandResult, type Env, houseOf, type Row, type RunningHouse, Trouble } from './running-house.ts'

export const KEYS_USAGE = `weir keys create --tenant T [--name N] [--models a,b] [--requests-per-minute N]
                 [--tokens-per-minute N] [--concurrent N] [--priority-max CLASS] [--expires-at ISO]
weir keys list   [--tenant T] [--json]
weir keys revoke ID
Every command takes [--ops URL] [--data DIR]. The ops plane of a running house is found by --ops, WEIR_OPS_URL or
http://127.0.0.1:PORT with WEIR_OPS_PORT or 9090; the admin token by WEIR_ADMIN_TOKEN or DIR/admin-token.
`

/** `weir keys …`: asks a running house over its ops plane. `argv` begins after `keys`. Never throws for what a user can cause. */
export const keysCommand = async (argv: readonly string[], env: Env): Promise<CommandResult> => {
  const [verb = '', ...rest] = argv
  if (verb === '--help' || verb === 'help') return { exit_code: 0, stdout: KEYS_USAGE, stderr: '' }
  const command = Object.hasOwn(COMMANDS, verb) ? COMMANDS[verb] : undefined
  if (command === undefined) {
    const says = verb === '' ? 'a command is missing' : `"${verb}" is not a command`
    return refused(`${says}; ${didYouMean(verb, Object.keys(COMMANDS))}`)
  }
  try {
    const asking = flagsOf(rest, [...HOUSE_FLAGS, ...command.flags], command.words)
    if (verb === 'create') bodyOf(asking)
    return await command.run(asking, houseOf(asking, env))
  } catch (cause) {
    if (cause instanceof UsageFault) return refused(cause.message)
    if (cause instanceof Trouble) return { exit_code: 1, stdout: '', stderr: `weir keys: ${cause.message}\n` }
    throw cause
  }
}

const refused = (says: string): CommandResult => ({
  exit_code: 2,
  stdout: '',
  stderr: `weir keys: ${says}\n\n${KEYS_USAGE}`,
})

type Command = {
  readonly flags: readonly string[]
  readonly words: number
  readonly run: (asking: Asking, house: RunningHouse) => Promise<CommandResult>
}

const HOUSE_FLAGS = ['ops', 'data']

const COMMANDS: Readonly<Record<string, Command>> = {
  create: {
    flags: [
      'tenant',
      'name',
      'models',
      'requests-per-minute',
      'tokens-per-minute',
      'concurrent',
      'priority-max',
      'expires-at',
    ],
    words: 0,
    run: async (asking, house) => {
      const made = await ask(house, 'POST', '/admin/keys', bodyOf(asking))
      return {
        exit_code: 0,
        stdout: `${String(made['key'])}\n`,
        stderr: `key ${String(made['id'])} of tenant ${String(made['tenant'])} was made; the line above is shown this once.\n`,
      }
    },
  },
  list: {
    flags: ['tenant', 'json!'],
    words: 0,
    run: async ({ flags }, house) => {
      const keys = await allKeys(house, flags['tenant'])
      if (flags['json'] !== undefined) return printed(`${JSON.stringify({ data: keys, next_cursor: null })}\n`)
      return { exit_code: 0, stdout: table(keys), stderr: keys.length === 0 ? 'no keys\n' : '' }
    },
  },
  revoke: {
    flags: [],
    words: 1,
    run: async ({ words }, house) => {
      const key = await ask(house, 'DELETE', `/admin/keys/${encodeURIComponent(words[0]!)}`)
      return {
        exit_code: 0,
        stdout: '',
        stderr: `key ${String(key['id'])} is revoked since ${String(key['revoked_at'])}\n`,
      }
    },
  },
}

const printed = (stdout: string): CommandResult => ({ exit_code: 0, stdout, stderr: '' })

const bodyOf = ({ flags }: Asking): Record<string, unknown> => {
  if (flags['tenant'] === undefined) throw new UsageFault('--tenant is missing')
  const whole = (flag: string) => {
    const text = flags[flag]
    if (text === undefined) return undefined
    if (!/^\d{1,15}$/.test(text)) throw new UsageFault(`--${flag} needs a whole number; found "${text}"`)
    return Number(text)
  }
  // JSON leaves out what is undefined.
  return {
    tenant: flags['tenant'],
    name: flags['name'],
    models: flags['models']?.split(',').map((model) => model.trim()),
    requests_per_minute: whole('requests-per-minute'),
    tokens_per_minute: whole('tokens-per-minute'),
    concurrent: whole('concurrent'),
    priority_max: flags['priority-max'],
    expires_at: flags['expires-at'],
  }
}

/** Pages of keys that are read at most: a house whose pages never end must not hold the command for ever. */
const PAGES_MAX = 1_000

const allKeys = async (house: RunningHouse, tenant: string | undefined): Promise<Row[]> => {
  const keys: Row[] = []
  let cursor: string | undefined
  for (let page = 0; page < PAGES_MAX; page++) {
    const query = new URLSearchParams({ limit: '1000', ...(tenant && { tenant }), ...(cursor && { cursor }) })
    const { data, next_cursor } = await ask(house, 'GET', `/admin/keys?${query}`)
    if (!Array.isArray(data)) throw new Trouble(`${house.url} does not answer like an ops plane of Weir`)
    keys.push(...(data as Row[]))
    if (typeof next_cursor !== 'string') return keys
    cursor = next_cursor
  }
  throw new Trouble(`there are more than ${PAGES_MAX} pages of keys; name a tenant`)
}

const COLUMNS = ['id', 'tenant', 'name', 'prefix', 'created_at', 'expires_at', 'revoked_at'] as const

const table = (keys: readonly Row[]): string => {
  if (keys.length === 0) return ''
  const rows = [COLUMNS.map(String), ...keys.map((key) => COLUMNS.map((column) => plain(key[column])))]
  const widths = COLUMNS.map((_, at) => Math.max(...rows.map((row) => row[at]!.length)))
  return rows
    .map(
      (row) =>
        `${row
          .map((cell, at) => cell.padEnd(widths[at]!))
          .join('  ')
          .trimEnd()}\n`,
    )
    .join('')
}

// A name is the operator's own text: nothing in it may steer a terminal.
const plain = (value: unknown): string =>
  value === null || value === undefined ? '-' : String(value).replace(/\p{Cc}/gu, '?')
