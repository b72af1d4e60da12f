import { resolve } from 'node:path'
import { cpuNanoseconds } from './processes.ts'
import type { Served } from './servers.ts'

const LOAD = resolve(import.meta.dir, 'load.ts')

/** What `load.ts` is told. Connections begin evenly over `spread_ms`. */
export type LoadSettings = {
  readonly port: number
  readonly request: string
  readonly connections: number
  readonly seconds: number
  readonly spread_ms: number
  readonly calls_each?: number
}

type Times = { readonly p50: number; readonly p99: number; readonly max: number }

/** What it answers: times in milliseconds from the request to the first byte of the body, and to its end. */
export type LoadRun = {
  readonly calls: number
  readonly errors: number
  readonly by_status: Readonly<Record<string, number>>
  readonly events: number
  readonly bytes_in: number
  readonly open_max: number
  readonly seconds_taken: number
  readonly first_ms: Times
  readonly whole_ms: Times
  readonly client_cores: number
}

export type LoadOptions = Omit<LoadSettings, 'port' | 'request'> & {
  readonly path?: string
  readonly body: string
  readonly headers?: Readonly<Record<string, string>>
  /** Called while the load runs, for figures that exist only then. */
  readonly during?: () => Promise<void>
}

/** Runs the load generator against a server; `cpu_s` is the CPU of all its processes meanwhile. */
export const load = async (server: Served, options: LoadOptions): Promise<LoadRun & { cpu_s: number }> => {
  const { path = '/v1/chat/completions', body, headers, during, ...rest } = options
  const url = new URL(server.url)
  const lines = Object.entries({
    host: url.host,
    'content-type': 'application/json',
    'content-length': String(Buffer.byteLength(body)),
    ...server.headers,
    ...headers,
  }).map(([name, value]) => `${name}: ${value}\r\n`)
  const request = `POST ${path} HTTP/1.1\r\n${lines.join('')}\r\n${body}`
  const pids = server.pids()
  const before = new Map(pids.map((pid) => [pid, cpuNanoseconds(pid)]))
  const settings: LoadSettings = { port: Number(url.port), request, ...rest }
  const child = Bun.spawn({
    cmd: [process.execPath, LOAD, JSON.stringify(settings)],
    stdout: 'pipe',
    stderr: 'inherit',
  })
  const [text] = await Promise.all([new Response(child.stdout).text(), during?.()])
  if ((await child.exited) !== 0) throw new Error('the load generator failed')
  const cpu_s = pids.reduce((sum, pid) => sum + cpuNanoseconds(pid) - before.get(pid)!, 0) / 1e9
  return { ...(JSON.parse(text) as LoadRun), cpu_s }
}
