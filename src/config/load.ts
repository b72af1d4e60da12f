import { resolve } from 'node:path'
import { crossFaults } from './check.ts'
import { type ConfigFault, FaultList, printFault } from './faults.ts'
import { type Environment, interpolate, referencedNames, variable } from './interpolate.ts'
import { parseSource, readSource } from './source.ts'
import type { Config } from './schema.ts'
import { isTree, type Tree } from './tree.ts'
import { isConfig, schemaFaults, settle, withDefaults } from './validate.ts'
import { checkVariables, type Flags, overrides, type Overrides } from './variables.ts'

/** Where a configuration comes from. */
export type ConfigSource = {
  /** The file that was asked for by name; it must exist. Else `WEIR_CONFIG`, else `weir.yaml` if there is one. */
  readonly file?: string | undefined
  /** The text of the file, if it is at hand; nothing is read then. */
  readonly text?: string | undefined
  readonly env: Environment
  readonly flags?: Flags | undefined
}

/** The file that a configuration was read from and the SHA-256 of its bytes in hex; null where there was none. */
export type ConfigOrigin = { readonly file: string | null; readonly sha256: string | null }

/** A configuration that is whole, and what it was read from. */
export type LoadedConfig = { readonly config: Config; readonly origin: ConfigOrigin }

/** A configuration as a house serves it, and its number: each one that is put in force has the next. */
export type NumberedConfig = LoadedConfig & { readonly generation: number }

/** The file that is read when none is named. */
export const default_file = 'weir.yaml'

/**
 * Reads, interpolates, completes and checks a configuration. A flag beats a variable, that beats the file, that beats the
 * default. An absent or empty file is the empty configuration. Returns every fault at once, or a configuration that is
 * whole: every default filled in, every name known, every secret fit for a header.
 */
export const loadConfig = (from: ConfigSource): LoadedConfig | { faults: ConfigFault[] } => {
  const over = overrides(from.env, from.flags ?? {})
  const faults = new FaultList(over.labels)
  const { tree: config, origin } = load(from, over, faults)
  const found = faults.all()
  if (found.length > 0) return { faults: found }
  // Only a bug of the explanation leaves a refused tree without a fault.
  if (!isConfig(config)) throw new Error('config: refused without a fault')
  return { config, origin }
}

/** What `config check` prints, and its exit code: 0, a summary and the file, or 2 and one line a fault. */
export const checkConfig = (file: string | undefined, env: Environment): { exit_code: 0 | 2; lines: string[] } => {
  const result = loadConfig({ file, env })
  if ('faults' in result) return { exit_code: 2, lines: result.faults.map(printFault) }
  const { engines, models, tenants } = result.config
  const counts = [counted(engines, 'engine'), counted(models, 'model'), counted(tenants, 'tenant')].join(', ')
  const of_demo = engines.length === 0 && models.length === 0 ? '; the demo engine would serve' : ''
  const { file: path, sha256 } = result.origin
  const read = path === null ? [] : [`file: ${path}, sha256 ${sha256}`]
  return { exit_code: 0, lines: [`configuration is valid: ${counts}${of_demo}`, ...read] }
}

const counted = (list: readonly unknown[], what: string): string =>
  `${list.length} ${what}${list.length === 1 ? '' : 's'}`

const load = (
  from: ConfigSource,
  over: Overrides,
  faults: FaultList,
): { readonly tree: unknown; readonly origin: ConfigOrigin } => {
  const named = from.file ?? variable(from.env, 'WEIR_CONFIG')
  const file = named ?? default_file
  const read = from.text === undefined ? readSource(file, named === undefined) : { value: undefined }
  const found = 'value' in read ? read.value : undefined
  const origin = { file: found ? resolve(file) : null, sha256: found?.sha256 ?? null }
  const text = from.text ?? found?.text ?? ''
  checkVariables(from.env, referencedNames(text), faults)
  const parsed = 'faults' in read ? read : parseSource(text, file)
  if ('faults' in parsed) {
    for (const fault of parsed.faults) faults.add(fault.path, fault.found, fault.allowed)
    return { tree: undefined, origin }
  }
  // What is overridden goes first: an override is not interpolated, and what it hides need not be set.
  const kept = withServer(parsed.value, (own) => without(own, Object.keys(over.server)))
  const { value, templates } = interpolate(kept, from.env, faults)
  const overlaid = withServer(value, (own) => ({ ...own, ...over.server }))
  const written = settle(overlaid, new Set([...templates.keys(), ...over.labels.keys()]))
  const tree = withDefaults(written)
  faults.nextStage()
  schemaFaults(tree, templates, faults)
  faults.nextStage()
  crossFaults(tree, written, templates, faults)
  return { tree, origin }
}

/** The tree with its section `server` changed; a tree or section that is no mapping is left to the schema's faults. */
const withServer = (tree: unknown, change: (own: Tree) => Tree): unknown => {
  if (!isTree(tree)) return tree
  const own = tree['server'] ?? {}
  return isTree(own) ? { ...tree, server: change(own) } : tree
}

const without = (tree: Tree, keys: readonly string[]): Tree =>
  Object.fromEntries(Object.entries(tree).filter(([key]) => !keys.includes(key)))
