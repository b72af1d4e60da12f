/** One thing that is wrong with the configuration: where, what was found there, and what is right. */
export type ConfigFault = {
  /** The setting (`models[0].price.input`), variable (`WEIR_PORT`), flag (`--port`) or place in the file. */
  readonly path: string
  /** What stands there, in words, without the value of a secret. */
  readonly found: string
  /** What may stand there, in words. */
  readonly allowed: string
}

/** One fault as one line: `models[0].targets[0].engine: "vllm-b" is not an engine; known: vllm-a`. */
export const printFault = (fault: ConfigFault): string => `${fault.path}: ${fault.found}; ${fault.allowed}`

/** At most this many faults are reported. */
export const faults_max = 1_000

const known_shown_max = 10
const shown_chars_max = 80
const compared_chars_max = 64
const compared_names_max = 256

/** The path of an entry of a list (`base[0]`) or of a mapping (`base.key`, `base["odd key"]`). */
export const join = (base: string, key: string | number): string => {
  if (typeof key === 'number') return `${base}[${key}]`
  if (!/^[A-Za-z_][\w-]*$/.test(key)) return `${base}[${quoted(key)}]`
  return base === '' ? key : `${base}.${key}`
}

/** A text in double quotes on one line: control characters escaped, cut when long. */
export const quoted = (text: string): string => {
  const cut = text.length > shown_chars_max ? `${text.slice(0, shown_chars_max)}…` : text
  return JSON.stringify(cut).replace(/[\u007f-\u009f\u2028\u2029]/g, (found) => `\\u${hex4(found)}`)
}

/** A text in which what looks like a credential in an address, `//user:password@` or `?api_key=…`, is `***`. */
export const masked = (text: string): string =>
  text
    .replace(/\/\/.*@/s, '//***@')
    .replace(/([?&][^=&]*(?:key|token|secret|sig|passw|auth|credential)[^=&]*=)[^&#]*/gi, '$1***')

/** A character as `U+000D`. */
export const codePoint = (character: string): string => `U+${hex4(character).toUpperCase()}`

const hex4 = (character: string): string => (character.codePointAt(0) ?? 0).toString(16).padStart(4, '0')

/** A value in words for a person: scalars as they are, mappings and lists by their kind, addresses {@link masked}. */
export const shown = (value: unknown): string => {
  if (value === null || value === undefined) return 'nothing'
  if (Array.isArray(value)) return 'a list'
  if (typeof value === 'object') return 'a mapping'
  return typeof value === 'string' ? quoted(masked(value)) : String(value)
}

/** `known: a, b and 3 more`; of many names the one nearest to what was written stands first. */
export const knownNames = (written: string, names: readonly string[], kind: string): string => {
  if (names.length === 0) return `no ${kind} is configured`
  if (names.length <= known_shown_max) return `known: ${names.join(', ')}`
  const near = nearest(written, names)
  const order = near === undefined ? names : [near, ...names.filter((name) => name !== near)]
  return `known: ${order.slice(0, known_shown_max).join(', ')} and ${names.length - known_shown_max} more`
}

/** `did you mean port?`, or every known key when none is near. */
export const didYouMean = (written: string, names: readonly string[]): string => {
  const near = nearest(written, names)
  return near === undefined ? `known: ${names.join(', ')}` : `did you mean ${near}?`
}

/** The name most like `written`, within a third of its length in edits, or a word of it; else undefined. */
export const nearest = (written: string, names: readonly string[]): string | undefined => {
  const wanted = written.slice(0, compared_chars_max).toLowerCase()
  let best: string | undefined
  let best_edits = Math.max(2, Math.floor(wanted.length / 3)) + 1
  for (const name of names.slice(0, compared_names_max)) {
    const edits = editDistance(wanted, name.slice(0, compared_chars_max).toLowerCase())
    if (edits < best_edits && edits < name.length) [best, best_edits] = [name, edits]
  }
  return best ?? names.find((name) => name.length > 2 && wanted.split(/[^a-z0-9]+/).includes(name.toLowerCase()))
}

/** Insertions, deletions, substitutions and swaps of neighbours between two short texts. */
const editDistance = (a: string, b: string): number => {
  let before: number[] = []
  let above = Array.from({ length: b.length + 1 }, (_, index) => index)
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const substituted = above[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1] ? before[j - 2]! + 1 : Infinity
      row.push(Math.min(substituted, above[j]! + 1, row[j - 1]! + 1, swapped))
    }
    ;[before, above] = [above, row]
  }
  return above[b.length]!
}

/** Collects faults stage by stage, at most {@link faults_max} of them; what it does not keep costs no time. */
export class FaultList {
  readonly #kept: ConfigFault[] = []
  readonly #earlier = new Set<string>()
  readonly #now = new Set<string>()
  readonly #labels: ReadonlyMap<string, string>
  #dropped = 0

  /** `labels` name what set the setting of a path, if the file did not: a flag or a variable. */
  constructor(labels: ReadonlyMap<string, string> = new Map()) {
    this.#labels = labels
  }

  /** Adds a fault, unless an earlier stage faulted the same path: then it would only repeat that. */
  add(path: string, found: string, allowed: string | (() => string)): void {
    if (this.#earlier.has(path)) return
    this.#now.add(path)
    if (this.#kept.length === faults_max) this.#dropped++
    else
      this.#kept.push({
        path: this.#labels.get(path) ?? path,
        found,
        allowed: typeof allowed === 'string' ? allowed : allowed(),
      })
  }

  /** Begins a stage whose faults are worth telling only where no stage before found one. */
  nextStage(): void {
    for (const path of this.#now) this.#earlier.add(path)
    this.#now.clear()
  }

  /** The faults in the order found; a last one counts those that were not kept. */
  all(): ConfigFault[] {
    if (this.#dropped === 0) return [...this.#kept]
    return [...this.#kept, { path: '…', found: `${this.#dropped} further faults`, allowed: 'not shown' }]
  }
}
