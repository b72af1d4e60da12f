#!/usr/bin/env bun
/** The command line. Every process of a house is this file with a role as its first word. */
import { existsSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { nowMs, tickMs } from './base/clock.ts'
import { limits } from './base/limits.ts'
import { type Channel, type ChildContext, type ChildLife, runChild } from './cluster/child.ts'
import { usableCpus } from './cluster/cpus.ts'
import { hardLimit } from './cluster/descriptors.ts'
import { houseFiles, makeFolders } from './cluster/house-files.ts'
import { lockHouse } from './cluster/house-lock.ts'
import type { FromChild, Role, ToChild } from './cluster/messages.ts'
import { openHouse } from './cluster/open-house.ts'
import { printFault } from './config/faults.ts'
import { withDemo } from './config/demo.ts'
import { variable } from './config/interpolate.ts'
import { checkConfig, default_file, loadConfig } from './config/load.ts'
import { openLog } from './observe/log.ts'

const env = process.env
const print = (line: string) => void process.stdout.write(`${line}\n`)
const tell = (text: string) => void process.stderr.write(`${text}\n`)

const channel: Channel = {
  send: (message: FromChild) => void process.send?.(message),
  onMessage: (handler) => void process.on('message', (message) => handler(message as ToChild)),
  onLost: (handler) => void process.on('disconnect', handler),
  exit: (code) => process.exit(code),
}

/** A terminal and some service managers signal the whole group; the supervisor alone decides what that means. */
const leaveSignalsToSupervisor = () => {
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGUSR2'] as const) process.on(signal, () => undefined)
}

/** Reads the options of `start`; unknown ones are refused by name. */
const startOptions = (argv: string[]) => {
  const { values } = parseArgs({
    args: argv,
    options: {
      config: { type: 'string' },
      port: { type: 'string' },
      'ops-port': { type: 'string' },
      data: { type: 'string' },
      workers: { type: 'string' },
    },
  })
  const flags = {
    ...(values.port !== undefined && { port: values.port }),
    ...(values['ops-port'] !== undefined && { ops_port: values['ops-port'] }),
    ...(values.data !== undefined && { data: values.data }),
    ...(values.workers !== undefined && { workers: values.workers }),
  }
  // What was there at the start must be there at a reload: an empty house instead would be a surprise.
  const found = variable(env, 'WEIR_CONFIG') ?? (existsSync(default_file) ? default_file : undefined)
  return { file: values.config ?? found, env, flags }
}

const start = async (argv: string[]): Promise<number> => {
  const options = startOptions(argv)
  const loaded = loadConfig(options)
  if ('faults' in loaded) {
    for (const fault of loaded.faults) tell(printFault(fault))
    return 2
  }
  const { config, origin } = loaded
  // What the house and its children write is nobody else's to read, also in a folder that others may enter.
  process.umask(0o077)
  const pretty_log = process.stderr.isTTY === true
  const log = openLog('supervisor', pretty_log)
  const house = await openHouse({
    config,
    origin,
    withDemo: (base, port) => withDemo(base, `http://127.0.0.1:${port}`),
    wantsDemo: (base) => base.engines.length === 0 && base.models.length === 0,
    reload: () => {
      const next = loadConfig(options)
      return 'faults' in next ? { faults: next.faults.map(printFault) } : next
    },
    workers:
      config.server.workers === 'auto' ? Math.min(usableCpus(), limits.workers_at_once_max) : config.server.workers,
    pid: process.pid,
    descriptors_max: hardLimit(),
    spawner: {
      command: [process.execPath, import.meta.path],
      // fetch queues silently beyond 256 exchanges unless told otherwise.
      env: { ...env, BUN_CONFIG_MAX_HTTP_REQUESTS: '65535', WEIR_ADMIN_TOKEN: undefined, WEIR_DEMO_KEY: undefined },
      tick: tickMs,
    },
    log,
    pretty_log,
    admin_token: variable(env, 'WEIR_ADMIN_TOKEN'),
    demo_key: variable(env, 'WEIR_DEMO_KEY'),
    now: nowMs,
    kill: (pid) => void process.kill(pid, 'SIGKILL'),
    print,
    // A secret that is told once is no event of the log, but what is not a terminal gets JSON lines only.
    tell: (says) => tell(pretty_log ? says : JSON.stringify({ event: 'told_once', says })),
  })
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => house.stop())
  process.on('SIGHUP', () => house.reload())
  process.on('SIGUSR2', () => void house.roll())
  // Not awaited alone: a house can be stopped while it starts.
  return Promise.race([house.start().then(() => house.done), house.done])
}

/** Runs a child of the house, which ends by itself. */
const child = (role: Role, main: (context: ChildContext) => Promise<ChildLife>): undefined => {
  leaveSignalsToSupervisor()
  runChild(role, channel, main)
}

const USAGE = `weir start [--config F] [--port N] [--ops-port N] [--data DIR] [--workers N|auto]
weir config check [--config F]
weir keys create --tenant T | list | revoke ID
weir invoice --tenant T --month YYYY-MM [--format json|csv] [--proofs] [--offline --data DIR]
weir ledger rebuild --data DIR [--check]
weir fsck --data DIR [--key PUB] [--checkpoint FILE]
weir verify FILE [--key PUB] [--checkpoint FILE] [--consistency FILE]
weir page [FILE] > verify.html
weir audit checkpoint | public-key | rotate-key | erase-salts --tenant T`

/** The lines of the usage that are about a command; all of them if none is. */
const usageOf = (command: string): string => {
  const own = USAGE.split('\n').filter((line) => line.startsWith(`weir ${command} `))
  return own.length > 0 ? own.join('\n') : USAGE
}

/** Takes a data folder from any house, so that none begins while it is looked at. */
const takeHouse = (data: string) => {
  const files = houseFiles(data)
  makeFolders(files)
  const lock = lockHouse(files)
  return typeof lock === 'number' ? `${data} belongs to a running house${lock > 0 ? `, pid ${lock}` : ''}` : lock
}

/** Prints what a command leaves, and answers its exit code. */
const ended = ({ exit_code, stdout, stderr }: { exit_code: number; stdout: string; stderr: string }): number => {
  process.stdout.write(stdout)
  process.stderr.write(stderr)
  return exit_code
}

/** A command answers its exit code; undefined keeps the process (a child of the house, which ends by itself). */
const COMMANDS: Record<string, (argv: string[]) => Promise<number | undefined>> = {
  start,
  worker: async () => {
    const { runWorker } = await import('./cluster/worker.ts')
    return child('worker', runWorker)
  },
  control: async () => {
    const { runControl } = await import('./cluster/control.ts')
    return child('control', runControl)
  },
  accountant: async () => {
    const { runAccountantProcess } = await import('./cluster/accountant.ts')
    return child('accountant', runAccountantProcess)
  },
  auditor: async () => {
    const { runAuditor } = await import('./cluster/auditor.ts')
    return child('auditor', runAuditor)
  },
  demo: async () => {
    const { runDemo } = await import('./cluster/demo-engine.ts')
    return child('demo', runDemo)
  },
  'demo-engine': async (argv) => {
    const { runDemoEngine } = await import('./engines/demo/main.ts')
    return runDemoEngine(argv)
  },
  config: async ([verb, ...argv]) => {
    if (verb !== 'check') {
      const says = verb === undefined ? 'a command is missing' : `"${verb}" is not a command`
      tell(`weir config: ${says}; known: check\n${usageOf('config')}`)
      return 2
    }
    const { values } = parseArgs({ args: argv, options: { config: { type: 'string' } } })
    const { exit_code, lines } = checkConfig(values.config, env)
    for (const line of lines) (exit_code === 0 ? print : tell)(line)
    return exit_code
  },
  fsck: async (argv) => {
    const { fsckCommand } = await import('./audit/fsck-command.ts')
    return ended(fsckCommand(argv, takeHouse))
  },
  verify: async (argv) => {
    const { verifyCommand } = await import('./audit/verify-command.ts')
    return ended(verifyCommand(argv))
  },
  audit: async (argv) => {
    const { auditCommand } = await import('./admin/audit-command.ts')
    return ended(await auditCommand(argv, env))
  },
  page: async ([file]) => {
    const { verifyPage } = await import('./dashboard/verify-page.ts')
    const found = file === undefined ? undefined : Bun.file(file)
    if (found !== undefined && !(await found.exists())) {
      tell(`weir page: ${file} is not a file; needed: what weir invoice --proofs printed\n${usageOf('page')}`)
      return 1
    }
    process.stdout.write(verifyPage(await found?.text()))
    return 0
  },
  invoice: async (argv) => {
    const { invoiceCommand } = await import('./admin/invoice-command.ts')
    return ended(await invoiceCommand(argv, env))
  },
  ledger: async (argv) => {
    const { ledgerCommand } = await import('./ledger/rebuild-command.ts')
    return ended(ledgerCommand(argv, takeHouse))
  },
  keys: async (argv) => {
    const { keysCommand } = await import('./admin/cli.ts')
    const { exit_code, stdout, stderr } = await keysCommand(argv, env)
    process.stdout.write(stdout)
    process.stderr.write(stderr)
    return exit_code
  },
}

/** Commands that explain themselves at more length than {@link USAGE}. */
const EXPLAINED = ['keys', 'invoice', 'audit']

const [command = 'help', ...argv] = process.argv.slice(2)
const helps = [command, ...argv].some((word) => word === '--help' || word === '-h') || command === 'help'
const run = Object.hasOwn(COMMANDS, command) ? COMMANDS[command] : undefined
if (helps && !EXPLAINED.includes(command)) {
  print(usageOf(command))
  process.exit(0)
}
if (run === undefined) {
  tell(`no such command: ${command}\n${USAGE}`)
  process.exit(2)
}
process.on('unhandledRejection', (cause) => {
  openLog(command, false)('error', 'unhandled_rejection', { cause })
  process.exit(1)
})
try {
  const code = await run(helps ? ['--help'] : argv)
  if (code !== undefined) process.exit(code)
} catch (cause) {
  // Bad usage of an option is the caller's fault and names itself; anything else is ours.
  const says = cause instanceof Error ? cause.message : String(cause)
  const is_usage = (cause as { code?: string }).code?.startsWith('ERR_PARSE_ARGS') === true
  tell(`weir ${command}: ${says}${is_usage ? `\n${usageOf(command)}` : ''}`)
  process.exit(is_usage ? 2 : 1)
}
