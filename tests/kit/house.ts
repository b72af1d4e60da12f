import { Database } from 'bun:sqlite'
import { mkdirSync, writeFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { eventually, tempFolder, within } from './wait.ts'

const MAIN = resolve(import.meta.dir, '../../src/main.ts')
export const ADMIN_TOKEN = 'test-admin-token'
export const DEMO_KEY = 'weir-test-demo-key'

export type HouseSettings = {
  /** A configuration as an object; written as JSON, which is YAML. None serves the demo engine. */
  readonly config?: object
  readonly workers?: number | 'auto'
  readonly env?: Readonly<Record<string, string>>
  /** The text of the configuration file as it is; wins over `config`. */
  readonly text?: string
  /** Where the configuration file goes; beside the data folder by default. */
  readonly file?: string
  /** An existing data folder, to start a house again. */
  readonly data?: string
  /** Ports to bind again; free ones by default. */
  readonly port?: number
  readonly ops?: number
  /** Sends a SIGTERM so long after the start, ready or not. */
  readonly signal_after_ms?: number
  /** No flags for ports and workers: the file says all but the data folder. The ops port is free. */
  readonly bare?: boolean
  /** The file through which a process joins a control group: the house is started inside. */
  readonly cgroup?: string
  /** The hard limit of open files that it is started under. */
  readonly descriptors?: number
  /** Flags to add. */
  readonly flags?: readonly string[]
  /** Shows the house's log. */
  readonly loud?: boolean
}

export type CallRow = Readonly<Record<string, string | number | null>>

/** A real process tree on free ports in a temporary folder. It is killed at the end of the scope. */
export type TestHouse = AsyncDisposable & {
  readonly port: number
  readonly ops: number
  readonly pid: number
  readonly url: string
  readonly ops_url: string
  readonly data: string
  /** The configuration file, to be written anew before a SIGHUP. */
  readonly config_file: string
  /** What it wrote to stderr so far. */
  log(): string
  /** What it wrote to stdout so far. */
  out(): string
  /** Log lines with this event name. */
  logged(event: string): Record<string, any>[]
  kill(signal: NodeJS.Signals): void
  /** SIGTERM, and the exit code. */
  stop(within_ms?: number): Promise<number>
  readonly exited: Promise<number>
  admin(method: string, path: string, body?: unknown): Promise<Response>
  /** A new key of a tenant. */
  key(tenant: string, options?: object): Promise<string>
  /** The rows of `calls`, oldest first, read from the ledger itself. */
  rows(): CallRow[]
  /** Waits until there are so many rows. */
  rowsReach(count: number, within_ms?: number): Promise<CallRow[]>
  post(
    path: string,
    body: unknown,
    key?: string,
    headers?: Record<string, string>,
    signal?: AbortSignal,
  ): Promise<Response>
  /** Pids of the children by role, from the system. */
  pids(role: string): number[]
  /** `kill -9` of the supervisor and all its children at once; resolves when none is left. */
  killTree(): Promise<void>
}

/** Starts a house and waits for its ready line. */
export const startHouse = async (settings: HouseSettings = {}): Promise<TestHouse> => {
  const folder = settings.data === undefined ? tempFolder('weir-house') : undefined
  const data = settings.data ?? `${folder!.path}/data`
  mkdirSync(data, { recursive: true })
  const config_file = settings.file ?? `${data}/../weir.yaml`
  writeFileSync(config_file, settings.text ?? JSON.stringify(settings.config ?? {}))
  const house = Bun.spawn({
    cmd: [
      ...(settings.cgroup ? ['sh', '-c', `echo $$ > ${settings.cgroup} && exec "$0" "$@"`] : []),
      ...(settings.descriptors ? ['sh', '-c', `ulimit -n ${settings.descriptors} && exec "$0" "$@"`] : []),
      process.execPath,
      MAIN,
      'start',
      '--config',
      config_file,
      ...(settings.bare ? [] : ['--port', String(settings.port ?? 0), '--workers', String(settings.workers ?? 1)]),
      '--ops-port',
      String(settings.ops ?? 0),
      '--data',
      data,
      ...(settings.flags ?? []),
    ],
    env: { ...process.env, WEIR_ADMIN_TOKEN: ADMIN_TOKEN, WEIR_DEMO_KEY: DEMO_KEY, ...settings.env },
    stdout: 'pipe',
    stderr: 'pipe',
  })
  if (settings.signal_after_ms !== undefined) setTimeout(() => house.kill('SIGTERM'), settings.signal_after_ms)
  let log = ''
  void collect(house.stderr, (text) => {
    log += text
    if (settings.loud) process.stderr.write(text)
  })
  const ready = Promise.withResolvers<RegExpExecArray>()
  let out = ''
  void collect(house.stdout, (text) => {
    out += text
    const found = /weir ready port=(\d+) ops=(\d+) workers=\d+ pid=(\d+)/.exec(out)
    if (found) ready.resolve(found)
  })
  const died = house.exited.then((code) => Promise.reject(new Error(`the house ended with ${code}:\n${log}`)))
  died.catch(() => undefined)
  const found = await within(Promise.race([ready.promise, died]), 30_000, `ready line; log so far:\n${log}`)
  const [port, ops, pid] = [Number(found[1]), Number(found[2]), Number(found[3])]
  const url = `http://127.0.0.1:${port}`
  const ops_url = `http://127.0.0.1:${ops}`
  const admin: TestHouse['admin'] = (method, path, body) =>
    fetch(`${ops_url}/admin/${path}`, {
      method,
      headers: { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': 'application/json' },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
  const rows = (): CallRow[] => {
    const db = new Database(`${data}/ledger.db`, { readonly: true })
    try {
      return db.query('SELECT * FROM calls ORDER BY rowid').all() as CallRow[]
    } finally {
      db.close()
    }
  }
  return {
    port,
    ops,
    pid,
    url,
    ops_url,
    data,
    config_file,
    log: () => log,
    out: () => out,
    logged: (event) =>
      log
        .split('\n')
        .filter((line) => line.includes(`"${event}"`))
        .map((line) => JSON.parse(line)),
    kill: (signal) => process.kill(pid, signal),
    stop: async (within_ms = 20_000) => {
      house.kill('SIGTERM')
      return within(house.exited, within_ms, `exit after SIGTERM; log:\n${log}`)
    },
    exited: house.exited,
    admin,
    key: async (tenant, options = {}) => {
      const response = await admin('POST', 'keys', { tenant, name: 'test', ...options })
      if (response.status !== 201) throw new Error(`no key: ${response.status} ${await response.text()}`)
      const { key: secret } = (await response.json()) as { key: string }
      // Workers read new keys ten times a second.
      await eventually(
        async () =>
          (await fetch(`${url}/v1/models`, { headers: { authorization: `Bearer ${secret}` } })).status === 200,
      )
      // One worker knows it. The others look just as often.
      if (settings.workers !== undefined && settings.workers !== 1) await Bun.sleep(150)
      return secret
    },
    rows,
    rowsReach: (count, within_ms = 5_000) =>
      eventually(() => {
        const found_rows = rows()
        if (found_rows.length < count) throw new Error(`${found_rows.length} rows, want ${count}`)
        return found_rows
      }, within_ms),
    post: (path, body, key = DEMO_KEY, headers = {}, signal) =>
      fetch(`${url}${path}`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...headers },
        body: typeof body === 'string' || body instanceof Uint8Array ? (body as BodyInit) : JSON.stringify(body),
        ...(signal && { signal }),
      }),
    pids: (role) => housePids(data, role),
    killTree: async () => {
      for (const each of [pid, ...housePids(data, '')]) killPid(each)
      await house.exited
      await eventually(() => housePids(data, '').length === 0, 5_000)
    },
    [Symbol.asyncDispose]: async () => {
      if (house.exitCode === null) house.kill('SIGKILL')
      await house.exited
      // Its children notice by themselves; the folder must not go before them.
      await eventually(() => housePids(data, '').length === 0, 15_000).catch(() => undefined)
      folder?.[Symbol.dispose]()
    },
  }
}

const collect = async (stream: ReadableStream<Uint8Array>, see: (text: string) => void): Promise<void> => {
  const decoder = new TextDecoder()
  for await (const chunk of stream as unknown as AsyncIterable<Uint8Array>) see(decoder.decode(chunk, { stream: true }))
}

const killPid = (pid: number): void => {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // It has ended already.
  }
}

/** Processes of the house on a data folder that have the role, as the system lists them. */
export const housePids = (data: string, role: string): number[] =>
  Bun.spawnSync(['ps', '-eo', 'pid=,args='])
    .stdout.toString()
    .split('\n')
    .filter((line) => line.includes(` ${role}`) && line.includes(data) && line.includes('main.ts'))
    .map((line) => Number.parseInt(line, 10))
