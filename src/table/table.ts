import { closeSync, fsyncSync, openSync, renameSync, statSync, writeSync } from 'node:fs'
import {
  HEADER,
  HEADER_BYTES,
  SUBJECT,
  SUBJECT_BYTES,
  SUBJECTS_AT,
  TABLE_MAGIC,
  TABLE_VERSION,
  tableBytes,
  WORKER,
  WORKER_BYTES,
} from './layout.ts'

/** The shared table as one process sees it. The three views lie over the same bytes. */
export type Table = {
  readonly i32: Int32Array
  readonly i64: BigInt64Array
  readonly f64: Float64Array
  readonly subjects_max: number
  /** Slots this process has met, by kind and name: saves the hash. Bounded by `subjects_max`. */
  readonly known: Map<string, Subject>
}

/** A subject's place: the index of its first Int64. */
export type Subject = number

/** Makes an empty table, replacing an older one. Every byte is written, so a full disk shows here and never as a fault on a mapped page. */
export const createTable = (path: string, subjects_max: number, now_ms: number): Table => {
  const part = `${path}.part`
  const fd = openSync(part, 'w', 0o600)
  const zeros = new Uint8Array(1 << 20)
  for (let left = tableBytes(subjects_max); left > 0; left -= zeros.length)
    writeSync(fd, zeros, 0, Math.min(left, zeros.length))
  fsyncSync(fd)
  closeSync(fd)
  renameSync(part, path)
  const table = mapped(path, subjects_max)
  table.i32[HEADER.version] = TABLE_VERSION
  table.i32[HEADER.subjects_max] = subjects_max
  table.f64[HEADER.started_at_ms] = now_ms
  Atomics.store(table.i32, HEADER.magic, TABLE_MAGIC)
  return table
}

/** Opens the table of a running house; throws if the file is not one. */
export const openTable = (path: string): Table => {
  const size = statSync(path).size
  const probe = mapped(path, (size - tableBytes(0)) / SUBJECT_BYTES)
  if (probe.i32[HEADER.magic] !== TABLE_MAGIC || probe.i32[HEADER.version] !== TABLE_VERSION)
    throw new Error(`${path} is not a shared table of this version`)
  return probe
}

const mapped = (path: string, subjects_max: number): Table => {
  const bytes = Bun.mmap(path, { shared: true })
  return {
    i32: new Int32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength >> 2),
    i64: new BigInt64Array(bytes.buffer, bytes.byteOffset, bytes.byteLength >> 3),
    f64: new Float64Array(bytes.buffer, bytes.byteOffset, bytes.byteLength >> 3),
    subjects_max,
    known: new Map(),
  }
}

/**
 * Finds or claims the slot of a subject, from any process, without a lock. A slot is never given back while the house
 * runs. Undefined when the table is full. Names are told apart by a 64-bit hash.
 */
export const subjectOf = (table: Table, kind: string, name: string): Subject | undefined => {
  const full_name = `${kind}\n${name}`
  const known = table.known.get(full_name)
  if (known !== undefined) return known
  const slot = slotOf(table, hashOf(full_name))
  if (slot !== undefined) table.known.set(full_name, slot)
  return slot
}

/** The slot of a subject if somebody claimed it. */
export const findSubject = (table: Table, kind: string, name: string): Subject | undefined => {
  const full_name = `${kind}\n${name}`
  return table.known.get(full_name) ?? slotOf(table, hashOf(full_name), false)
}

const hashOf = (full_name: string): bigint => BigInt.asIntN(64, BigInt(Bun.hash.wyhash(full_name))) || 1n

/** The slot with a hash, found or, if `claims`, claimed; undefined when there is none, or the table is full. */
export const slotOf = (table: Table, hash: bigint, claims = true): Subject | undefined => {
  const start = Number(BigInt.asUintN(48, hash)) % table.subjects_max
  for (let step = 0; step < table.subjects_max; step++) {
    const slot = subjectAt((start + step) % table.subjects_max)
    const cell = slot + SUBJECT.hash
    const was = claims ? Atomics.compareExchange(table.i64, cell, 0n, hash) : Atomics.load(table.i64, cell)
    if (was === hash) return slot
    if (was !== 0n) continue
    // Slots are never given back, so a subject is never behind a free one.
    if (!claims) return undefined
    Atomics.add(table.i32, HEADER.subjects_used, 1)
    return slot
  }
  return undefined
}

/** The place of the subject with a number, `[0, subjects_max)`. */
export const subjectAt = (number: number): Subject => (SUBJECTS_AT + number * SUBJECT_BYTES) / 8

/** The index of a worker's first Int32 cell. */
export const workerI32 = (worker: number, cell: number): number => (HEADER_BYTES + worker * WORKER_BYTES) / 4 + cell

/** The index of a worker's Float64 cell. */
export const workerF64 = (worker: number, cell: number): number => (HEADER_BYTES + worker * WORKER_BYTES) / 8 + cell

/** The index of a worker's metric. */
export const metricF64 = (worker: number, metric: number): number => workerF64(worker, WORKER.metrics) + metric
