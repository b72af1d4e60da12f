import type { ConfigOrigin, LoadedConfig } from '../config/load.ts'
import type { Config } from '../config/schema.ts'
import type { Log } from '../observe/log.ts'
import type { Spawner } from './child-process.ts'

/** What a house is started with. */
export type HouseOptions = {
  readonly config: Config
  /** What it was read from, for the log. */
  readonly origin: ConfigOrigin
  /** The configuration with the demo engine at a port, and whether it is wanted at all. */
  readonly withDemo: (config: Config, port: number) => Config
  readonly wantsDemo: (config: Config) => boolean
  /** Reads the configuration again; faults as printable lines. */
  readonly reload: () => LoadedConfig | { readonly faults: readonly string[] }
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
  /** Prints the ready line. */
  readonly print: (line: string) => void
  /** Shows a one-time secret to the operator. */
  readonly tell: (text: string) => void
}
