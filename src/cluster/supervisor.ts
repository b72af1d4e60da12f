import { limits } from '../base/limits.ts'
import type { TenantIncrease } from '../config/budgets.ts'
import type { LoadedConfig, NumberedConfig } from '../config/load.ts'
import type { Config, TenantConfig } from '../config/schema.ts'
import { HEADER } from '../table/layout.ts'
import type { Table } from '../table/table.ts'
import { type Child, spawnChild } from './child-process.ts'
import { descriptorsTold, planDescriptors } from './descriptors.ts'
import { nextIncarnation } from './house-files.ts'
import type { HouseLock } from './house-lock.ts'
import type { HouseOptions } from './house-options.ts'
import type { Boot, HouseFiles, Role } from './messages.ts'
import { needRestart, servedConfig } from './served-config.ts'
import { openSingles, type Singles } from './singles.ts'
import { Workers } from './workers.ts'

/** How long the accountant may take to post what is left. */
const POST_MS = 60_000
const LEAVE_MS = 5_000

/** A house, as signals drive it. */
export class Supervisor {
  /** Resolves with the exit code. */
  readonly done: Promise<number>
  readonly #finish: (code: number) => void
  #state: 'starting' | 'running' | 'stopping' = 'starting'
  /** What workers serve, and what the accountant has been told, which is ahead of it while a configuration is swapped. */
  #served: NumberedConfig
  #announced: NumberedConfig
  #written: LoadedConfig
  #made_tenants: readonly TenantConfig[] = []
  #increases: readonly TenantIncrease[] = []
  #generation = 1
  #swapping: Promise<void> = Promise.resolve()
  #adopted: (generation: number) => void = () => undefined
  readonly #options: HouseOptions
  readonly #files: HouseFiles
  readonly #table: Table
  readonly #singles: Singles
  #workers: Workers | undefined
  #demo_port = 0

  constructor(options: HouseOptions, files: HouseFiles, table: Table, lock: HouseLock) {
    this.#options = options
    this.#files = files
    this.#table = table
    const { config, origin } = options
    this.#written = { config, origin }
    this.#served = this.#announced = { config, origin, generation: this.#generation }
    const { promise, resolve } = Promise.withResolvers<number>()
    this.done = promise.finally(lock.release)
    this.#finish = resolve
    const { log, spawner } = options
    const spawn = (role: Role, port: number) => this.#spawn(role, port, limits.workers_max - 1, 0)
    this.#singles = openSingles({ table, spawn, log, tick: spawner.tick })
  }

  /** Starts every process and prints the ready line. Rejects if it cannot; a house that is stopped meanwhile is done. */
  async start(): Promise<void> {
    const { server } = this.#options.config
    try {
      const { ops, port } = await this.#startAll(server.port, server.ops_port)
      if (this.#state !== 'starting') return
      this.#state = 'running'
      const { print, workers, pid } = this.#options
      this.#tellConfiguration('configuration_in_force')
      print(`weir ready port=${port} ops=${ops} workers=${workers} pid=${pid}`)
    } catch (cause) {
      if (this.#state === 'stopping') return
      this.#state = 'stopping'
      this.#killAll()
      throw cause
    }
  }

  async #startAll(port: number, ops_port: number): Promise<{ port: number; ops: number }> {
    const { log, config, workers, spawner } = this.#options
    const descriptors = planDescriptors(config, this.#options.descriptors_max)
    log(...descriptorsTold(descriptors))
    await this.#demoIfWanted(config)
    this.#announced = this.#served = this.#compose()
    this.#table.i32[HEADER.config_generation] = this.#served.generation
    // The auditor goes first: it refuses a ledger that has fewer rows than are signed, which must not be written to.
    const [ops] = await Promise.all([this.#singles.keep('control', ops_port), this.#singles.keep('auditor', 0)])
    await this.#singles.keep('accountant', 0)
    this.#workers = new Workers({
      table: this.#table,
      spawn: (index, at, incarnation) => this.#spawn('worker', at, index, incarnation),
      next_incarnation: nextIncarnation(this.#files),
      log,
      tick: spawner.tick,
    })
    return { ops, port: await this.#workers.start(workers, port) }
  }

  /** Stops in order; a second call kills, and so does one before the house serves. */
  stop(): void {
    if (this.#state === 'running') {
      this.#state = 'stopping'
      this.#stopInOrder().then(
        () => this.#finish(0),
        (cause: unknown) => {
          this.#options.log('error', 'stop_failed', { cause })
          this.#killAll()
          this.#finish(1)
        },
      )
      return
    }
    const code = this.#state === 'starting' ? 0 : 1
    this.#state = 'stopping'
    this.#options.log('warn', 'stopped_at_once')
    this.#killAll()
    this.#finish(code)
  }

  /** Puts the configuration as it is now in force, or keeps the old one and logs every fault. */
  reload(): void {
    const { log } = this.#options
    if (this.#state !== 'running') return log('warn', 'reload_ignored', { state: this.#state })
    const next = this.#options.reload()
    if ('faults' in next)
      return log('error', 'reload_refused', { faults: next.faults, kept_generation: this.#served.generation })
    const restart = needRestart(this.#options.config, next.config)
    if (restart.length > 0) log('warn', 'settings_ignored', { until: 'restart', settings: restart })
    this.#swap(next)
  }

  /** Replaces the workers one by one; no accepted connection is refused. */
  async roll(): Promise<void> {
    if (this.#state !== 'running') return this.#options.log('warn', 'roll_ignored', { state: this.#state })
    await this.#workers?.roll(this.#served.config.server.grace_ms)
  }

  #hearTenants(made: readonly TenantConfig[], increases: readonly TenantIncrease[]): void {
    // A control process that was started again says what is known.
    if (Bun.deepEquals([made, increases], [this.#made_tenants, this.#increases])) return
    this.#made_tenants = made
    this.#increases = increases
    if (this.#state === 'running') this.#swap()
    else this.#announced = this.#served = this.#compose()
  }

  /**
   * One at a time; without another file's, what is written by then is composed anew. The accountant goes first: whatever is
   * sold has a price in the ledger before.
   */
  #swap(next?: LoadedConfig): void {
    this.#swapping = this.#swapping.then(async () => {
      if (this.#state !== 'running') return
      if (next !== undefined) {
        await this.#demoIfWanted(next.config)
        this.#written = next
      }
      this.#generation++
      const served = (this.#announced = this.#compose())
      await this.#announce(served)
      this.#served = served
      this.#singles.send('control', { type: 'config', ...served })
      this.#workers?.send({ type: 'config', ...served })
      Atomics.store(this.#table.i32, HEADER.config_generation, served.generation)
      this.#tellConfiguration('reloaded')
    })
    this.#swapping = this.#swapping.catch((cause: unknown) => this.#options.log('error', 'reload_failed', { cause }))
  }

  /** Tells which configuration is in force: its number, its file and what that held, and how much is served. */
  #tellConfiguration(event: 'configuration_in_force' | 'reloaded'): void {
    const { generation, origin, config } = this.#served
    const { engines, models, tenants } = config
    const counts = { engines: engines.length, models: models.length, tenants: tenants.length }
    this.#options.log('info', event, { generation, ...origin, ...counts })
  }

  /** Resolves when the accountant has it, or its successor, which is born with it, serves. */
  #announce(announced: NumberedConfig): Promise<void> {
    return new Promise((resolve) => {
      this.#adopted = (adopted) => {
        if (adopted >= announced.generation) resolve()
      }
      this.#singles.send('accountant', { type: 'config', ...announced })
    })
  }

  async #demoIfWanted(config: Config): Promise<void> {
    if (this.#options.wantsDemo(config) && !this.#singles.has('demo'))
      this.#demo_port = await this.#singles.keep('demo', 0)
  }

  #compose(): NumberedConfig {
    const { withDemo, config: first } = this.#options
    const { config: written, origin } = this.#written
    const config = servedConfig(written, {
      withDemo: (config) => withDemo(config, this.#demo_port),
      made_tenants: this.#made_tenants,
      increases: this.#increases,
      first: { ...first, server: { ...first.server, data: this.#files.data } },
    })
    return { config, origin, generation: this.#generation }
  }

  #spawn(role: Role, port: number, index: number, incarnation: number): Child {
    const { admin_token, demo_key, spawner, tell } = this.#options
    const numbered = role === 'accountant' ? this.#announced : this.#served
    const boot: Boot = {
      type: 'boot',
      ...numbered,
      files: this.#files,
      index,
      incarnation,
      port,
      descriptors_max: this.#options.descriptors_max,
      pretty_log: this.#options.pretty_log,
      demo: this.#demo_port !== 0,
      ...(admin_token !== undefined && { admin_token }),
      ...(demo_key !== undefined && { demo_key }),
    }
    const child = spawnChild(spawner, role, boot, {
      tell,
      tenants: (made, increases) => this.#hearTenants(made, increases),
      adopted: (adopted) => role === 'accountant' && this.#adopted(adopted),
    })
    if (role === 'accountant') void child.ready.then(() => this.#adopted(numbered.generation)).catch(() => undefined)
    return child
  }

  /** Stop accepting, let calls run out, then post everything, then close: in this order, or spend is lost (C48). */
  async #stopInOrder(): Promise<void> {
    const { log } = this.#options
    const { grace_ms } = this.#served.config.server
    Atomics.store(this.#table.i32, HEADER.draining, 1)
    this.#singles.stopping()
    log('info', 'draining', { grace_ms })
    await this.#workers?.drain(grace_ms)
    const accountant = await this.#singles.stop('accountant', POST_MS, true)
    const auditor = await this.#singles.stop('auditor', POST_MS, true)
    for (const role of ['control', 'demo'] as const) await this.#singles.stop(role, LEAVE_MS, false)
    for (const [role, code] of Object.entries({ accountant, auditor }))
      if (code !== 0) throw new Error(`the ${role} ended with ${code}, its work undone; the next start goes on with it`)
    log('info', 'stopped')
  }

  #killAll(): void {
    this.#singles.kill()
    this.#workers?.kill()
  }
}
