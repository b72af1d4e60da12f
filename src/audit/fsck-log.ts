import { closeSync, existsSync, fstatSync, openSync, readFileSync, readSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { type CheckedNote, Difference, type PublicKey, readNote, readPublicKey, signersOf } from './check-note.ts'
import { emptyRoot, HASH_BYTES, hashLeaf, joinHashes, sameBytes } from './hash.ts'

/** The log as the checker reads it: whole, from its first byte, with no code of the writer's. */

/** A file that is read from front to back. */
type Reader = { readonly bytes: number; take(count: number): Buffer; close(): void }

const CHUNK_BYTES = 1024 * 1024

const openReader = (path: string): Reader => {
  const fd = openSync(path, 'r')
  const { size } = fstatSync(fd)
  let chunk = Buffer.alloc(0)
  let at = 0
  let position = 0
  return {
    bytes: size,
    take: (count) => {
      while (chunk.length - at < count) {
        const more = Buffer.alloc(Math.max(CHUNK_BYTES, count))
        const got = readSync(fd, more, 0, more.length, position)
        if (got === 0) throw new Difference(`${path} ends ${count - (chunk.length - at)} bytes too early`)
        position += got
        chunk = Buffer.concat([chunk.subarray(at), more.subarray(0, got)])
        at = 0
      }
      at += count
      return chunk.subarray(at - count, at)
    },
    close: () => closeSync(fd),
  }
}

/** Told of what is no fault, and of use to who reads a report. */
export type Note = (says: string) => void

/** The blobs of `NAME.data`, cut where `NAME.index` says. What a killed writer left after the last one is noted. */
const blobs = function* (folder: string, name: string, note: Note): Generator<Buffer> {
  const index = openReader(join(folder, `${name}.index`))
  const data = openReader(join(folder, `${name}.data`))
  try {
    const count = Math.floor(index.bytes / 8)
    let end = 0n
    for (let nth = 0; nth < count; nth++) {
      const next = index.take(8).readBigUInt64LE()
      if (next <= end || next > BigInt(data.bytes))
        throw new Difference(`${name}.index: entry ${nth} ends at byte ${next}, after byte ${end} of ${data.bytes}`)
      yield data.take(Number(next - end))
      end = next
    }
    const torn = BigInt(data.bytes) - end + BigInt(index.bytes % 8)
    if (torn > 0n) note(`${name}: ${torn} bytes of an append that was not finished; the next start cuts them`)
  } finally {
    index.close()
    data.close()
  }
}

/** The checkpoints of a log in their order, each signed by a key of the log, sizes never falling. */
export const readCheckpoints = (folder: string, trusted: readonly PublicKey[], note: Note): CheckedNote[] => {
  const keys = trusted.length > 0 ? trusted : keysOf(folder)
  const origin = readFileSync(join(folder, 'origin'), 'utf8').trim()
  const notes: CheckedNote[] = []
  for (const blob of blobs(folder, 'checkpoints', note)) {
    const what = `checkpoint ${notes.length}`
    const read = readNote(blob.toString('utf8'), what)
    if (read.origin !== origin) throw new Difference(`${what} is of "${read.origin}", the log is "${origin}"`)
    signersOf(read, keys, `${what} (size ${read.size})`)
    const before = notes.at(-1)
    if (before && read.size < before.size)
      throw new Difference(`${what} has size ${read.size}, the one before it ${before.size}`)
    if (before && read.size === before.size && !sameBytes(read.root, before.root))
      throw new Difference(`${what} and the one before it are of size ${read.size} and have different roots`)
    notes.push(read)
  }
  return notes
}

const keysOf = (folder: string): PublicKey[] =>
  readFileSync(join(folder, 'signing-key.pub'), 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map(readPublicKey)

/** What was found in a log whose every node and root is right. */
export type WalkedLog = { readonly leaves: number; readonly signed: number }

/**
 * Hashes every leaf again, compares every node that follows with the stored one and every root with what was signed, and
 * hands each leaf on. `log_size` is how many leaves the ledger has rows for; what stands after them is not walked.
 */
export const walkLog = (
  folder: string,
  checkpoints: readonly CheckedNote[],
  log_size: number,
  onLeaf: (index: number, leaf: Buffer) => void,
  note: Note,
): WalkedLog => {
  const nodes = openReader(join(folder, 'nodes'))
  const peaks: { hash: Uint8Array; leaves: number }[] = []
  const signed = checkpoints.at(-1)?.size ?? 0
  let next = 0
  let leaves = 0
  let node = 0
  const checkRoots = () => {
    for (; next < checkpoints.length && checkpoints[next]!.size === leaves; next++)
      if (!sameBytes(rootOf(peaks), checkpoints[next]!.root))
        throw new Difference(`checkpoint ${next} signs another root at size ${leaves} than the leaves lead to`)
  }
  const meet = (hash: Uint8Array, what: string) => {
    const stored = nodes.take(HASH_BYTES)
    if (!sameBytes(stored, hash)) throw new Difference(`node ${node} of the log is not the hash of ${what}`)
    node++
  }
  try {
    checkRoots()
    for (const leaf of blobs(folder, 'leaves', note)) {
      if (leaves >= log_size) return { leaves: leafCount(folder), signed }
      // A killed writer has hashed less than it has appended; what is signed has all its nodes.
      if (leaves >= signed && (node + nodesOf(leaves)) * HASH_BYTES > nodes.bytes) {
        note(`${leafCount(folder) - leaves} leaves that are not signed have no nodes; the next start hashes them`)
        return { leaves, signed }
      }
      const hash = hashLeaf(leaf)
      meet(hash, `leaf ${leaves}`)
      peaks.push({ hash, leaves: 1 })
      for (let last = peaks.at(-1)!, left = peaks.at(-2); left?.leaves === last.leaves; left = peaks.at(-2)) {
        peaks.splice(-2)
        last = { hash: joinHashes(left.hash, last.hash), leaves: 2 * left.leaves }
        meet(last.hash, `leaves ${leaves + 1 - last.leaves} to ${leaves}`)
        peaks.push(last)
      }
      onLeaf(leaves, leaf)
      leaves++
      checkRoots()
    }
    if (leaves >= log_size && nodes.bytes > node * HASH_BYTES)
      throw new Difference(`the log has ${nodes.bytes / HASH_BYTES - node} nodes more than its ${leaves} leaves make`)
  } finally {
    nodes.close()
  }
  return { leaves, signed }
}

/** How many nodes a leaf completes: itself, and a parent on each level on which it is the last of a pair. */
const nodesOf = (index: number): number => (index % 2 === 0 ? 1 : 1 + nodesOf((index - 1) / 2))

const leafCount = (folder: string): number => Math.floor(fileBytes(join(folder, 'leaves.index')) / 8)
const fileBytes = (path: string): number => (existsSync(path) ? statSync(path).size : 0)

const rootOf = (peaks: readonly { hash: Uint8Array }[]): Uint8Array =>
  peaks.length === 0 ? emptyRoot() : peaks.map(({ hash }) => hash).reduceRight((right, left) => joinHashes(left, right))
