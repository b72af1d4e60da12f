import { mkdirSync } from 'node:fs'
import { Failure } from '../base/failure.ts'
import { BlobStore } from './blob-store.ts'
import { CheckpointStore } from './checkpoint-store.ts'
import { LEAF_BYTES_MAX } from './hash.ts'
import { NodeStore } from './node-store.ts'

/** The three stores of a log, side by side in one folder. */
export type LogFiles = { readonly leaves: BlobStore; readonly nodes: NodeStore; readonly checkpoints: CheckpointStore }

/** Opens the stores of a log. Throws the operating system's errors. */
export const openLogFiles = (folder: string, mode: 'read_write' | 'read_only'): LogFiles => {
  if (mode === 'read_write') mkdirSync(folder, { recursive: true })
  return {
    leaves: new BlobStore(folder, 'leaves', LEAF_BYTES_MAX, mode),
    nodes: new NodeStore(`${folder}/nodes`, mode),
    checkpoints: new CheckpointStore(folder, mode),
  }
}

/** Closes them all. */
export const closeLogFiles = ({ leaves, nodes, checkpoints }: LogFiles): void => {
  leaves.close()
  nodes.close()
  checkpoints.close()
}

/** Runs work on the stores; an error of the disk, or damage that was found, becomes a failure that keeps it as its cause. */
export const onDisk = <T>(says: string, work: () => T): T | Failure => {
  try {
    return work()
  } catch (cause) {
    return new Failure('internal', { says, cause })
  }
}
