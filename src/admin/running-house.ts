import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { variable } from '../config/interpolate.ts'
import { ownVariable } from '../config/variables.ts'
import { type Asking, UsageFault } from './cli-flags.ts'

/** How a command reaches the ops plane of a running house. */

export type Env = Readonly<Record<string, string | undefined>>
export type Row = Readonly<Record<string, unknown>>

/** What a command leaves to print and the code to exit with: 0 done, 1 refused or not reachable, 2 asked wrongly. */
export type CommandResult = { readonly exit_code: 0 | 1 | 2; readonly stdout: string; readonly stderr: string }

/** The house cannot or will not do it. */
export class Trouble extends Error {}

/** A house that runs, and the right to ask it. */
export type RunningHouse = { readonly url: string; readonly token: string }

/** The house that a command's flags `--ops` and `--data` and the environment name. Throws if they name none. */
export const houseOf = ({ flags }: Asking, env: Env): RunningHouse => {
  const named = flags['ops'] ?? variable(env, 'WEIR_OPS_URL')
  const url = named ?? `http://127.0.0.1:${ownVariable(env, 'WEIR_OPS_PORT') ?? '9090'}`
  if (!/^https?:$/.test(URL.parse(url)?.protocol ?? ''))
    throw new UsageFault(`"${url}" is not the address of an ops plane; needed: http://host:port`)
  return { url: url.replace(/\/+$/, ''), token: tokenOf(flags['data'] ?? variable(env, 'WEIR_DATA') ?? './data', env) }
}

const tokenOf = (data: string, env: Env): string => {
  const given = variable(env, 'WEIR_ADMIN_TOKEN')
  if (given !== undefined) return given
  const path = join(data, 'admin-token')
  try {
    const found = readFileSync(path, 'utf8').trim()
    if (found !== '') return found
  } catch (cause) {
    const why = (cause as { code?: string }).code ?? String(cause)
    throw new Trouble(`no admin token: WEIR_ADMIN_TOKEN is not set and ${path} cannot be read (${why})`)
  }
  throw new Trouble(`no admin token: WEIR_ADMIN_TOKEN is not set and ${path} is empty`)
}

/** How long the house may take to answer. */
const ANSWER_MS_MAX = 15_000

/** Asks an address of the admin API. Throws a {@link Trouble} with what the house says, unless it does it. */
export const ask = async (house: RunningHouse, method: string, path: string, body?: unknown): Promise<Row> => {
  const answer = await askText(house, method, path, body)
  const json = parsed(answer)
  if (json === undefined) throw new Trouble(`${house.url} does not answer like an ops plane of Weir`)
  return json
}

/** {@link ask} for an answer that is taken as it is. */
export const askText = async (
  { url, token }: RunningHouse,
  method: string,
  path: string,
  body?: unknown,
): Promise<string> => {
  const response = await fetch(`${url}${path}`, {
    method,
    redirect: 'manual',
    signal: AbortSignal.timeout(ANSWER_MS_MAX),
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  }).catch((cause: unknown) => {
    throw new Trouble(`no house answers at ${url} (${(cause as Error).message}); is it running? --ops names another`)
  })
  const answer = await response.text()
  if (response.ok) return answer
  const says = (parsed(answer)?.['error'] as { message?: unknown } | undefined)?.message
  throw new Trouble(typeof says === 'string' ? `${says} (${response.status})` : `${url} answered ${response.status}`)
}

const parsed = (text: string): Row | undefined => {
  try {
    const json: unknown = JSON.parse(text)
    return typeof json === 'object' && json !== null ? (json as Row) : undefined
  } catch {
    return undefined // It is no JSON, which is all that is asked.
  }
}
