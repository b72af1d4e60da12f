import { type FaultList, join } from './faults.ts'

/** Variables by name, as the platform gives them. */
export type Environment = Readonly<Record<string, string | undefined>>

/** A tree of plain values after its references were replaced. */
export type Interpolated = {
  readonly value: unknown
  /** What stood in the file, by the path of each string that held a reference. */
  readonly templates: ReadonlyMap<string, string>
}

/** Levels of nesting in a configuration; deeper values are faults. */
const depth_max = 32

// In this order: an escaped $, a reference with or without default, and whatever else begins like one.
const reference = /\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-((?:(?!\$\{)[^}])*))?\}|\$\{/g

/**
 * Replaces `${NAME}`, `${NAME:-default}` (the default stands in for an unset or empty variable) and `$$` (a literal `$`)
 * in every string of a tree, at any depth, once: what a variable or a default holds is never looked at again. Any other
 * `$` stays. Keys of mappings are left alone. Values of variables lose CR, LF and blanks at both ends.
 * Faults: a variable that is not set and has no default, a `${` that begins no reference, nesting beyond 32 levels.
 */
export const interpolate = (tree: unknown, env: Environment, faults: FaultList): Interpolated => {
  const templates = new Map<string, string>()

  const walk = (value: unknown, path: string, depth: number): unknown => {
    if (typeof value === 'string') {
      const text = interpolateText(value, path, env, faults)
      if (text !== value) templates.set(path, value)
      return text
    }
    if (typeof value !== 'object' || value === null) return value
    if (depth === depth_max) {
      faults.add(path, `is nested deeper than ${depth_max} levels`, `allowed: at most ${depth_max} levels`)
      return null
    }
    if (Array.isArray(value)) return value.map((entry, index) => walk(entry, join(path, index), depth + 1))
    // fromEntries defines own properties, so that a key named __proto__ stays a key.
    return Object.fromEntries(
      Object.entries(value).map(([key, entry]) => [key, walk(entry, join(path, key), depth + 1)]),
    )
  }

  return { value: walk(tree, '', 0), templates }
}

/** The names that a file's text refers to, set or not. */
export const referencedNames = (text: string): Set<string> =>
  new Set([...text.matchAll(reference)].flatMap((found) => found[1] ?? []))

/** The value of a variable without CR, LF and blanks at both ends; undefined if it is unset or holds nothing else. */
export const variable = (env: Environment, name: string): string | undefined => {
  const text = Object.hasOwn(env, name) ? (env[name] ?? '').trim() : ''
  return text === '' ? undefined : text
}

const interpolateText = (text: string, path: string, env: Environment, faults: FaultList): string =>
  text.replace(reference, (whole: string, name?: string, fallback?: string) => {
    if (whole === '$$') return '$'
    if (name === undefined) {
      const allowed = 'allowed: ${NAME}, ${NAME:-default}, and $$ for a literal $'
      faults.add(path, 'holds a ${ that begins no reference', allowed)
      return whole
    }
    const value = variable(env, name)
    if (value !== undefined) return value
    if (fallback !== undefined) return fallback
    // Unlike a variable that nobody set, an empty one was set on purpose: the setting's own check judges it.
    if (Object.hasOwn(env, name) && env[name] !== undefined) return ''
    faults.add(path, `the variable ${name} is not set`, `set it, or write \${${name}:-default}`)
    return whole
  })
