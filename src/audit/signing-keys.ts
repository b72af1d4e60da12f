import {
  appendFileSync,
  closeSync,
  existsSync,
  fsyncSync,
  linkSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs'
import { dirname } from 'node:path'
import { Failure } from '../base/failure.ts'
import { syncFolder } from './disk.ts'
import { isKeyName } from './note.ts'
import {
  formatSignerKey,
  formatVerifierKey,
  newSignerKey,
  parseSignerKey,
  parseVerifierKey,
  type SignerKey,
  type VerifierKey,
} from './note-key.ts'

/**
 * The signing keys of a log, in a file of mode 0600: one private key a line, the current one first. During a rotation the
 * old key is the second line; it signs one more checkpoint together with the new one and is then struck out. Beside it,
 * `FILE.pub` lists the verifier keys of all keys there ever were, so that old checkpoints verify for ever.
 */
export type SigningKeys = {
  /** Keys that sign the next checkpoint: the current one, and during a rotation the one before it. */
  readonly signers: readonly SignerKey[]
  /** Verifier keys of every key that ever signed, oldest first. */
  readonly verifiers: readonly VerifierKey[]
}

/** Reads the keys of a log, and makes the first one where the file is missing. `name` is the log's origin. */
export const openSigningKeys = (path: string, name: string): SigningKeys | Failure => {
  if (!isKeyName(name)) return refuse(`"${name}" cannot name a key: it must have no spaces and no plus`)
  return onFile(() => {
    if (!existsSync(path)) createKeyFile(path, newSignerKey(name))
    return readKeys(path, name)
  })
}

/** Begins a rotation: a new key becomes the current one. Refused while the last rotation has not signed yet. */
export const rotateSigningKey = (path: string, name: string): SigningKeys | Failure => {
  const keys = onFile(() => readKeys(path, name))
  if (keys instanceof Failure) return keys
  if (keys.signers.length > 1) return refuse('the last rotation has not signed a checkpoint yet')
  return onFile(() => rewrite(path, name, [newSignerKey(name), ...keys.signers]))
}

/** Ends a rotation once a checkpoint with both signatures is stored: only the current key is kept. */
export const retireSigningKey = (path: string, name: string): SigningKeys | Failure => {
  const keys = onFile(() => readKeys(path, name))
  if (keys instanceof Failure || keys.signers.length < 2) return keys
  return onFile(() => rewrite(path, name, keys.signers.slice(0, 1)))
}

const onFile = (work: () => SigningKeys | Failure): SigningKeys | Failure => {
  try {
    return work()
  } catch (cause) {
    return new Failure('internal', { says: 'The signing key cannot be read or written.', cause })
  }
}

const readKeys = (path: string, name: string): SigningKeys | Failure => {
  if ((statSync(path).mode & 0o077) !== 0)
    return refuse('the file of the signing key is open to others; it needs mode 0600')
  const signers: SignerKey[] = []
  for (const line of lines(path)) {
    const key = parseSignerKey(line)
    if (key instanceof Failure) return key
    if (key.verifier.name !== name) return refuse(`the signing key is of "${key.verifier.name}", the log is "${name}"`)
    signers.push(key)
  }
  if (signers.length < 1 || signers.length > 2)
    return refuse(`the signing key file has ${signers.length} keys, not 1 or 2`)
  return withVerifiers(path, signers)
}

// The public list is mended from the private file, so a crash between the two files loses nothing.
const withVerifiers = (path: string, signers: readonly SignerKey[]): SigningKeys | Failure => {
  const listed = existsSync(`${path}.pub`) ? lines(`${path}.pub`) : []
  for (const { verifier } of signers.toReversed()) {
    const text = formatVerifierKey(verifier)
    if (listed.includes(text)) continue
    appendFileSync(`${path}.pub`, `${text}\n`, { flush: true })
    listed.push(text)
  }
  const verifiers: VerifierKey[] = []
  for (const line of listed) {
    const key = parseVerifierKey(line)
    if (key instanceof Failure) return key
    verifiers.push(key)
  }
  return { signers, verifiers }
}

const lines = (path: string): string[] =>
  readFileSync(path, 'utf8')
    .split('\n')
    .filter((line) => line !== '')

const rewrite = (path: string, name: string, keys: readonly SignerKey[]): SigningKeys | Failure => {
  renameSync(writeBeside(path, keys), path)
  syncFolder(dirname(path))
  return readKeys(path, name)
}

// A link fails where the name exists, so of two processes that start at once one makes the key and both read it.
const createKeyFile = (path: string, key: SignerKey): void => {
  const written = writeBeside(path, [key])
  try {
    linkSync(written, path)
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'EEXIST') throw cause
  } finally {
    rmSync(written)
  }
  syncFolder(dirname(path))
}

const writeBeside = (path: string, keys: readonly SignerKey[]): string => {
  const beside = `${path}.${process.pid}.new`
  rmSync(beside, { force: true })
  const fd = openSync(beside, 'wx', 0o600)
  try {
    writeSync(fd, keys.map((key) => `${formatSignerKey(key)}\n`).join(''))
    fsyncSync(fd)
  } finally {
    closeSync(fd)
  }
  return beside
}

const refuse = (says: string): Failure => new Failure('field_invalid', { says, param: 'signing key' })
