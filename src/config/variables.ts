import { limits } from '../base/limits.ts'
import { type FaultList, join, nearest } from './faults.ts'
import { type Environment, variable } from './interpolate.ts'
import { secretFault } from './validate.ts'

/** Settings from the command line, as they were written there. */
export type Flags = {
  readonly port?: string | undefined
  readonly ops_port?: string | undefined
  readonly data?: string | undefined
  readonly workers?: string | undefined
}

const prefix = 'WEIR_'

/** The settings of `server` that a flag or a variable may set; the flag wins. */
const OVERRIDES = [
  { key: 'port', flag: '--port', variable: 'WEIR_PORT' },
  { key: 'ops_port', flag: '--ops-port', variable: 'WEIR_OPS_PORT' },
  { key: 'data', flag: '--data', variable: 'WEIR_DATA' },
  { key: 'workers', flag: '--workers', variable: 'WEIR_WORKERS' },
] as const satisfies readonly { key: keyof Flags; flag: string; variable: string }[]

const SECRETS = ['WEIR_DEMO_KEY', 'WEIR_ADMIN_TOKEN'] as const

/** Every variable with Weir's prefix that means something. Any other that is set is a fault. */
export const known_variables: readonly string[] = [
  'WEIR_CONFIG',
  ...OVERRIDES.map((row) => row.variable),
  ...SECRETS,
  'WEIR_OPS_URL',
]

/** Settings of `server` from flags and variables as text, and by the path of each what it came from. */
export type Overrides = {
  readonly server: Readonly<Record<string, string>>
  readonly labels: ReadonlyMap<string, string>
}

/** Reads the overrides. A variable that is empty, or that Kubernetes made for a Service of that name, sets nothing. */
export const overrides = (env: Environment, flags: Flags): Overrides => {
  const server: Record<string, string> = {}
  const labels = new Map<string, string>()
  for (const row of OVERRIDES) {
    const from_env = ownVariable(env, row.variable)
    const value = flags[row.key] ?? from_env
    if (value === undefined) continue
    server[row.key] = value
    labels.set(join('server', row.key), flags[row.key] === undefined ? row.variable : row.flag)
  }
  return { server, labels }
}

/**
 * Adds every variable `WEIR_…` that neither Weir knows nor the file refers to, and every secret among the known ones
 * that no header could carry or anybody could guess.
 */
export const checkVariables = (env: Environment, referenced: ReadonlySet<string>, faults: FaultList): void => {
  for (const name of Object.keys(env).sort()) {
    if (!name.startsWith(prefix) || env[name] === undefined) continue
    if (known_variables.includes(name) || referenced.has(name) || isServiceLink(name, env)) continue
    const near = nearest(name, known_variables)
    const allowed = near === undefined ? `known: ${known_variables.join(', ')}` : `did you mean ${near}?`
    faults.add(name, 'is not a variable of Weir', allowed)
  }
  for (const name of SECRETS) {
    const secret = variable(env, name)
    const found = secret === undefined ? undefined : (secretFault(secret) ?? weakness(secret))
    if (found !== undefined)
      faults.add(
        name,
        found,
        `allowed: printable ASCII without comma, at least ${limits.secret_characters_min} characters`,
      )
  }
}

/** Why a secret is no key: it can be guessed, or a header that holds it would look like two. */
const weakness = (secret: string): string | undefined => {
  if (secret.length < limits.secret_characters_min) return `has ${secret.length} characters`
  return secret.includes(',') ? 'holds a comma' : undefined
}

/** The value of a variable of Weir; undefined if it is unset, holds nothing, or Kubernetes made it for a Service of that name. */
export const ownVariable = (env: Environment, name: string): string | undefined =>
  isServiceLink(name, env) ? undefined : variable(env, name)

/** Kubernetes puts `WEIR_SERVICE_HOST`, `WEIR_PORT=tcp://…` and more into every pod beside a Service named weir. */
const isServiceLink = (name: string, env: Environment): boolean =>
  /^WEIR_(\w+_)?(SERVICE_(HOST|PORT)|PORT_\d+_(TCP|UDP|SCTP))/.test(name) ||
  (/^WEIR_(\w+_)?PORT$/.test(name) && /^(tcp|udp|sctp):\/\//.test(env[name] ?? ''))
