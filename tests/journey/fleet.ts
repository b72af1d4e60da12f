import { resolve } from 'node:path'
import { freePort, within } from '../kit/wait.ts'

const MAIN = resolve(import.meta.dir, '../../src/main.ts')

/** A demo engine in a process of its own, on a port that stays its own when it is started again. */
export type EngineProcess = AsyncDisposable & {
  readonly url: string
  /** Starts it, or starts it again after its end; resolves when it listens. */
  start(): Promise<void>
  signal(signal: NodeJS.Signals): void
  /** Kills it and waits until it is gone. */
  kill(): Promise<void>
}

export const engineProcess = async (settings: Readonly<Record<string, number>>): Promise<EngineProcess> => {
  const port = freePort()
  const args = Object.entries(settings).flatMap(([name, value]) => [`--${name.replaceAll('_', '-')}`, String(value)])
  let child: ReturnType<typeof spawn> | undefined
  const spawn = () =>
    Bun.spawn([process.execPath, MAIN, 'demo-engine', '--port', String(port), '--models', 'm', ...args], {
      stdin: 'pipe',
      stdout: 'pipe',
      stderr: 'ignore',
    })
  const engine: EngineProcess = {
    url: `http://127.0.0.1:${port}/v1`,
    start: async () => {
      child = spawn()
      const reader = child.stdout.getReader()
      await within(reader.read(), 10_000, 'the ready line of a demo engine')
      reader.releaseLock()
    },
    signal: (signal) => child?.kill(signal),
    kill: async () => {
      child?.kill('SIGKILL')
      await child?.exited
    },
    [Symbol.asyncDispose]: async () => engine.kill(),
  }
  await engine.start()
  return engine
}

/** What became of one call. Times are `performance.now()`. */
export type Seen = {
  readonly at_ms: number
  readonly took_ms: number
  readonly status: number
  readonly engine: string
  readonly body: string
}

export type Ask = () => Promise<Response>

/** Sends calls at a steady pace, whatever becomes of them, until `until` says so; answers with all of them. */
export const steady = async (per_s: number, ask: Ask, until: () => boolean): Promise<Seen[]> => {
  const start_ms = performance.now()
  const running: Promise<Seen>[] = []
  while (!until()) {
    const due = Math.floor(((performance.now() - start_ms) / 1_000) * per_s)
    while (running.length < due) running.push(one(ask))
    await Bun.sleep(4)
  }
  return Promise.all(running)
}

/** {@link steady} for a time. */
export const steadyFor = (ms: number, per_s: number, ask: Ask): Promise<Seen[]> => {
  const end_ms = performance.now() + ms
  return steady(per_s, ask, () => performance.now() >= end_ms)
}

const one = async (ask: Ask): Promise<Seen> => {
  const at_ms = performance.now()
  try {
    const response = await ask()
    const engine = response.headers.get('x-weir-engine') ?? ''
    const body = await response.text()
    return { at_ms, took_ms: performance.now() - at_ms, status: response.status, engine, body }
  } catch (cause) {
    return { at_ms, took_ms: performance.now() - at_ms, status: 0, engine: '', body: String(cause) }
  }
}

export const percentile = (values: readonly number[], share: number): number => {
  const sorted = values.toSorted((one, other) => one - other)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN
}
