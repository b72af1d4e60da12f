import { Failure } from '../base/failure.ts'
import type { StoredCheckpoint } from './checkpoint-store.ts'
import { isSize } from './geometry.ts'
import { foldHashes, HASH_BYTES } from './hash.ts'
import { closeLogFiles, type LogFiles, onDisk, openLogFiles } from './log-files.ts'
import { consistencyPath, inclusionPath } from './proof.ts'
import { readTile, type Tile } from './tiles.ts'
import { type ConsistencyClaim, consistencyFault, type InclusionClaim, inclusionFault } from './verify.ts'

/** What anyone may ask of a log. Sizes default to the log's; a failure names the value that does not fit. */
export type LogReader = {
  /** Leaves that can be asked for. */
  readonly size: () => number
  /** The bytes of a leaf. */
  readonly leaf: (index: number) => Uint8Array | Failure
  /** The root at a size. */
  readonly root: (size?: number) => Uint8Array | Failure
  /** A leaf's inclusion proof with all that is needed to check it; it was checked before it is handed out. */
  readonly inclusion: (index: number, size?: number) => InclusionClaim | Failure
  /** The consistency proof between two sizes with all that is needed to check it; checked likewise. `from` is at least 1. */
  readonly consistency: (from: number, to?: number) => ConsistencyClaim | Failure
  /** The newest signed checkpoint, or undefined before the first. */
  readonly latest: () => StoredCheckpoint | undefined | Failure
  /** The first checkpoint that covers a leaf, or undefined while none does. */
  readonly covering: (index: number) => StoredCheckpoint | undefined | Failure
  /** The bytes of a tile or an entry bundle. */
  readonly tile: (tile: Tile) => Uint8Array | Failure
}

/** The questions over open stores; `size` bounds what is answered. */
export const readSide = (files: LogFiles, size: () => number): LogReader => {
  const { leaves, nodes, checkpoints } = files
  const ask = <T>(work: () => T): T | Failure => onDisk('The audit log cannot be read.', work)
  return {
    size,
    leaf: (index) => indexFault(index, size(), 'index') ?? ask(() => leaves.read(index)),
    root: (at = size()) => sizeFault(at, size(), 'size', 0) ?? ask(() => nodes.root(at)),
    inclusion: (index, at = size()) =>
      sizeFault(at, size(), 'size', 0) ??
      indexFault(index, at, 'index') ??
      ask(() => {
        const leaf_hash = new Uint8Array(HASH_BYTES)
        nodes.read(0, index, leaf_hash, 0)
        const claim = { index, size: at, leaf_hash, root: nodes.root(at), proof: inclusionPath(nodes, index, at) }
        return sound(claim, inclusionFault(claim, foldHashes))
      }),
    consistency: (from, to = size()) =>
      sizeFault(to, size(), 'to', 1) ??
      sizeFault(from, to, 'from', 1) ??
      ask(() => {
        const roots = { from_root: nodes.root(from), to_root: nodes.root(to) }
        const claim = { from, to, ...roots, proof: consistencyPath(nodes, from, to) }
        return sound(claim, consistencyFault(claim))
      }),
    latest: () => ask(() => checkpoints.latest()),
    covering: (index) => indexFault(index, size(), 'index') ?? ask(() => checkpoints.covering(index)),
    tile: (tile) => {
      const bytes = ask(() => readTile(files, tile, size()))
      return bytes ?? new Failure('not_found', { says: `The log of ${size()} leaves has no such tile.` })
    },
  }
}

/** A reader in another process than the writer. It answers up to the newest checkpoint, which no repair ever cuts. */
export type SharedLogReader = LogReader & { readonly refresh: () => undefined | Failure; readonly close: () => void }

/** Opens a log to read beside its writer. Call `refresh` to see later checkpoints; a failure where no log is there yet. */
export const openLogReader = (folder: string): SharedLogReader | Failure =>
  onDisk('The audit log cannot be opened.', () => {
    const files = openLogFiles(folder, 'read_only')
    let size = files.checkpoints.latest()?.checkpoint.size ?? 0
    const refresh = () =>
      onDisk('The audit log cannot be read.', () => {
        files.checkpoints.refresh()
        files.leaves.refresh()
        files.nodes.refresh()
        const signed = files.checkpoints.latest()?.checkpoint.size ?? 0
        size = Math.min(signed, files.nodes.size, files.leaves.count)
        return undefined
      })
    const opened = refresh()
    if (opened instanceof Failure) {
      closeLogFiles(files)
      return opened
    }
    return { ...readSide(files, () => size), refresh, close: () => closeLogFiles(files) }
  })

// A damaged node must not leave the house as a proof that fails at the auditor's.
const sound = <T>(claim: T, fault: string | undefined): T => {
  if (fault) throw new RangeError(`a node is damaged: ${fault}`)
  return claim
}

const sizeFault = (value: number, max: number, param: string, min: number): Failure | undefined =>
  isSize(value) && value >= min && value <= max
    ? undefined
    : new Failure('field_invalid', { param, says: `${param} must be a whole number from ${min} to ${max}.` })

const indexFault = (value: number, size: number, param: string): Failure | undefined =>
  isSize(value) && value < size
    ? undefined
    : new Failure('field_invalid', { param, says: `${param} must be a whole number from 0 to below ${size}.` })
