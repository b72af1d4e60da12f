import { type FaultList, join, knownNames } from './faults.ts'
import { isTree, type Tree } from './tree.ts'

/** Shows a value of a path in a fault: the template that stood in the file, or the value. */
export type See = (path: string, value: unknown) => string
/** An entry of a list with its path. */
export type Row = readonly [path: string, row: Tree]

/** The mappings in the list under a key; whatever else is there is another check's fault. */
export const rows = (tree: Tree, key: string, base = ''): Row[] => {
  const path = join(base, key)
  const list = tree[key]
  return (Array.isArray(list) ? list : []).flatMap((row: unknown, index): Row[] =>
    isTree(row) ? [[join(path, index), row]] : [],
  )
}

/** The texts in the list under a key, with their paths. */
export const texts = (tree: Tree, key: string, base: string): [path: string, text: string][] => {
  const list = tree[key]
  return (Array.isArray(list) ? list : []).flatMap((text: unknown, index): [string, string][] =>
    typeof text === 'string' ? [[join(join(base, key), index), text]] : [],
  )
}

/** The names of entries that have one. */
export const namesOf = (list: readonly Row[]): ReadonlySet<string> =>
  new Set(list.flatMap(([, row]) => (typeof row['name'] === 'string' ? [row['name']] : [])))

/** Faults every name that stood before. */
export const checkUnique = (
  entries: readonly (readonly [path: string, name: unknown])[],
  see: See,
  faults: FaultList,
) => {
  const first = new Map<string, string>()
  for (const [path, name] of entries) {
    if (typeof name !== 'string') continue
    const earlier = first.get(name)
    if (earlier === undefined) first.set(name, path)
    else faults.add(path, `${see(path, name)} stands twice`, `first: ${earlier}`)
  }
}

/** Faults every name that is not known. */
export const checkKnown = (
  entries: readonly (readonly [path: string, name: string])[],
  known: ReadonlySet<string>,
  kind: string,
  see: See,
  faults: FaultList,
) => {
  const article = /^[aeiou]/.test(kind) ? 'an' : 'a'
  for (const [path, name] of entries) {
    if (known.has(name)) continue
    faults.add(path, `${see(path, name)} is not ${article} ${kind}`, () => knownNames(name, [...known], kind))
  }
}

/** The names of entries with their paths. */
export const nameEntries = (list: readonly Row[]) =>
  list.map(([path, row]) => [join(path, 'name'), row['name']] as const)
