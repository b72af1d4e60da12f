import { isUtf8 } from 'node:buffer'

import { Failure } from '../base/failure.ts'
import { limits } from '../base/limits.ts'
import { explainFault, explainUtf8 } from './json-fault.ts'
import { KeyStack, hashText } from './json-keys.ts'
import { skipColon, skipKey, skipSpace, skipValue } from './json-skip.ts'
import { jsonRange, type JsonRange } from './json-value.ts'

export type JsonScan<Path extends string> = {
  /** The document's value. Only an object has members, so `values` is empty for anything else. */
  readonly root: JsonRange
  /** True if a UTF-8 byte order mark stands before the document (RFC 8259 §8.1 lets a parser ignore it). */
  readonly bom: boolean
  /** The ranges of the wanted values; undefined for those that are not there. */
  readonly values: { readonly [Key in Path]: JsonRange | undefined }
}

/** An object that is read: the keys wanted of it. */
type Node = {
  readonly path: string
  readonly wanted: Want[]
  /** How values are read whose keys are not wanted, and elements of an array; undefined if they are skipped. */
  deep: Node | undefined
}

type Want = { readonly name: string; readonly hash: number; readonly path: string; readonly below: Node }

/** One pass over one document. `twice` is set when a key is met again. */
type Pass = {
  readonly bytes: Uint8Array
  readonly keys: KeyStack
  readonly values: Record<string, JsonRange | undefined>
  twice: { readonly key: string; readonly path: string } | undefined
}

/**
 * Makes a scanner of whole JSON documents that validates all of one and decodes none of it. A path is a key of the
 * top-level object, `outer.inner` for a member of a member, or `outer.**`, which yields no range but has every object
 * in the value of `outer` read, at any depth. Keys are compared unescaped, and a path's must be in ASCII.
 *
 * The scanner answers `json_invalid` for bytes that are not one JSON document in UTF-8 (RFC 8259) or are nested more
 * than `limits.json_depth_max` deep, and `field_invalid` where an object that is read holds a key twice.
 */
export const jsonScanner = <Path extends string>(paths: readonly Path[]) => {
  const root = compile(paths)
  const keys = new KeyStack(new Uint8Array(0))
  // One shape for all results, so that reading and filling them stays cheap.
  const none = Object.fromEntries(paths.map((path) => [path, undefined]))
  return (bytes: Uint8Array): JsonScan<Path> | Failure => {
    if (!isUtf8(bytes)) return new Failure('json_invalid', { says: explainUtf8(bytes) })
    const bom = bytes.length >= 3 && bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf
    const start = skipSpace(bytes, bom ? 3 : 0, bytes.length)
    keys.reset(bytes)
    const pass: Pass = { bytes, keys, values: { ...none }, twice: undefined }
    const end = readValue(pass, start, limits.json_depth_max, root)
    if (end < 0) return refuse(pass, ~end)
    const last = skipSpace(bytes, end, bytes.length)
    if (last !== bytes.length) return refuse(pass, last)
    // The compiler cannot see that only keys of `paths` and of objects on their way are set.
    const values = pass.values as JsonScan<Path>['values']
    return { root: jsonRange(bytes, start, end, -1), bom, values }
  }
}

const compile = (paths: readonly string[]): Node => {
  const root: Node = { path: '', wanted: [], deep: undefined }
  for (const path of paths) {
    let node = root
    for (const step of path.split('.')) {
      if (step === '**') {
        node.deep = { path: node.path, wanted: [], deep: undefined }
        node.deep.deep = node.deep
        break
      }
      node = below(node, step)
    }
  }
  return root
}

/** The node of a member, made if it is new. A node that wants nothing and is not deep is a value to skip. */
const below = (node: Node, name: string): Node => {
  const known = node.wanted.find((want) => want.name === name)
  if (known) return known.below
  const path = node.path === '' ? name : `${node.path}.${name}`
  const made: Node = { path, wanted: [], deep: undefined }
  node.wanted.push({ name, hash: hashText(name), path, below: made })
  return made
}

const refuse = (pass: Pass, at: number): Failure => {
  if (!pass.twice) return new Failure('json_invalid', { says: explainFault(pass.bytes, at, limits.json_depth_max) })
  const { key, path } = pass.twice
  const shown = key.length > 64 ? `${key.slice(0, 64)}…` : key
  const where = path === '' ? 'of the request body' : `in "${path}"`
  return new Failure('field_invalid', {
    says: `The key ${JSON.stringify(shown)} stands twice in one object ${where}, again at byte ${at}; give it once.`,
    param: path === '' ? shown : `${path}.${shown}`,
  })
}

/** Reads a value of which something is wanted, or skips it. */
const readValue = (pass: Pass, pos: number, depth: number, node: Node | undefined): number => {
  const { bytes } = pass
  const first = pos < bytes.length ? bytes[pos] : 0
  if (node !== undefined && depth > 0) {
    if (first === 0x7b) return readObject(pass, pos + 1, depth - 1, node)
    if (first === 0x5b && node.deep) return readArray(pass, pos + 1, depth - 1, node.deep)
  }
  return skipValue(bytes, pos, bytes.length, depth)
}

const readArray = (pass: Pass, pos: number, depth: number, node: Node): number => {
  const { bytes } = pass
  const end = bytes.length
  let at = skipSpace(bytes, pos, end)
  if (at < end && bytes[at] === 0x5d) return at + 1
  for (;;) {
    at = readValue(pass, at, depth, node)
    if (at < 0) return at
    at = skipSpace(bytes, at, end)
    if (at >= end) return ~end
    if (bytes[at] === 0x5d) return at + 1
    if (bytes[at] !== 0x2c) return ~at
    at = skipSpace(bytes, at + 1, end)
  }
}

const readObject = (pass: Pass, pos: number, depth: number, node: Node): number => {
  const { bytes, keys } = pass
  const end = bytes.length
  let at = skipSpace(bytes, pos, end)
  if (at < end && bytes[at] === 0x7d) return at + 1
  const base = keys.open()
  let many: Set<string> | undefined
  for (;;) {
    const key_start = at
    at = skipKey(bytes, at, end)
    if (at < 0) return at
    const added = keys.add(base, many, key_start + 1, at - 1)
    if (added === false) {
      pass.twice = { key: keys.lastText(), path: node.path }
      return ~key_start
    }
    many = added
    at = skipColon(bytes, at, end)
    if (at < 0) return at
    at = readMember(pass, key_start, at, depth, node)
    if (at < 0) return at
    at = skipSpace(bytes, at, end)
    if (at >= end) return ~end
    if (bytes[at] === 0x7d) break
    if (bytes[at] !== 0x2c) return ~at
    at = skipSpace(bytes, at + 1, end)
  }
  keys.close(base)
  return at + 1
}

/** Reads or skips the value at `pos`; its key is the last one added. */
const readMember = (pass: Pass, key_start: number, pos: number, depth: number, node: Node): number => {
  const { bytes, keys } = pass
  const want = wantOf(node, keys)
  if (want === undefined) return readValue(pass, pos, depth, node.deep)
  const end = readValue(pass, pos, depth, want.below.wanted.length > 0 || want.below.deep ? want.below : node.deep)
  if (end >= 0) pass.values[want.path] = jsonRange(bytes, pos, end, key_start)
  return end
}

const wantOf = (node: Node, keys: KeyStack): Want | undefined => {
  const { wanted } = node
  for (let i = 0; i < wanted.length; i++) {
    const want = wanted[i]!
    if (want.hash === keys.last_hash && keys.lastIs(want.name)) return want
  }
  return undefined
}
