import { parseArgs } from 'node:util'
import { startDemoEngine, type DemoEngine } from './engine.ts'
import { demo_defaults, type DemoModel, type DemoSettings } from './settings.ts'

/** The numbers among the arguments, and the least that each may be. */
const NUMBERS = [
  ['port', 0],
  ['ttft-ms', 0],
  ['tokens-per-s', 0],
  ['prefill-tokens-per-s', 0],
  ['capacity', 1],
  ['queue-max', 0],
  ['context-tokens', 1],
  ['kv-cache-tokens', 1],
] as const

/**
 * Reads `--port 0 --host 127.0.0.1 --ttft-ms 30 --tokens-per-s 200 --prefill-tokens-per-s 0 --capacity 256
 * --queue-max 16384 --context-tokens 32768 --kv-cache-tokens 262144 --models demo,demo-embed:embedding`, each optional,
 * into settings; a text that says what is wrong if it is not that.
 */
export const demoSettings = (args: readonly string[]): Partial<DemoSettings> | string => {
  const names = [...NUMBERS.map(([name]) => name), 'host', 'models']
  const options = Object.fromEntries(names.map((name) => [name, { type: 'string' as const }]))
  let values: Record<string, string | undefined>
  try {
    values = parseArgs({ args: [...args], options, allowPositionals: false }).values as typeof values
  } catch (cause) {
    return cause instanceof Error ? cause.message : String(cause)
  }
  const settings: Record<string, unknown> = {}
  for (const [name, least] of NUMBERS) {
    const text = values[name]
    if (text === undefined) continue
    const value = Number(text)
    if (text === '' || !Number.isFinite(value) || value < least)
      return `--${name} must be a number of at least ${least}, found "${text}"`
    settings[name.replaceAll('-', '_')] = value
  }
  if (values['host'] !== undefined) settings['host'] = values['host']
  if (values['models'] !== undefined) {
    const models = modelsOf(values['models'])
    if (typeof models === 'string') return models
    settings['models'] = models
  }
  return settings
}

const modelsOf = (text: string): readonly DemoModel[] | string => {
  const models: DemoModel[] = []
  for (const item of text.split(',')) {
    const [, name, kind] = /^(.+?)(?::(chat|embedding))?$/.exec(item) ?? []
    if (name === undefined) return `--models must be NAME[:chat|:embedding], separated by commas, found "${text}"`
    models.push({ name, kind: kind === 'embedding' ? 'embedding' : 'chat' })
  }
  return models
}

/**
 * Runs a demo engine as this process: prints `demo-engine ready port=N` on stdout once it listens, and ends when its
 * parent does, which it notices by the IPC channel closing or, without one, by stdin ending. Resolves with the exit
 * code: 0 after SIGTERM, SIGINT or the parent's end; 2 for bad arguments; 1 if it cannot listen.
 */
export const runDemoEngine = async (args: readonly string[]): Promise<number> => {
  const settings = demoSettings(args)
  if (typeof settings === 'string') {
    process.stderr.write(`demo-engine: ${settings}\n`)
    return 2
  }
  // Before the ready line: whoever reads it may send a signal at once.
  const over = ended()
  let engine: DemoEngine
  try {
    engine = startDemoEngine(settings)
  } catch (cause) {
    const at = `${settings.host ?? demo_defaults.host}:${settings.port ?? demo_defaults.port}`
    process.stderr.write(
      `demo-engine: cannot listen on ${at}: ${cause instanceof Error ? cause.message : String(cause)}\n`,
    )
    return 1
  }
  process.stdout.write(`demo-engine ready port=${engine.port}\n`)
  await over
  await engine.stop()
  return 0
}

const ended = (): Promise<void> =>
  new Promise((resolve) => {
    const end = () => resolve()
    process.once('SIGTERM', end)
    process.once('SIGINT', end)
    if (process.send) {
      process.once('disconnect', end)
      if (!process.connected) end()
    } else process.stdin.once('end', end).once('close', end).resume()
  })
