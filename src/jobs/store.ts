import fs from 'node:fs'
import { Failure } from '../base/failure.ts'
import { encodeRecord, type JobMeta, type JobStatus, type Owner, QUEUED } from './job-file.ts'
import { formatJobId, type JobPlace, sealOf } from './job-id.ts'
import { type AnswerMeta, OwnSegment, ownerOf, type StoredJob } from './segment.ts'

/** A segment takes no more jobs beyond these. */
const SEGMENT_BYTES = 64 * 1024 * 1024
const SEGMENT_MS_MAX = 3_600_000

/** A job that this worker is to run: its id, where it is, and what of it changes. */
export type OwnJob = JobPlace & {
  readonly id: string
  readonly meta: JobMeta
  readonly accepted_at_ms: number
  status: JobStatus
}

export type StoreOptions = {
  readonly folder: string
  readonly owner: Owner
  readonly secret: Uint8Array
  readonly durability: 'standard' | 'strict'
  readonly sync_ms: number
  readonly now: () => number
  readonly isLive: (owner: Owner) => boolean
  readonly onSyncFailed: (cause: Error) => void
}

type Held = { readonly file: OwnSegment; unfinished: number; last_ms: number }

/** The jobs of one worker: those it accepted, and those it took over from workers that are gone. */
export class JobStore {
  readonly #options: StoreOptions
  readonly #held = new Map<string, Held>()
  #current: { readonly held: Held; readonly since_ms: number } | undefined
  #number = 0
  readonly #dirty = new Set<OwnSegment>()
  /** The sync under way, and the one that comes after it. */
  #next: Promise<Error | undefined> | undefined
  #syncing: Promise<Error | undefined> | undefined
  #timer: Timer | undefined

  constructor(options: StoreOptions) {
    this.#options = options
  }

  /** Bytes of all files of this worker. */
  get bytes(): number {
    return this.#held.values().reduce((sum, { file }) => sum + file.size_bytes + file.answers_bytes, 0)
  }

  /** Writes a job down. When it resolves the job survives what `ledger.durability` promises. */
  async add(meta: JobMeta, body: Uint8Array): Promise<OwnJob | Failure> {
    const { secret, now } = this.#options
    try {
      const held = this.#writable()
      const { file } = held
      const offset = file.size_bytes
      const accepted_at_ms = now()
      const random = sealOf(secret, file.name, offset)
      const status: JobStatus = meta.webhook === undefined ? QUEUED : { ...QUEUED, webhook: 'due' }
      file.append(encodeRecord(Buffer.from(random, 'hex'), meta, body, status, accepted_at_ms))
      held.unfinished++
      const place = { segment: file.name, offset, random }
      const job: OwnJob = { ...place, id: formatJobId(place), meta, accepted_at_ms, status }
      const failed = await this.#written(file)
      return failed ? await this.#withdraw(job, file, failed) : job
    } catch (cause) {
      return new Failure('journal_full', { retry_after_s: 5, cause })
    }
  }

  /** Takes a job back that could not be brought to the disk, and answers whether it can still run. */
  async #withdraw(job: OwnJob, file: OwnSegment, cause: Error): Promise<Failure> {
    const refused = (says: string) =>
      new Failure('journal_full', {
        says: `The job could not be brought to the disk: ${says}`,
        retry_after_s: 5,
        cause,
      })
    try {
      this.setStatus(job, { state: 'cancelled', webhook: 'none', finished_at_ms: this.#options.now() })
    } catch {
      return refused('it is not accepted, but may run all the same once the gateway has been started again.')
    }
    // A sync that succeeds has brought this to the disk, though what failed before may be lost.
    return (await this.#synced(file))
      ? refused('it is not accepted, but may run all the same if the power fails before the disk works again.')
      : refused('it is not accepted and does not run.')
  }

  body(job: OwnJob): Uint8Array | undefined {
    const { file } = this.#held.get(job.segment)!
    const head = file.read(job.offset)
    return head && file.body(job.offset, head)
  }

  setStatus(job: OwnJob, change: Partial<JobStatus>): void {
    const held = this.#held.get(job.segment)!
    const was = job.status.state
    job.status = { ...job.status, ...change }
    held.file.setStatus(job.offset, job.status)
    if (isOver(job.status) && !isOver({ ...job.status, state: was })) held.unfinished--
    if (isOver(job.status)) held.last_ms = this.#options.now()
    this.#later(held.file)
  }

  /** Ends a job with its answer, in one step for whoever looks. In strict mode it is on the disk when this returns. */
  finish(job: OwnJob, state: 'done' | 'failed', meta: AnswerMeta, pieces: readonly Uint8Array[]): void {
    const { file } = this.#held.get(job.segment)!
    const answer = file.addAnswer(meta, pieces)
    this.setStatus(job, { ...answer, state, finished_at_ms: this.#options.now() })
    if (this.#options.durability === 'strict') file.syncNow()
  }

  isCancelAsked(job: OwnJob): boolean {
    return this.#held.get(job.segment)!.file.isCancelAsked(job.offset)
  }

  owns(segment: string): boolean {
    return this.#held.has(segment)
  }

  /** Takes over one segment of a worker that is gone, if there is any: its jobs that are not over, or have a webhook due. */
  adopt(): OwnJob[] {
    const { folder, owner, isLive } = this.#options
    for (const name of segmentNames(folder)) {
      if (this.#held.has(name)) continue
      const other = ownerOf(folder, name)
      if (other !== undefined && isLive(other)) continue
      const held: Held = { file: OwnSegment.adopt(folder, name, owner), unfinished: 0, last_ms: this.#options.now() }
      this.#held.set(name, held)
      const jobs = [...held.file.scan()].filter(([, job]) => !isOver(job) || job.webhook === 'due')
      held.unfinished = jobs.filter(([, job]) => !isOver(job)).length
      return jobs.map(([offset, job]) => ownJob(name, offset, job))
    }
    return []
  }

  /** Removes segments whose jobs were all over before `before_ms`, and the oldest ones of all over `bytes_max`. */
  expire(before_ms: number, bytes_max: number): void {
    const { now } = this.#options
    if (this.#current && now() - this.#current.since_ms > SEGMENT_MS_MAX) this.#current = undefined
    const over = [...this.#held.values()]
      .filter((held) => held.unfinished === 0 && held !== this.#current?.held)
      .toSorted((one, other) => one.last_ms - other.last_ms)
    let bytes = this.bytes
    for (const { file, last_ms } of over) {
      if (last_ms >= before_ms && bytes <= bytes_max) break
      bytes -= file.size_bytes + file.answers_bytes
      this.#dirty.delete(file)
      this.#held.delete(file.name)
      file.remove()
    }
  }

  /** Brings all to the disk and lets go of the files: another worker takes them over. */
  async close(): Promise<void> {
    clearTimeout(this.#timer)
    await (this.#next ?? this.#syncing)
    for (const { file } of this.#held.values()) {
      file.syncNow()
      file.close()
    }
    this.#held.clear()
    this.#current = undefined
  }

  #writable(): Held {
    if (this.#current && this.#current.held.file.size_bytes < SEGMENT_BYTES) return this.#current.held
    const { folder, owner, now } = this.#options
    const name = `w${owner.worker}-${owner.incarnation}-${this.#number}`
    const held: Held = { file: OwnSegment.create(folder, name, owner), unfinished: 0, last_ms: now() }
    this.#number++
    this.#held.set(name, held)
    this.#current = { held, since_ms: now() }
    return held
  }

  #written(file: OwnSegment): Promise<Error | undefined> | undefined {
    if (this.#options.durability === 'strict') return this.#synced(file)
    this.#later(file)
    return undefined
  }

  #later(file: OwnSegment): void {
    this.#dirty.add(file)
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined
      void this.#synced(file)
    }, this.#options.sync_ms)
  }

  /** One sync at a time; whoever comes meanwhile shares the next. */
  #synced(file: OwnSegment): Promise<Error | undefined> {
    this.#dirty.add(file)
    return (this.#next ??= this.#syncAfter(this.#syncing))
  }

  async #syncAfter(before: Promise<unknown> | undefined): Promise<Error | undefined> {
    await before
    this.#syncing = this.#next
    this.#next = undefined
    const files = [...this.#dirty]
    this.#dirty.clear()
    const failed = (await Promise.all(files.map((one) => one.sync()))).find((error) => error !== undefined)
    if (failed) this.#options.onSyncFailed(failed)
    return failed
  }
}

const isOver = ({ state }: Pick<JobStatus, 'state'>): boolean => state !== 'queued' && state !== 'running'

const ownJob = (segment: string, offset: number, stored: StoredJob): OwnJob => {
  const {
    meta,
    accepted_at_ms,
    random,
    record_bytes: _r,
    meta_bytes: _m,
    body_bytes: _b,
    cancel: _c,
    ...status
  } = stored
  return { id: formatJobId({ segment, offset, random }), segment, offset, random, meta, accepted_at_ms, status }
}

const segmentNames = (folder: string): string[] =>
  fs
    .readdirSync(folder)
    .filter((name) => name.endsWith('.jobs'))
    .map((name) => name.slice(0, -'.jobs'.length))
    .toSorted()
