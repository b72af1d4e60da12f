import { closeSync, openSync, readSync } from 'node:fs'
import { type Document, type ErrorCode, isMap, isScalar, isSeq, LineCounter, parseDocument } from 'yaml'
import type { ConfigFault } from './faults.ts'

/** The largest configuration file. */
export const config_bytes_max = 8 * 1024 * 1024

/** What a configuration file or text holds, or why it cannot be read. */
export type Source<T> = { readonly value: T } | { readonly faults: readonly ConfigFault[] }

/** The text of a file, and the SHA-256 of its bytes in hex. */
export type SourceText = { readonly text: string; readonly sha256: string }

/**
 * Reads a file as UTF-8, without its byte-order mark. A missing file is undefined when `may_miss`, else a fault, as are
 * a folder, a file that may not be read, one beyond {@link config_bytes_max} and one that is not UTF-8.
 */
export const readSource = (file: string, may_miss: boolean): Source<SourceText | undefined> => {
  let bytes: Uint8Array
  try {
    bytes = readBounded(file)
  } catch (cause) {
    const code = cause instanceof Error && 'code' in cause ? String(cause.code) : 'unknown'
    if (code === 'ENOENT' && may_miss) return { value: undefined }
    return fault(file, READ_FAULTS[code] ?? `cannot be read (${code})`, 'needed: a YAML file')
  }
  if (bytes.length > config_bytes_max) {
    return fault(file, 'is too large', `allowed: at most ${config_bytes_max} bytes`)
  }
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes)
    return { value: { text, sha256: new Bun.CryptoHasher('sha256').update(bytes).digest('hex') } }
  } catch {
    return fault(file, 'is not UTF-8', 'needed: a YAML file in UTF-8')
  }
}

/**
 * Parses YAML 1.2 (and so JSON) to plain values; an empty text is an empty mapping. Line ends may be LF, CRLF or CR.
 * Faults carry `label line 3, column 5` and never quote the text, which may hold secrets: every syntax fault, a key that
 * stands twice, more than one document, an unknown tag, aliases that would multiply.
 */
export const parseSource = (text: string, label: string): Source<unknown> => {
  if (Buffer.byteLength(text) > config_bytes_max) {
    return fault(label, 'is too large', `allowed: at most ${config_bytes_max} bytes`)
  }
  const source = text.replace(/\r\n?/g, '\n')
  const lines = new LineCounter()
  try {
    // Its own search for equal keys compares each key of a mapping with all before it.
    const options = { prettyErrors: false, lineCounter: lines, stringKeys: true, merge: true, uniqueKeys: false }
    const document = parseDocument(source, options)
    const wrong: Wrong[] = [...document.errors, ...document.warnings, ...repeatedKeys(document)]
    if (wrong.length > 0) return { faults: syntaxFaults(wrong, source, label, lines) }
    return { value: document.toJS({ maxAliasCount: 100 }) ?? {} }
  } catch (cause) {
    const deep = cause instanceof RangeError
    const found = deep ? 'is nested too deeply' : 'holds an alias that is unknown or multiplies without bound'
    return fault(
      label,
      found,
      deep ? 'allowed: at most 32 levels' : 'allowed: aliases of anchors above them, at most 100',
    )
  }
}

const readBounded = (file: string): Uint8Array => {
  const descriptor = openSync(file, 'r')
  try {
    const parts: Uint8Array[] = []
    let total = 0
    while (total <= config_bytes_max) {
      const part = new Uint8Array(64 * 1024)
      const read = readSync(descriptor, part)
      if (read === 0) break
      parts.push(part.subarray(0, read))
      total += read
    }
    return Buffer.concat(parts)
  } finally {
    closeSync(descriptor)
  }
}

const fault = (path: string, found: string, allowed: string) => ({ faults: [{ path, found, allowed }] })

type Wrong = { readonly code: ErrorCode; readonly pos: readonly [number, number] }

/** Linear in the document, and without recursion: a faulty one may be nested without end. */
const repeatedKeys = (document: Document): Wrong[] => {
  const wrong: Wrong[] = []
  const open: unknown[] = [document.contents]
  while (open.length > 0) {
    const node = open.pop()
    if (isSeq(node)) for (const item of node.items) open.push(item)
    if (!isMap(node)) continue
    const seen = new Set<unknown>()
    for (const { key, value } of node.items) {
      open.push(value)
      if (!isScalar(key)) continue
      const at = key.range?.[0] ?? 0
      if (seen.has(key.value)) wrong.push({ code: 'DUPLICATE_KEY', pos: [at, at] })
      seen.add(key.value)
    }
  }
  return wrong
}

/** The first fault of each line: what follows on a line is mostly a consequence. */
const syntaxFaults = (wrong: readonly Wrong[], source: string, label: string, lines: LineCounter) => {
  const by_line = new Map<number, ConfigFault>()
  for (const { code, pos } of wrong.toSorted((a, b) => a.pos[0] - b.pos[0])) {
    const { line } = lines.linePos(pos[0])
    if (!by_line.has(line)) by_line.set(line, syntaxFault(code, pos[0], source, label, lines))
  }
  return [...by_line.values()]
}

const syntaxFault = (code: ErrorCode, at: number, source: string, label: string, lines: LineCounter): ConfigFault => {
  const { line, col } = lines.linePos(at)
  const [found, allowed] = SYNTAX[code] ?? ['is not YAML', 'needed: valid YAML']
  const path = `${label} line ${line}, column ${col}`
  const text = source.slice(
    source.lastIndexOf('\n', at - 1) + 1,
    (source.indexOf('\n', at) + 1 || source.length + 1) - 1,
  )
  // The commonest slip: a bare ${NAME} inside { } or [ ] is a nested mapping to YAML.
  if (code === 'UNEXPECTED_TOKEN' && /[{[][^"']*\$\{/.test(text)) {
    return { path, found: 'a reference stands bare inside { } or [ ]', allowed: 'allowed: in quotes, "${NAME}"' }
  }
  if (code === 'DUPLICATE_KEY') {
    const key = /^["']?([\w-]{1,64})/.exec(source.slice(at, at + 80))?.[1]
    return key === undefined ? { path, found, allowed } : { path, found: `the key ${key} stands twice`, allowed }
  }
  return { path, found, allowed }
}

const READ_FAULTS: Readonly<Record<string, string>> = {
  ENOENT: 'no such file',
  ENOTDIR: 'no such file',
  EISDIR: 'is a folder',
  EACCES: 'may not be read by this user',
  EPERM: 'may not be read by this user',
}

const structure = 'needed: keys, values and lists by the rules of YAML'
const SYNTAX: Readonly<Partial<Record<ErrorCode, readonly [found: string, allowed: string]>>> = {
  BAD_ALIAS: ['an alias is not valid', 'needed: *name of an anchor above it'],
  BAD_DQ_ESCAPE: ['a \\ in double quotes begins no escape', 'needed: \\\\ for a literal \\, or single quotes'],
  BAD_INDENT: ['the indentation is not right', 'needed: the same blanks before all keys of a mapping or list'],
  BAD_SCALAR_START: ['a plain text may not begin with this character', 'needed: the text in quotes'],
  BLOCK_AS_IMPLICIT_KEY: ['a nested mapping begins on the line of its key', 'needed: a line of its own, or quotes'],
  BLOCK_IN_FLOW: ['a block stands inside { } or [ ]', 'needed: a , between entries and a closing } or ]'],
  DUPLICATE_KEY: ['a key stands twice', 'allowed: each key of a mapping once'],
  MISSING_CHAR: ['a character is missing', 'needed: a closing quote, a : after a key or a , between entries'],
  MULTILINE_IMPLICIT_KEY: ['a key goes over more than one line', 'needed: a key, a : and a blank on one line'],
  MULTIPLE_DOCS: ['a second document begins', 'allowed: one document'],
  NON_STRING_KEY: ['a key is a mapping or list', 'needed: a name'],
  TAB_AS_INDENT: ['a tab indents the line', 'needed: blanks'],
  TAG_RESOLVE_FAILED: ['a tag is unknown', 'allowed: plain values without !tags'],
  UNEXPECTED_TOKEN: ['something unexpected stands here', structure],
  RESOURCE_EXHAUSTION: ['is nested too deeply', 'allowed: at most 32 levels'],
}
