import { existsSync } from 'node:fs'
import { Failure } from '../base/failure.ts'
import { addSignatures, parseCheckpoint, signCheckpoint } from './checkpoint.ts'
import type { StoredCheckpoint } from './checkpoint-store.ts'
import { syncFolder } from './disk.ts'
import { LEAF_BYTES_MAX, sameBytes } from './hash.ts'
import { closeLogFiles, type LogFiles, onDisk, openLogFiles } from './log-files.ts'
import type { NoteSignature } from './note.ts'
import type { VerifierKey } from './note-key.ts'
import { type LogReader, readSide } from './read-side.ts'
import { type Repair, repair } from './repair.ts'
import { openSigningKeys, retireSigningKey, rotateSigningKey, type SigningKeys } from './signing-keys.ts'

/** How a log is opened. */
export type LogOptions = {
  /** The log's name in its checkpoints, and of its key: like an address, without spaces and plus signs. */
  readonly origin: string
  /** Rows in the ledger; leaves beyond them are cut. Without it the log's own files decide. */
  readonly ledger_size?: number
  /** The file of the signing key, made where it is missing. `FOLDER/signing-key` unless told otherwise. */
  readonly key_file?: string
}

/**
 * The append-only log of the ledger, for its one writer. `append` hands leaves to the operating system (they survive a
 * killed process); `sync` and `checkpoint` make them survive a loss of power.
 */
export type Log = LogReader & {
  /** What opening had to mend. */
  readonly repaired: Repair
  /** Appends leaves of 1 to `LEAF_BYTES_MAX` bytes and returns the index of the first. After a failure none is in the log. */
  readonly append: (leaves: readonly Uint8Array[]) => number | Failure
  /** The signed checkpoint of the log as it is; a new one only where it grew or a key is being rotated. */
  readonly checkpoint: () => string | Failure
  /**
   * Like `checkpoint`, of the log as it is at the call, without holding up the process while the disk works. Leaves may be
   * appended meanwhile, and none that are there may be cut. One at a time; `close` only after it.
   */
  readonly checkpointLater: () => Promise<string | Failure>
  /** Keeps cosignatures of the newest checkpoint, whose signed text must be `text`. They must be verified already. */
  readonly keepSignatures: (text: string, signatures: readonly NoteSignature[]) => StoredCheckpoint | Failure
  /** Begins a key rotation: the next checkpoint is signed by the old key and the new one, later ones by the new one. */
  readonly rotateKey: () => readonly VerifierKey[] | Failure
  /** Every public key that ever signed, oldest first. */
  readonly verifiers: () => readonly VerifierKey[]
  /** Cuts the log to `size` leaves, for a ledger that fell behind. What was signed must be appended again, the same. */
  readonly truncate: (size: number) => undefined | Failure
  readonly sync: () => undefined | Failure
  readonly close: () => void
}

/**
 * Opens a log, or makes it, and mends what a crash left (see {@link repair}). If the log is then shorter than the ledger,
 * the caller appends the rows from `size()` on. There must be no other writer.
 */
export const openLog = (folder: string, options: LogOptions): Log | Failure => {
  const files = onDisk('The audit log cannot be opened.', () => openLogFiles(folder, 'read_write'))
  if (files instanceof Failure) return files
  const opened = prepare(files, folder, options)
  if (opened instanceof Failure) {
    closeLogFiles(files)
    return opened
  }
  return writeSide(files, options, opened.repaired, opened.keys, keyFile(folder, options))
}

const keyFile = (folder: string, { key_file }: LogOptions): string => key_file ?? `${folder}/signing-key`

const prepare = (
  files: LogFiles,
  folder: string,
  options: LogOptions,
): { repaired: Repair; keys: SigningKeys } | Failure => {
  // A new key in the place of a lost one would look like another log to everyone who knows the old one.
  if (files.checkpoints.count > 0 && !existsSync(keyFile(folder, options))) {
    const says = 'The log has signed checkpoints and its signing key is missing: put the key back.'
    return new Failure('field_invalid', { param: 'signing key', says })
  }
  const keys = openSigningKeys(keyFile(folder, options), options.origin)
  if (keys instanceof Failure) return keys
  return onDisk('The audit log cannot be read.', () => {
    syncFolder(folder)
    const origin = files.checkpoints.latest()?.checkpoint.origin ?? options.origin
    if (origin !== options.origin) {
      return new Failure('field_invalid', {
        param: 'origin',
        says: `This log is "${origin}", not "${options.origin}".`,
      })
    }
    const repaired = repair(files, options.ledger_size ?? Infinity)
    return repaired instanceof Failure ? repaired : { repaired, keys }
  })
}

const writeSide = (
  files: LogFiles,
  { origin }: LogOptions,
  repaired: Repair,
  opened_keys: SigningKeys,
  key_file: string,
): Log => {
  const { leaves, nodes, checkpoints } = files
  let keys = opened_keys
  let closed = false
  const write = <T>(work: () => T): T | Failure => onDisk('The audit log cannot be written.', work)
  const sync = () => {
    leaves.sync()
    nodes.sync()
  }
  const take = (next: SigningKeys | Failure): Failure | readonly VerifierKey[] => {
    if (next instanceof Failure) return next
    keys = next
    return next.verifiers
  }
  /** The newest checkpoint if there is nothing to sign, or why nothing may be signed. */
  const standing = (): string | Failure | undefined => {
    const last = checkpoints.latest()
    if (!last) return undefined
    const fault = continues(files, last)
    return fault ?? (last.checkpoint.size === nodes.size && keys.signers.length === 1 ? last.note : undefined)
  }
  const store = (size: number, root: Uint8Array): string | Failure => {
    const note = signCheckpoint({ origin, size, root }, keys.signers)
    checkpoints.append(note)
    const retired = keys.signers.length > 1 ? take(retireSigningKey(key_file, origin)) : keys.verifiers
    return retired instanceof Failure ? retired : note
  }
  const sign = (): string | Failure => {
    const stands = standing()
    if (stands !== undefined) return stands
    sync()
    return store(nodes.size, nodes.root())
  }
  const signLater = async (): Promise<string | Failure> => {
    const stands = write(standing)
    if (stands !== undefined) return stands
    const [size, root] = [nodes.size, nodes.root()]
    try {
      await leaves.syncLater()
      await nodes.syncLater()
    } catch (cause) {
      return new Failure('internal', { says: 'The audit log cannot be written.', cause })
    }
    if (closed || nodes.size < size) return new Failure('internal', { says: 'The log was closed or cut meanwhile.' })
    return write(() => {
      // Another checkpoint may have been signed in the meantime.
      const last = checkpoints.latest()
      const ahead = last ? last.checkpoint.size - size : -1
      return ahead > 0 || (ahead === 0 && keys.signers.length === 1) ? last!.note : store(size, root)
    })
  }
  return {
    ...readSide(files, () => nodes.size),
    repaired,
    append: (more) => leafFault(more) ?? write(() => appendBoth(files, more)),
    checkpoint: () => write(sign),
    checkpointLater: signLater,
    keepSignatures: (text, signatures) => write(() => keep(files, text, signatures)),
    rotateKey: () => take(rotateSigningKey(key_file, origin)),
    verifiers: () => keys.verifiers,
    truncate: (size) =>
      write(() => {
        nodes.truncate(size)
        leaves.truncate(size)
        return undefined
      }),
    sync: () => write(sync) as undefined | Failure,
    close: () => {
      closed = true
      closeLogFiles(files)
    },
  }
}

const appendBoth = ({ leaves, nodes }: LogFiles, more: readonly Uint8Array[]): number => {
  const first = nodes.size
  // An append that failed half-way left leaves without nodes.
  if (leaves.count > first) leaves.truncate(first)
  leaves.append(more)
  nodes.append(more)
  return first
}

// A log must not sign what contradicts what it signed before (C2SP tlog-checkpoint).
const continues = ({ nodes }: LogFiles, { checkpoint }: StoredCheckpoint): Failure | undefined => {
  if (nodes.size < checkpoint.size) {
    return new Failure('internal', {
      says: `The audit log has ${nodes.size} leaves, and ${checkpoint.size} are signed: the missing rows must be appended first.`,
    })
  }
  if (sameBytes(nodes.root(checkpoint.size), checkpoint.root)) return undefined
  return new Failure('internal', {
    says: `The audit log is not the one that was signed at size ${checkpoint.size}: nothing more is signed.`,
  })
}

const keep = (
  { checkpoints }: LogFiles,
  text: string,
  signatures: readonly NoteSignature[],
): StoredCheckpoint | Failure => {
  const last = checkpoints.latest()
  const parsed = last ? parseCheckpoint(last.note) : undefined
  if (!last || !parsed || parsed instanceof Failure || parsed.note.text !== text) {
    return new Failure('conflict', { says: 'A newer checkpoint was signed in the meantime.' })
  }
  const note = addSignatures(parsed.note, signatures)
  if (note !== last.note) checkpoints.append(note)
  return { note, checkpoint: last.checkpoint }
}

const leafFault = (leaves: readonly Uint8Array[]): Failure | undefined => {
  const at = leaves.findIndex(({ byteLength }) => byteLength < 1 || byteLength > LEAF_BYTES_MAX)
  if (at < 0) return undefined
  const says = `Leaf ${at} has ${leaves[at]!.byteLength} bytes; 1 to ${LEAF_BYTES_MAX} are allowed.`
  return new Failure('field_invalid', { param: 'leaves', says })
}
