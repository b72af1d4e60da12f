import { limits } from '../base/limits.ts'
import type { Config, TenantConfig } from '../config/schema.ts'
import type { Log } from '../observe/log.ts'
import { HEADER } from '../table/layout.ts'
import { createTable, type Table } from '../table/table.ts'
import { backoffMs, type Child, spawnChild, type Spawner, STEADY_MS } from './child-process.ts'
import { planDescriptors } from './descriptors.ts'
import { houseFiles, lockFolder, makeFolders, nextIncarnation } from './house-files.ts'
import type { Boot, HouseFiles, Role } from './messages.ts'
import { awaitOrphans } from './orphans.ts'
import { openWorkers, type Workers } from './workers.ts'

/** What a house is started with. */
export type HouseOptions = {
  readonly config: Config
  /** The configuration with the demo engine at a port, and whether it is wanted at all. */
  readonly withDemo: (config: Config, port: number) => Config
  readonly wantsDemo: (config: Config) => boolean
  /** Reads the configuration again; faults as printable lines. */
  readonly reload: () => Config | { readonly faults: readonly string[] }
  readonly workers: number
  readonly pid: number
  readonly descriptors_max: number
  readonly spawner: Spawner
  readonly log: Log
  readonly pretty_log: boolean
  readonly admin_token: string | undefined
  readonly demo_key: string | undefined
  readonly now: () => number
  readonly kill: (pid: number) => void
  /** Prints to the operator's terminal: the ready line to stdout, one-time secrets to stderr. */
  readonly print: (line: string) => void
  readonly tell: (text: string) => void
}

/** A running house, as signals drive it. */
export type HouseHandle = {
  /** Stops in order; a second call kills. */
  stop(): void
  reload(): void
  /** Replaces the workers one by one; no accepted connection is refused. */
  roll(): Promise<void>
  /** Resolves with the exit code. */
  readonly done: Promise<number>
}

/** How long the accountant may take to post what is left, and a worker to go after its grace. */
const DRAIN_MS = 60_000

/** Starts a house. Rejects if it cannot serve. */
export const startHouse = async (options: HouseOptions): Promise<HouseHandle> => {
  const files = houseFiles(options.config.server.data)
  makeFolders(files)
  const holder = lockFolder(files, options.pid)
  if (holder !== undefined) throw new Error(`the data folder ${files.data} belongs to a running house, pid ${holder}`)
  await awaitOrphans(files, options.kill)
  const table = createTable(files.table, options.config.server.subjects_max, options.now())
  table.i32[HEADER.supervisor_pid] = options.pid
  const house = new Supervisor(options, files, table)
  await house.start()
  return house
}

class Supervisor implements HouseHandle {
  readonly done: Promise<number>
  #finish: (code: number) => void
  #stopping = false
  #config: Config
  /** As the file has it, and with the demo and the API's tenants. */
  #written: Config
  #made_tenants: readonly TenantConfig[] = []
  #generation = 1
  #workers: Workers | undefined
  readonly #options: HouseOptions
  readonly #files: HouseFiles
  readonly #table: Table
  readonly #singles = new Map<Role, Child>()
  #ports = { port: 0, ops: 0, demo: 0 }

  constructor(options: HouseOptions, files: HouseFiles, table: Table) {
    this.#options = options
    this.#files = files
    this.#table = table
    this.#config = this.#written = options.config
    const { promise, resolve } = Promise.withResolvers<number>()
    this.done = promise
    this.#finish = resolve
  }

  async start(): Promise<void> {
    const { log, config } = this.#options
    const descriptors = planDescriptors(config, this.#options.descriptors_max)
    log(descriptors.allowed < descriptors.needed ? 'warn' : 'info', 'descriptors', { ...descriptors })
    await probePort(config.server.host, config.server.port)
    try {
      if (this.#options.wantsDemo(config)) this.#ports.demo = await this.#keep('demo', 0)
      this.#adopt(config)
      this.#table.i32[HEADER.config_generation] = this.#generation
      this.#ports.ops = await this.#keep('control', config.server.ops_port)
      await this.#keep('accountant', 0)
      this.#workers = openWorkers({
        table: this.#table,
        spawn: (index, port, incarnation) => this.#spawn('worker', port, index, incarnation),
        next_incarnation: nextIncarnation(this.#files),
        log,
        now: this.#options.now,
      })
      this.#ports.port = await this.#workers.start(this.#options.workers, config.server.port)
    } catch (cause) {
      this.#stopping = true
      this.#killAll()
      throw cause
    }
    this.#options.print(
      `weir ready port=${this.#ports.port} ops=${this.#ports.ops} workers=${this.#options.workers} pid=${this.#options.pid}`,
    )
  }

  stop(): void {
    if (this.#stopping) {
      this.#options.log('warn', 'stopped_at_once')
      this.#killAll()
      this.#finish(1)
      return
    }
    this.#stopping = true
    this.#stopInOrder().then(
      () => this.#finish(0),
      (cause: unknown) => {
        this.#options.log('error', 'stop_failed', { cause })
        this.#killAll()
        this.#finish(1)
      },
    )
  }

  reload(): void {
    const next = this.#options.reload()
    if ('faults' in next) {
      this.#options.log('error', 'reload_refused', { faults: next.faults, kept_generation: this.#generation })
      return
    }
    this.#swap(next)
    this.#options.log('info', 'reloaded', { generation: this.#generation })
  }

  /** Tenants of the admin API join those of the file, which win a name. */
  #hearTenants(made: readonly TenantConfig[]): void {
    this.#made_tenants = made
    if (this.#workers !== undefined) this.#swap(this.#written)
  }

  #swap(next: Config): void {
    this.#generation++
    this.#adopt(next)
    const message = { type: 'config', config: this.#config, generation: this.#generation } as const
    for (const child of this.#singles.values()) if (child.role !== 'demo') child.send(message)
    this.#workers?.send(message)
    Atomics.store(this.#table.i32, HEADER.config_generation, this.#generation)
  }

  async roll(): Promise<void> {
    if (this.#stopping || this.#workers === undefined) return
    await this.#workers.roll(this.#ports.port, this.#config.server.grace_ms)
  }

  #adopt(config: Config): void {
    this.#written = config
    const served = this.#options.wantsDemo(config) ? this.#options.withDemo(config, this.#ports.demo) : config
    // A port cannot change under running clients; what was bound stays.
    const named = new Set(served.tenants.map((tenant) => tenant.name))
    const tenants = [...served.tenants, ...this.#made_tenants.filter((tenant) => !named.has(tenant.name))]
    this.#config = { ...served, tenants, server: { ...served.server, data: this.#files.data } }
  }

  /** Starts a process of which there is one, and again whenever it dies. Resolves with its port once it serves. */
  async #keep(role: Role, port: number): Promise<number> {
    const child = this.#spawn(role, port, limits.workers_max - 1, 0)
    this.#note(role, child)
    const served = await child.ready
    void this.#watch(role, served, child, 0)
    return served
  }

  #note(role: Role, child: Child): void {
    this.#singles.set(role, child)
    const cell = {
      control: HEADER.control_pid,
      accountant: HEADER.accountant_pid,
      demo: HEADER.demo_pid,
      worker: -1,
    }[role]
    Atomics.store(this.#table.i32, cell, child.pid)
  }

  async #watch(role: Role, port: number, child: Child, failures: number): Promise<void> {
    const code = await child.exited
    if (this.#stopping) return
    const steady = this.#options.spawner.tick() - child.started_tick_ms > STEADY_MS
    const delay_ms = backoffMs(steady ? 0 : failures)
    this.#options.log('error', 'process_died', { role, pid: child.pid, code, restart_in_ms: delay_ms })
    await Bun.sleep(delay_ms)
    if (this.#stopping) return
    const next = this.#spawn(role, port, limits.workers_max - 1, 0)
    this.#note(role, next)
    void this.#watch(role, port, next, steady ? 1 : failures + 1)
  }

  #spawn(role: Role, port: number, index: number, incarnation: number): Child {
    const boot: Boot = {
      type: 'boot',
      config: this.#config,
      generation: this.#generation,
      files: this.#files,
      index,
      incarnation,
      port,
      descriptors_max: this.#options.descriptors_max,
      pretty_log: this.#options.pretty_log,
      demo: this.#ports.demo !== 0,
      ...(this.#options.admin_token !== undefined && { admin_token: this.#options.admin_token }),
      ...(this.#options.demo_key !== undefined && { demo_key: this.#options.demo_key }),
    }
    return spawnChild(this.#options.spawner, role, boot, {
      tell: this.#options.tell,
      tenants: (made) => this.#hearTenants(made),
    })
  }

  /** Stop accepting, let calls run out, then post everything, then close: in this order, or spend is lost (C48). */
  async #stopInOrder(): Promise<void> {
    const { log } = this.#options
    Atomics.store(this.#table.i32, HEADER.draining, 1)
    log('info', 'draining', { grace_ms: this.#config.server.grace_ms })
    await this.#workers?.drain(this.#config.server.grace_ms)
    const accountant = this.#singles.get('accountant')
    accountant?.send({ type: 'drain', grace_ms: DRAIN_MS })
    const code = await endOf(accountant, DRAIN_MS)
    for (const role of ['control', 'demo'] as const) {
      this.#singles.get(role)?.kill('SIGTERM')
      await endOf(this.#singles.get(role), 5_000)
    }
    if (code !== 0)
      throw new Error(`the accountant ended with ${code} before everything was posted; the journal keeps it`)
    log('info', 'stopped')
  }

  #killAll(): void {
    for (const child of this.#singles.values()) child.kill('SIGKILL')
    this.#workers?.kill()
  }
}

/** Waits for a child to go, and kills it if it does not. Answers its exit code. */
const endOf = async (child: Child | undefined, within_ms: number): Promise<number> => {
  if (child === undefined) return 0
  const timer = setTimeout(() => child.kill('SIGKILL'), within_ms)
  const code = await child.exited
  clearTimeout(timer)
  return code
}

/** Rejects if another program has the port: with SO_REUSEPORT the workers would share it without a word. */
const probePort = async (hostname: string, port: number): Promise<void> => {
  if (port === 0) return
  const listener = Bun.listen({ hostname, port, exclusive: true, socket: { data: () => undefined } })
  listener.stop(true)
}
