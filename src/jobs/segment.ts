import fs from 'node:fs'
import {
  CANCEL_AT,
  decodeHead,
  decodeSegmentHead,
  encodeSegmentHead,
  encodeStatus,
  isSound,
  type JobMeta,
  type JobStatus,
  type Owner,
  OWNER_AT,
  RECORD_HEAD_BYTES,
  type RecordHead,
  SEGMENT_HEAD_BYTES,
  STATUS_AT,
} from './job-file.ts'

/** A job as its file has it. */
export type StoredJob = RecordHead & { readonly meta: JobMeta }

/** What a run answered, beside the bytes of its body. */
export type AnswerMeta = {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly call_id?: string
}

/** The segment files of a folder. Everything here is synchronous, and throws what the file system says. */
export const jobsPath = (folder: string, segment: string): string => `${folder}/${segment}.jobs`
export const answersPath = (folder: string, segment: string): string => `${folder}/${segment}.answers`

/** A segment that this process owns. */
export class OwnSegment {
  readonly name: string
  readonly #folder: string
  readonly #jobs: number
  #answers: number | undefined
  size_bytes: number
  answers_bytes: number

  private constructor(folder: string, name: string, fd: number, size_bytes: number) {
    this.#folder = folder
    this.name = name
    this.#jobs = fd
    this.size_bytes = size_bytes
    this.answers_bytes = fs.statSync(answersPath(folder, name), { throwIfNoEntry: false })?.size ?? 0
  }

  static create(folder: string, name: string, owner: Owner): OwnSegment {
    const fd = fs.openSync(jobsPath(folder, name), 'wx+', 0o600)
    writeAll(fd, encodeSegmentHead(owner), 0)
    return new OwnSegment(folder, name, fd, SEGMENT_HEAD_BYTES)
  }

  /** Takes a dead owner's segment over. */
  static adopt(folder: string, name: string, owner: Owner): OwnSegment {
    const fd = fs.openSync(jobsPath(folder, name), 'r+')
    const head = encodeSegmentHead(owner)
    writeAll(fd, head.subarray(OWNER_AT, OWNER_AT + 8), OWNER_AT)
    return new OwnSegment(folder, name, fd, fs.fstatSync(fd).size)
  }

  /** Appends a record; answers its offset. What a full disk let through is taken back. */
  append(record: Buffer): number {
    const at = this.size_bytes
    try {
      writeAll(this.#jobs, record, at)
    } catch (cause) {
      fs.ftruncateSync(this.#jobs, at)
      throw cause
    }
    this.size_bytes = at + record.length
    return at
  }

  setStatus(offset: number, status: JobStatus): void {
    writeAll(this.#jobs, encodeStatus(status), offset + STATUS_AT)
  }

  isCancelAsked(offset: number): boolean {
    return readAt(this.#jobs, offset + CANCEL_AT, 1)[0] === 1
  }

  askCancel(offset: number): void {
    writeAll(this.#jobs, Buffer.of(1), offset + CANCEL_AT)
  }

  /** Keeps an answer; the status that the job gets with it. */
  addAnswer(meta: AnswerMeta, pieces: readonly Uint8Array[]): Pick<JobStatus, `answer_${string}` & keyof JobStatus> {
    const about = Buffer.from(JSON.stringify(meta))
    const bytes = Buffer.concat([about, ...pieces])
    this.#answers ??= fs.openSync(
      answersPath(this.#folder, this.name),
      fs.constants.O_RDWR | fs.constants.O_CREAT,
      0o600,
    )
    const at = this.answers_bytes
    writeAll(this.#answers, bytes, at)
    this.answers_bytes = at + bytes.length
    return { answer_at: at, answer_meta_bytes: about.length, answer_body_bytes: bytes.length - about.length }
  }

  read(offset: number): StoredJob | undefined {
    return readRecord(this.#jobs, offset)
  }

  body(offset: number, { meta_bytes, body_bytes }: RecordHead): Buffer {
    return readAt(this.#jobs, offset + RECORD_HEAD_BYTES + meta_bytes, body_bytes)
  }

  /** Every whole record, in its order; a torn end is cut off. */
  *scan(): Generator<readonly [offset: number, job: StoredJob]> {
    let offset = SEGMENT_HEAD_BYTES
    for (;;) {
      const job = readRecord(this.#jobs, offset, true)
      if (job === undefined) break
      yield [offset, job]
      offset += job.record_bytes
    }
    if (offset < this.size_bytes) fs.ftruncateSync(this.#jobs, offset)
    this.size_bytes = offset
  }

  /** Brings everything to the disk, without blocking. */
  sync(): Promise<Error | undefined> {
    return new Promise((resolve) => fs.fdatasync(this.#jobs, (error) => resolve(error ?? undefined)))
  }

  /** Brings everything to the disk and waits for it. */
  syncNow(): void {
    if (this.#answers !== undefined) fs.fdatasyncSync(this.#answers)
    fs.fdatasyncSync(this.#jobs)
  }

  close(): void {
    fs.closeSync(this.#jobs)
    if (this.#answers !== undefined) fs.closeSync(this.#answers)
  }

  remove(): void {
    this.close()
    fs.rmSync(jobsPath(this.#folder, this.name), { force: true })
    fs.rmSync(answersPath(this.#folder, this.name), { force: true })
  }
}

/** The owner of a segment; undefined if there is no such segment. */
export const ownerOf = (folder: string, segment: string): Owner | undefined =>
  opened(jobsPath(folder, segment), 'r', (fd) => decodeSegmentHead(readAt(fd, 0, SEGMENT_HEAD_BYTES)))

/** The job at a place, whoever owns it; undefined if there is none. */
export const readJob = (folder: string, segment: string, offset: number): StoredJob | undefined =>
  opened(jobsPath(folder, segment), 'r', (fd) => readRecord(fd, offset))

/** Asks the owner of a job to cancel it, and answers the job as it is after that. */
export const askCancel = (folder: string, segment: string, offset: number): StoredJob | undefined =>
  opened(jobsPath(folder, segment), 'r+', (fd) => {
    writeAll(fd, Buffer.of(1), offset + CANCEL_AT)
    return readRecord(fd, offset)
  })

/** The answer of a job that has one. */
export const readAnswer = (
  folder: string,
  segment: string,
  { answer_at, answer_meta_bytes, answer_body_bytes }: JobStatus,
): { meta: AnswerMeta; body: Buffer } | undefined => {
  if (answer_meta_bytes === 0) return undefined
  const bytes = opened(answersPath(folder, segment), 'r', (fd) =>
    readAt(fd, answer_at, answer_meta_bytes + answer_body_bytes),
  )
  if (bytes === undefined || bytes.length < answer_meta_bytes + answer_body_bytes) return undefined
  return { meta: JSON.parse(bytes.toString('utf8', 0, answer_meta_bytes)), body: bytes.subarray(answer_meta_bytes) }
}

const readRecord = (fd: number, offset: number, check = false): StoredJob | undefined => {
  if (offset < SEGMENT_HEAD_BYTES || offset % 8 !== 0) return undefined
  const head = decodeHead(readAt(fd, offset, RECORD_HEAD_BYTES))
  if (head === undefined) return undefined
  const wanted = check ? head.record_bytes : RECORD_HEAD_BYTES + head.meta_bytes
  const bytes = readAt(fd, offset, wanted)
  if (bytes.length < wanted || (check && !isSound(bytes, head))) return undefined
  return { ...head, meta: JSON.parse(bytes.toString('utf8', RECORD_HEAD_BYTES, RECORD_HEAD_BYTES + head.meta_bytes)) }
}

const opened = <T>(path: string, flags: 'r' | 'r+', work: (fd: number) => T): T | undefined => {
  let fd: number
  try {
    fd = fs.openSync(path, flags)
  } catch (cause) {
    if (cause instanceof Error && 'code' in cause && cause.code === 'ENOENT') return undefined
    throw cause
  }
  try {
    return work(fd)
  } finally {
    fs.closeSync(fd)
  }
}

const readAt = (fd: number, at: number, length: number): Buffer => {
  const bytes = Buffer.alloc(length)
  let done = 0
  while (done < length) {
    const got = fs.readSync(fd, bytes, done, length - done, at + done)
    if (got === 0) break
    done += got
  }
  return bytes.subarray(0, done)
}

const writeAll = (fd: number, bytes: Uint8Array, at: number): void => {
  for (let done = 0; done < bytes.length;) done += fs.writeSync(fd, bytes, done, bytes.length - done, at + done)
}
