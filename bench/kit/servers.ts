import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import type { EngineSettings } from './engine.ts'
import { commandLine, tree } from './processes.ts'

const MAIN = resolve(import.meta.dir, '../../src/main.ts')
const ENGINE = resolve(import.meta.dir, 'engine.ts')
const BARE = resolve(import.meta.dir, 'bare.ts')
export const BENCH_KEY = 'weir-bench-key-000001'
export const CHAT =
  '{"model":"bench","messages":[{"role":"user","content":"What does a weir do to a river, in one sentence? Answer plainly."}],"max_tokens":64}'
export const STREAM = CHAT.replace('"max_tokens":64', '"max_tokens":64,"stream":true')

/** A server under test: where it is, and the processes whose CPU counts. */
export type Served = {
  readonly name: string
  readonly url: string
  readonly pids: () => number[]
  readonly headers: Readonly<Record<string, string>>
  stop(): Promise<void>
}

/** The first match in what a child prints. */
export const readyLine = async (
  child: { stdout: ReadableStream<Uint8Array> },
  pattern: RegExp,
): Promise<RegExpExecArray> => {
  let text = ''
  const decoder = new TextDecoder()
  for await (const chunk of child.stdout as unknown as AsyncIterable<Uint8Array>) {
    text += decoder.decode(chunk, { stream: true })
    const found = pattern.exec(text)
    if (found) return found
  }
  throw new Error(`ended before it was ready: ${text}`)
}

/** Starts a script that serves and prints its port, as a process of its own. */
export const startScript = async (
  name: string,
  command: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<Served> => {
  const child = Bun.spawn({
    cmd: [process.execPath, ...command],
    env: { ...process.env, ...env },
    stdout: 'pipe',
    stderr: 'inherit',
  })
  const port = Number((await readyLine(child, /port=(\d+)/))[1])
  return {
    name,
    url: `http://127.0.0.1:${port}`,
    pids: () => [child.pid],
    headers: {},
    stop: async () => {
      child.kill()
      await child.exited
    },
  }
}

/** Starts the engine of the benchmarks as a process of its own; see `engine.ts`. */
export const startEngine = async (
  settings: EngineSettings = {},
): Promise<Served & { stats(anew?: boolean): Promise<{ calls: number; running: number; running_max: number }> }> => {
  const engine = await startScript('engine', [ENGINE, JSON.stringify(settings)])
  return {
    ...engine,
    stats: async (anew = false) => (await fetch(`${engine.url}/stats${anew ? '/anew' : ''}`)).json() as never,
  }
}

export type WeirOptions = {
  readonly workers?: number
  readonly config?: object
  readonly env?: Record<string, string>
  readonly shell?: string
}

/** A configuration with everything on: a price, limits of key and tenant, a budget. */
export const houseConfig = (engine_url: string) => ({
  engines: [{ name: 'bench', url: `${engine_url}/v1`, capacity: 100_000 }],
  models: [
    { name: 'bench', targets: [{ engine: 'bench' }], price: { input: '0.20', cached_input: '0.02', output: '0.60' } },
  ],
  tenants: [
    {
      name: 'bench',
      limits: { requests_per_minute: 1_000_000_000, concurrent: 100_000 },
      budgets: [{ usd: '100000000', per: 'month' }],
    },
  ],
})

/** Starts a governed house in front of an engine: key, limits, budget, journal, ledger, everything on. */
export const startWeir = async (
  engine_url: string,
  options: WeirOptions = {},
): Promise<Served & { ops: string; pid: number; worker_pids(): number[] }> => {
  const folder = mkdtempSync(join(tmpdir(), 'weir-bench-'))
  const config = { ...houseConfig(engine_url), ...options.config }
  writeFileSync(`${folder}/weir.yaml`, JSON.stringify(config))
  const command = [
    process.execPath,
    MAIN,
    'start',
    '--config',
    `${folder}/weir.yaml`,
    '--port',
    '0',
    '--ops-port',
    '0',
    '--data',
    `${folder}/data`,
    '--workers',
    String(options.workers ?? 1),
  ]
  const child = Bun.spawn({
    cmd: options.shell === undefined ? command : ['sh', '-c', `${options.shell}; exec "$@"`, 'sh', ...command],
    env: { ...process.env, WEIR_ADMIN_TOKEN: 'bench-admin-token', ...options.env },
    stdout: 'pipe',
    stderr: process.env['BENCH_LOUD'] ? 'inherit' : 'ignore',
  })
  const found = await readyLine(child, /port=(\d+) ops=(\d+) workers=\d+ pid=(\d+)/)
  const ops = `http://127.0.0.1:${found[2]}`
  const made = await fetch(`${ops}/admin/keys`, {
    method: 'POST',
    headers: { authorization: 'Bearer bench-admin-token', 'content-type': 'application/json' },
    body: JSON.stringify({ tenant: 'bench', name: 'bench', requests_per_minute: 1_000_000_000 }),
  })
  const { key } = (await made.json()) as { key: string }
  await Bun.sleep(300)
  const pid = Number(found[3])
  return {
    name: 'weir',
    url: `http://127.0.0.1:${found[1]}`,
    ops,
    pid,
    pids: () => tree(pid),
    worker_pids: () => tree(pid).filter((one) => commandLine(one).includes('main.ts worker')),
    headers: { authorization: `Bearer ${key}` },
    stop: async () => {
      child.kill('SIGTERM')
      await child.exited
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

/** Starts a bare reverse proxy on the gateway's own runtime and transport; see `bare.ts`. */
export const startBare = (engine_url: string): Promise<Served> => startScript('bare', [BARE, engine_url])

/** Starts nginx as a bare reverse proxy with one worker process and keep-alive both ways. */
export const startNginx = async (engine_url: string): Promise<Served> => {
  if (Bun.which('nginx') === null) throw new Error('nginx is not installed: apt-get install nginx-light')
  const folder = mkdtempSync(join(tmpdir(), 'weir-nginx-'))
  const listener = Bun.listen({ hostname: '127.0.0.1', port: 0, socket: { data() {} } })
  const { port } = listener
  listener.stop(true)
  writeFileSync(
    `${folder}/nginx.conf`,
    `user root; worker_processes 1; daemon off; pid ${folder}/pid; error_log ${folder}/error.log crit; worker_rlimit_nofile 40000;
events { worker_connections 16384; }
http { access_log off; keepalive_requests 1000000000; client_body_temp_path ${folder}/b; proxy_temp_path ${folder}/p; fastcgi_temp_path ${folder}/f; uwsgi_temp_path ${folder}/u; scgi_temp_path ${folder}/s;
upstream engine { server ${engine_url.slice(7)}; keepalive 1024; keepalive_requests 1000000000; }
server { listen 127.0.0.1:${port} backlog=4096; location / { proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; } } }`,
  )
  const child = Bun.spawn({
    cmd: ['nginx', '-p', folder, '-c', `${folder}/nginx.conf`],
    stdout: 'ignore',
    stderr: 'inherit',
  })
  const url = `http://127.0.0.1:${port}`
  for (let turn = 0; ; turn++) {
    const up = await fetch(`${url}/health`).then(
      () => true,
      () => false,
    )
    if (up) break
    if (turn === 100) throw new Error('nginx does not answer')
    await Bun.sleep(20)
  }
  return {
    name: 'nginx',
    url,
    pids: () => tree(child.pid),
    headers: {},
    stop: async () => {
      child.kill('SIGTERM')
      await child.exited
      rmSync(folder, { recursive: true, force: true })
    },
  }
}
