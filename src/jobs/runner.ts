import { errorBody, Failure } from '../base/failure.ts'
import type { House } from '../pipeline/house.ts'
import { onPlaceLeft } from '../pipeline/place.ts'
import { giveCounts, takeCounts } from '../table/counts.ts'
import type { JobStatus } from './job-file.ts'
import { freePlaces, jobsSubject } from './job-places.ts'
import { Lane } from './lanes.ts'
import { type Ran, runJob, TRIES_AGAIN, WAITS } from './run-job.ts'
import type { AnswerMeta } from './segment.ts'
import type { JobStore, OwnJob } from './store.ts'

/** Jobs begun in one turn of the loop, so that calls of clients that wait get theirs. */
const BURST = 16
/** Those of a loop that is late. */
const BURST_LATE = 2
/** How often the runner looks for places that other workers left, and for jobs to cancel. */
const LOOK_MS = 25
/** A loop that is later than this has calls to serve first. */
const LAG_MS = 8
const PAUSE_MS_MIN = 200
const PAUSE_MS_MAX = 5_000
/** Jobs of an address without engines that one worker runs at once. */
const ECHO_MAX = 16
const ANY = 0x7fff_ffff

type Running = { readonly controller: AbortController }

/** Runs this worker's jobs at the pace of the engines. */
export class JobRunner {
  readonly #house: House
  readonly #store: JobStore
  readonly #over: (job: OwnJob) => void
  readonly #lanes = new Map<string, Lane>()
  readonly #running = new Map<OwnJob, Running>()
  /** Runs by model, those of them that have no place at an engine yet, and jobs that pause before they wait again. */
  readonly #begun = new Map<string, number>()
  readonly #placing = new Map<string, number>()
  readonly #pausing = new Map<OwnJob, Timer>()
  readonly #timer: Timer
  readonly #deaf: () => void
  #woken = false
  #stopping = false

  /** `over` is called once for each job that has come to its end. */
  constructor(house: House, store: JobStore, over: (job: OwnJob) => void) {
    this.#house = house
    this.#store = store
    this.#over = over
    this.#timer = setInterval(() => this.#look(), LOOK_MS)
    this.#deaf = onPlaceLeft(house, () => this.#wake())
  }

  /** Jobs that are not over, in this worker. */
  get size(): number {
    return this.#running.size + this.#pausing.size + this.#lanes.values().reduce((sum, lane) => sum + lane.size, 0)
  }

  /** Takes a job that was just accepted, whose tenant's place is taken already. */
  push(job: OwnJob): void {
    const { model } = job.meta
    let lane = this.#lanes.get(model)
    if (lane === undefined) this.#lanes.set(model, (lane = new Lane()))
    lane.push(job)
    this.#wake()
  }

  /** Takes a job over that another process has left. What it had begun is begun again, up to `jobs.attempts_max` times. */
  resume(job: OwnJob): void {
    const subject = jobsSubject(this.#house, job.meta.tenant)
    if (subject !== undefined) takeCounts(this.#house.table, this.#house.worker, [{ subject, limit: ANY }])
    if (job.status.state === 'running') {
      if (job.status.attempts >= this.#settings().attempts_max)
        return this.#fail(
          job,
          new Failure('internal', { says: `The job was interrupted ${job.status.attempts} times.` }),
        )
      this.#store.setStatus(job, { state: 'queued' })
    }
    this.push(job)
  }

  /** Begins nothing any more; what runs goes on. */
  stop(): void {
    this.#stopping = true
    clearInterval(this.#timer)
    this.#deaf()
    for (const timer of this.#pausing.values()) clearTimeout(timer)
  }

  #settings() {
    return this.#house.catalogue.config.jobs
  }

  #wake(): void {
    if (this.#woken || this.#stopping) return
    this.#woken = true
    setImmediate(() => {
      this.#woken = false
      if (!this.#isLate()) this.#pump(BURST)
    })
  }

  #look(): void {
    for (const [job, { controller }] of this.#running) if (this.#store.isCancelAsked(job)) controller.abort()
    this.#pump(this.#isLate() ? BURST_LATE : BURST)
  }

  /** A loop that is late has calls to answer first; the timer sees to it that jobs go on, slowly. */
  #isLate(): boolean {
    return this.#house.watch.lag_ms() > LAG_MS
  }

  #pump(burst: number): void {
    if (this.#stopping || this.#house.leaving || this.#house.draining) return
    let left = burst
    for (const [name, lane] of this.#lanes) {
      const room = this.#room(name)
      for (let begun = 0; begun < room && left > 0 && lane.size > 0; begun++, left--) this.#begin(lane.shift()!)
      if (lane.size === 0) this.#lanes.delete(name)
    }
  }

  /** How many jobs of a model may begin now: what is free of the engines' share for jobs, and nobody who waits stands behind. */
  #room(name: string): number {
    const begun = this.#begun.get(name) ?? 0
    if (name === '') return ECHO_MAX - begun
    const model = this.#house.catalogue.models.get(name)
    // A model that is gone: the run finds out, and the job fails with that.
    if (model === undefined) return BURST
    const placing = this.#placing.get(name) ?? 0
    // Half of what is free at a time: another worker sees the same places, and takes its half.
    return Math.min(Math.ceil((freePlaces(this.#house, model, this.#settings().engine_share) - placing) / 2), BURST)
  }

  #begin(job: OwnJob): void {
    this.#run(job).catch((cause: unknown) => {
      // The disk refuses: the job stays as it is there, and is taken up again here.
      this.#house.log('error', 'job_not_kept', { job: job.id, cause })
      this.#running.delete(job)
      this.#pause(job, PAUSE_MS_MAX)
    })
  }

  async #run(job: OwnJob): Promise<void> {
    const store = this.#store
    if (this.#house.now() - job.accepted_at_ms > this.#settings().wait_ms)
      return this.#fail(job, new Failure('queue_timeout', { says: 'The job waited longer than jobs.wait_ms allows.' }))
    store.setStatus(job, { state: 'running', attempts: job.status.attempts + 1, started_at_ms: this.#house.now() })
    // In this order, or a cancel between the two would be told to be in time and not be heard.
    if (store.isCancelAsked(job)) return this.#end(job, { state: 'cancelled' })
    const body = store.body(job)
    if (body === undefined) return this.#fail(job, new Failure('internal', { says: 'The job cannot be read.' }))
    const controller = new AbortController()
    this.#running.set(job, { controller })
    const { model } = job.meta
    this.#count(this.#begun, model, 1)
    this.#count(this.#placing, model, 1)
    let placing = true
    const placed = (): void => {
      if (placing) this.#count(this.#placing, model, -1)
      placing = false
    }
    const ran = await runJob(job, body, this.#house, { store, signal: controller.signal, placed })
    placed()
    this.#running.delete(job)
    this.#count(this.#begun, model, -1)
    this.#settle(job, ran, controller.signal.aborted)
    this.#wake()
  }

  #settle(job: OwnJob, ran: Ran, aborted: boolean): void {
    if (ran.kind === 'kept') return this.#ended(job)
    // The process goes: the job is left as it is, and its next owner runs it again.
    if (this.#stopping && (ran.kind === 'failed' || ran.meta.status >= 400)) return
    if (aborted) return this.#end(job, { state: 'cancelled' })
    if (ran.kind === 'failed') {
      const { code } = ran.failure
      if (WAITS.has(code)) return this.#again(job, job.status.attempts - 1)
      if (TRIES_AGAIN.has(code) && this.#maybeAgain(job)) return
      return this.#fail(job, ran.failure, ran.call_id)
    }
    if (ran.meta.status >= 429 && this.#maybeAgain(job)) return
    this.#finish(job, ran.meta.status < 400 ? 'done' : 'failed', ran.meta, ran.body)
  }

  #maybeAgain(job: OwnJob): boolean {
    if (job.status.attempts >= this.#settings().attempts_max) return false
    this.#again(job, job.status.attempts)
    return true
  }

  #again(job: OwnJob, attempts: number): void {
    this.#store.setStatus(job, { state: 'queued', attempts })
    const pause_ms = Math.min(PAUSE_MS_MAX, PAUSE_MS_MIN * 2 ** Math.min(attempts, 8)) * (0.5 + this.#house.random())
    this.#pause(job, pause_ms)
  }

  #pause(job: OwnJob, pause_ms: number): void {
    const timer = setTimeout(() => {
      this.#pausing.delete(job)
      this.push(job)
    }, pause_ms)
    this.#pausing.set(job, timer)
  }

  #count(counts: Map<string, number>, model: string, by: number): void {
    const count = (counts.get(model) ?? 0) + by
    if (count > 0) counts.set(model, count)
    else counts.delete(model)
  }

  #fail(job: OwnJob, failure: Failure, call_id?: string): void {
    const meta = { status: failure.status, headers: JSON_TYPE, ...(call_id !== undefined && { call_id }) }
    this.#finish(job, 'failed', meta, Buffer.from(JSON.stringify(errorBody(failure))))
  }

  #finish(job: OwnJob, state: 'done' | 'failed', meta: AnswerMeta, body: Uint8Array): void {
    try {
      this.#store.finish(job, state, meta, [body])
    } catch (cause) {
      this.#house.log('error', 'job_answer_not_kept', { job: job.id, cause })
      return this.#again(job, job.status.attempts)
    }
    this.#ended(job)
  }

  #end(job: OwnJob, change: Partial<JobStatus>): void {
    this.#store.setStatus(job, { ...change, finished_at_ms: this.#house.now() })
    this.#ended(job)
  }

  #ended(job: OwnJob): void {
    const subject = jobsSubject(this.#house, job.meta.tenant)
    if (subject !== undefined) giveCounts(this.#house.table, this.#house.worker, [{ subject, limit: ANY }])
    this.#over(job)
  }
}

const JSON_TYPE = { 'content-type': 'application/json' }
