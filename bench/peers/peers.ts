import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { tree } from '../kit/processes.ts'
import type { Served } from '../kit/servers.ts'

/** A peer: how it is installed into a folder outside the project, and how it is started in front of an engine. */
export type Peer = {
  readonly name: string
  /** What of its governance runs in this configuration. */
  readonly governance: string
  /** The file that is there once it is installed, under the folder of the peers. */
  readonly needs: string
  /** How to install it, for whoever reads the note. */
  readonly install: string
  readonly start: (ports: Ports) => Launch
}

export type Ports = {
  readonly folder: string
  readonly port: number
  readonly engine_url: string
  readonly work: string
}

type Launch = {
  readonly cmd: readonly string[]
  readonly env?: Readonly<Record<string, string>>
  readonly cwd?: string
  readonly headers?: Readonly<Record<string, string>>
  /** The model's name there, where it is not `bench`. */
  readonly model?: string
}

const PROXIES = resolve(import.meta.dir, 'proxies.py')
const MASTER_KEY = 'sk-bench-0123456789'

const python = (kind: 'fastapi' | 'robyn'): Peer => ({
  name: kind,
  governance: 'none: a plain reverse proxy',
  needs: 'plain/bin/python',
  install: 'python3 -m venv plain && plain/bin/pip install fastapi uvicorn[standard] httpx robyn',
  start: ({ folder, port, engine_url }) => ({
    cmd: [join(folder, 'plain/bin/python'), PROXIES, kind, String(port), engine_url],
  }),
})

const litellm = (governed: boolean): Peer => ({
  name: governed ? 'litellm-governed' : 'litellm',
  governance: governed ? 'master key checked on every call, no database' : 'no key',
  needs: 'litellm/bin/litellm',
  install: 'python3 -m venv litellm && litellm/bin/pip install litellm[proxy]',
  start: ({ folder, port, engine_url, work }) => {
    const config = join(work, 'litellm.yaml')
    const params = { model: 'openai/bench', api_base: `${engine_url}/v1`, api_key: 'none' }
    writeFileSync(
      config,
      JSON.stringify({
        model_list: [{ model_name: 'bench', litellm_params: params }],
        litellm_settings: { telemetry: false, drop_params: true },
        general_settings: governed ? { master_key: MASTER_KEY } : { dangerously_permit_weak_or_unset_master_key: true },
      }),
    )
    return {
      cmd: [join(folder, 'litellm/bin/litellm'), '--config', config, '--port', String(port), '--host', '127.0.0.1'],
      env: { LITELLM_LOG: 'ERROR', LITELLM_TELEMETRY: 'False', LITELLM_LOCAL_MODEL_COST_MAP: 'True' },
      ...(governed && { headers: { authorization: `Bearer ${MASTER_KEY}` } }),
    }
  },
})

/** The virtual key that `bifrost/main.go` knows. */
const VIRTUAL_KEY = 'sk-bf-bench-0123456789'

const bifrost = (governed: boolean): Peer => ({
  name: governed ? 'bifrost-governed' : 'bifrost',
  governance: governed
    ? 'virtual key, budget and limits checked before a call, charged after it; in memory, nothing on disk'
    : 'off',
  needs: 'bifrost/bifrost',
  install: `go build -C …/bench/peers/bifrost -o "$PWD/bifrost/bifrost" .  (its core behind a bare front: see main.go there)`,
  start: ({ folder, port, engine_url }) => ({
    cmd: [
      join(folder, 'bifrost/bifrost'),
      '-port',
      String(port),
      '-engine',
      engine_url,
      ...(governed ? ['-governance'] : []),
    ],
    model: 'openai/bench',
    ...(governed && { headers: { 'x-bf-vk': VIRTUAL_KEY } }),
  }),
})

/** Every peer that can be installed from a registry. */
export const PEERS: readonly Peer[] = [
  {
    name: 'portkey',
    governance: 'none in the open gateway: routing by headers',
    needs: 'portkey/node_modules/@portkey-ai/gateway/build/start-server.js',
    install: 'mkdir portkey && cd portkey && npm install @portkey-ai/gateway',
    start: ({ folder, port, engine_url }) => ({
      cmd: [
        'node',
        join(folder, 'portkey/node_modules/@portkey-ai/gateway/build/start-server.js'),
        '--headless',
        `--port=${port}`,
      ],
      headers: {
        'x-portkey-provider': 'openai',
        'x-portkey-custom-host': `${engine_url}/v1`,
        authorization: 'Bearer none',
      },
    }),
  },
  litellm(false),
  litellm(true),
  bifrost(false),
  bifrost(true),
  python('fastapi'),
  python('robyn'),
]

const READY_MS = 60_000

/** A port that nobody has. */
const freePort = (): number => {
  const listener = Bun.listen({ hostname: '127.0.0.1', port: 0, socket: { data() {} } })
  const { port } = listener
  listener.stop(true)
  return port
}

/** Starts a peer and waits until it answers a call; why not, as a text, if it does not. */
export const startPeer = async (
  peer: Peer,
  folder: string,
  engine_url: string,
  body: string,
): Promise<(Served & { body: string }) | string> => {
  if (!existsSync(join(folder, peer.needs))) return `not installed: ${peer.install}`
  const work = mkdtempSync(join(tmpdir(), 'weir-peer-'))
  const port = freePort()
  const { cmd, env, headers = {}, model } = peer.start({ folder, port, engine_url, work })
  const child = Bun.spawn({
    cmd: [...cmd],
    cwd: work,
    env: { ...process.env, ...env },
    stdout: process.env['BENCH_LOUD'] ? 'inherit' : 'ignore',
    stderr: process.env['BENCH_LOUD'] ? 'inherit' : 'ignore',
  })
  const url = `http://127.0.0.1:${port}`
  const stop = async () => {
    const pids = tree(child.pid)
    child.kill()
    await Promise.race([child.exited, Bun.sleep(3_000)])
    for (const pid of pids) kill(pid)
    await child.exited
    rmSync(work, { recursive: true, force: true })
  }
  const asked = model === undefined ? body : body.replace('"bench"', JSON.stringify(model))
  let said = 'no answer'
  for (const until = performance.now() + READY_MS; performance.now() < until && child.exitCode === null;) {
    const answer = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: asked,
    }).catch(() => undefined)
    if (answer?.status === 200) {
      await answer.text()
      return { name: peer.name, url, headers, pids: () => tree(child.pid), stop, body: asked }
    }
    if (answer !== undefined) said = `${answer.status} ${(await answer.text()).slice(0, 200)}`
    await Bun.sleep(250)
  }
  await stop()
  return `does not serve: ${said}`
}

const kill = (pid: number): void => {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // It has ended already.
  }
}
