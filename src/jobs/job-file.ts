import { crc32 } from 'node:zlib'

/**
 * The format of job files. A *segment* is written by one worker at a time, its owner; `w3-17-0.jobs` was begun by worker
 * 3 in incarnation 17. Little-endian. Records are appended and their immutable part is never changed.
 *
 * ```
 * segment   0   8  "WEIRJOB1"
 *           8   8  the owner: worker (u32), incarnation (u32); changed when another worker takes the segment over
 *          16  16  0
 *          32   …  records
 *
 * record    0   4  bytes of the record, this head and its padding to 8 included
 *           4   4  CRC-32 of bytes 8 to 40 and of the payload
 *           8   4  bytes of the meta, 12  4  bytes of the body
 *          16   8  when it was accepted, ms (f64)
 *          24  16  the random part of the job's id
 *          40   1  1: somebody wants it cancelled. Any worker writes it; the rest only the owner, in one write:
 *          44   1  state, 45  1  attempts, 46  1  webhook, 47  1  0
 *          48   4  bytes of the answer's meta, 52  4  bytes of its body
 *          56   8  where the answer begins in `w3-17-0.answers` (f64)
 *          64   8  when it was last begun, 72  8  when it ended, ms (f64)
 *          80   …  meta (JSON of JobMeta), body
 * ```
 *
 * A killed process leaves whole writes: what was accepted before stays, a torn last record was never acknowledged.
 */
export const SEGMENT_HEAD_BYTES = 32
export const RECORD_HEAD_BYTES = 80
export const OWNER_AT = 8
export const CANCEL_AT = 40
export const STATUS_AT = 44
const MAGIC = Buffer.from('WEIRJOB1')

export const JOB_STATES = ['none', 'queued', 'running', 'done', 'failed', 'cancelled'] as const
export type JobState = (typeof JOB_STATES)[number]

/** Where a webhook's delivery stands. */
export const WEBHOOK_STATES = ['none', 'due', 'delivered', 'given_up'] as const
export type WebhookState = (typeof WEBHOOK_STATES)[number]

/** What a job is, beside its body. */
export type JobMeta = {
  readonly tenant: string
  readonly key_id: string
  /** SHA-256 of the API key, as workers know keys. */
  readonly key_sha256: string
  readonly path: string
  readonly model: string
  /** The client's headers that its run needs. */
  readonly headers: readonly (readonly [name: string, value: string])[]
  readonly webhook?: string
}

/** What of a job changes. */
export type JobStatus = {
  readonly state: JobState
  /** Runs begun. */
  readonly attempts: number
  readonly webhook: WebhookState
  readonly answer_at: number
  readonly answer_meta_bytes: number
  readonly answer_body_bytes: number
  readonly started_at_ms: number
  readonly finished_at_ms: number
}

export const QUEUED: JobStatus = {
  ...{ state: 'queued', attempts: 0, webhook: 'none', answer_at: 0, answer_meta_bytes: 0, answer_body_bytes: 0 },
  ...{ started_at_ms: 0, finished_at_ms: 0 },
}

export type Owner = { readonly worker: number; readonly incarnation: number }

export const encodeSegmentHead = ({ worker, incarnation }: Owner): Buffer => {
  const head = Buffer.alloc(SEGMENT_HEAD_BYTES)
  MAGIC.copy(head)
  head.writeUInt32LE(worker, OWNER_AT)
  head.writeUInt32LE(incarnation, OWNER_AT + 4)
  return head
}

/** The owner that a segment's head names; undefined if it is none. */
export const decodeSegmentHead = (head: Buffer): Owner | undefined =>
  head.length < SEGMENT_HEAD_BYTES || !head.subarray(0, MAGIC.length).equals(MAGIC)
    ? undefined
    : { worker: head.readUInt32LE(OWNER_AT), incarnation: head.readUInt32LE(OWNER_AT + 4) }

/** A record of a new job. `random` has 16 bytes. */
export const encodeRecord = (
  random: Uint8Array,
  meta: JobMeta,
  body: Uint8Array,
  status: JobStatus,
  accepted_at_ms: number,
): Buffer => {
  const text = JSON.stringify(meta)
  const meta_bytes = Buffer.byteLength(text)
  const used = RECORD_HEAD_BYTES + meta_bytes + body.length
  const record = Buffer.alloc(Math.ceil(used / 8) * 8)
  record.writeUInt32LE(record.length, 0)
  record.writeUInt32LE(meta_bytes, 8)
  record.writeUInt32LE(body.length, 12)
  record.writeDoubleLE(accepted_at_ms, 16)
  record.set(random, 24)
  encodeStatus(status).copy(record, STATUS_AT)
  record.write(text, RECORD_HEAD_BYTES)
  record.set(body, RECORD_HEAD_BYTES + meta_bytes)
  record.writeUInt32LE(checksum(record, used), 4)
  return record
}

export const encodeStatus = (status: JobStatus): Buffer => {
  const bytes = Buffer.alloc(RECORD_HEAD_BYTES - STATUS_AT)
  bytes[0] = JOB_STATES.indexOf(status.state)
  bytes[1] = Math.min(status.attempts, 255)
  bytes[2] = WEBHOOK_STATES.indexOf(status.webhook)
  bytes.writeUInt32LE(status.answer_meta_bytes, 4)
  bytes.writeUInt32LE(status.answer_body_bytes, 8)
  bytes.writeDoubleLE(status.answer_at, 12)
  bytes.writeDoubleLE(status.started_at_ms, 20)
  bytes.writeDoubleLE(status.finished_at_ms, 28)
  return bytes
}

/** A record's head, as far as it can be told without the payload. */
export type RecordHead = JobStatus & {
  readonly record_bytes: number
  readonly meta_bytes: number
  readonly body_bytes: number
  readonly accepted_at_ms: number
  /** 32 hex digits. */
  readonly random: string
  readonly cancel: boolean
}

/** Reads a record's head; undefined if it cannot be one. */
export const decodeHead = (head: Buffer): RecordHead | undefined => {
  if (head.length < RECORD_HEAD_BYTES) return undefined
  const record_bytes = head.readUInt32LE(0)
  const meta_bytes = head.readUInt32LE(8)
  const body_bytes = head.readUInt32LE(12)
  const state = JOB_STATES[head[STATUS_AT]!]
  const webhook = WEBHOOK_STATES[head[STATUS_AT + 2]!]
  if (record_bytes !== Math.ceil((RECORD_HEAD_BYTES + meta_bytes + body_bytes) / 8) * 8) return undefined
  if (state === undefined || state === 'none' || webhook === undefined) return undefined
  return {
    ...{ record_bytes, meta_bytes, body_bytes, state, webhook },
    accepted_at_ms: head.readDoubleLE(16),
    random: head.toString('hex', 24, 40),
    cancel: head[CANCEL_AT] === 1,
    attempts: head[STATUS_AT + 1]!,
    answer_meta_bytes: head.readUInt32LE(48),
    answer_body_bytes: head.readUInt32LE(52),
    answer_at: head.readDoubleLE(56),
    started_at_ms: head.readDoubleLE(64),
    finished_at_ms: head.readDoubleLE(72),
  }
}

/** True if the bytes are a whole, undamaged record. */
export const isSound = (record: Buffer, { meta_bytes, body_bytes }: RecordHead): boolean =>
  record.readUInt32LE(4) === checksum(record, RECORD_HEAD_BYTES + meta_bytes + body_bytes)

const checksum = (record: Buffer, used: number): number =>
  crc32(record.subarray(RECORD_HEAD_BYTES, used), crc32(record.subarray(8, CANCEL_AT)))
