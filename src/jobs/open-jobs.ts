import { Failure } from '../base/failure.ts'
import type { Screened } from '../pipeline/call.ts'
import type { House } from '../pipeline/house.ts'
import { HEADER, WORKER, WORKER_STATE } from '../table/layout.ts'
import { type Table, workerI32 } from '../table/table.ts'
import { acceptJob } from './accept.ts'
import type { Owner } from './job-file.ts'
import { parseJobId, sealOf } from './job-id.ts'
import { JobRunner } from './runner.ts'
import { jobsSecret } from './secret.ts'
import { askCancel, readAnswer, readJob, type StoredJob } from './segment.ts'
import { jobObject, type Shown } from './show.ts'
import { JobStore, type OwnJob } from './store.ts'
import { Webhooks } from './webhook.ts'

/** How often a worker looks for jobs of workers that are gone. */
const ADOPT_MS = 500
/** How often finished jobs that are old enough are removed. */
const EXPIRE_MS = 5_000

/** A job as an address shows it. */
export type JobView = { readonly job: Shown; readonly json: Buffer }

export type JobsOptions = {
  readonly folder: string
  readonly incarnation: number
  readonly durability: 'standard' | 'strict'
  readonly sync_ms: number
}

/** The jobs of a worker, and those of all others as far as their files tell. */
export type OpenJobs = {
  /** Accepts a call whose client does not wait; undefined if it waits. */
  accept(call: Screened, house: House): Promise<Response | Failure> | undefined
  /** A tenant's job; `not_found` also for another tenant's. */
  show(id: string, tenant: string): JobView | Failure
  /** Asks for a job's end; answers it as it is then. */
  cancel(id: string, tenant: string): JobView | Failure
  /** Begins no more jobs. */
  stop(): void
  /** Lets go of the files, after the last call has ended. */
  close(): Promise<void>
}

export const openJobs = (house: House, options: JobsOptions): OpenJobs => {
  const { folder } = options
  const secret = jobsSecret(folder)
  const settings = () => house.catalogue.config.jobs
  const store = openStore(house, options, secret)
  const { tell, webhooks } = tellEnds(house, folder, store)
  const runner = new JobRunner(house, store, tell)
  const resume = (job: OwnJob): void =>
    job.status.state === 'queued' || job.status.state === 'running' ? runner.resume(job) : tell(job)
  const jobs = {
    bytes: () => store.bytes,
    add: store.add.bind(store),
    push: (job: OwnJob) => runner.push(job),
  }
  const now_and_then = [
    repeated(house, ADOPT_MS, () => adoptOne(house, store).forEach(resume)),
    repeated(house, EXPIRE_MS, () => store.expire(house.now() - settings().keep_ms, settings().bytes_max)),
  ]
  const found = (id: string, tenant: string, read: Reader): JobView | Failure => {
    const place = parseJobId(id)
    const gone = new Failure('not_found', { says: 'No such job, or its answer is kept no longer.' })
    if (place === undefined || sealOf(secret, place.segment, place.offset) !== place.random) return gone
    const job = read(folder, place.segment, place.offset)
    return job?.meta.tenant === tenant ? viewOf(id, folder, place.segment, job) : gone
  }
  return {
    accept: (call) => acceptJob(call, house, jobs),
    show: (id, tenant) => found(id, tenant, readJob),
    cancel: (id, tenant) => {
      const shown = found(id, tenant, readJob)
      return shown instanceof Failure ? shown : found(id, tenant, askCancel)
    },
    stop: () => {
      for (const timer of now_and_then) clearInterval(timer)
      runner.stop()
      webhooks.stop()
    },
    close: () => store.close(),
  }
}

const openStore = (house: House, { folder, incarnation, durability, sync_ms }: JobsOptions, secret: Uint8Array) => {
  const { table, worker, now, log } = house
  return new JobStore({
    ...{ folder, owner: { worker, incarnation }, secret, durability, sync_ms, now },
    isLive: (owner) => isLive(table, owner),
    onSyncFailed: (cause) => log('error', 'jobs_not_on_disk', { cause }),
  })
}

/** Tells the ends of jobs that have a webhook, and writes down what became of it. */
const tellEnds = (house: House, folder: string, store: JobStore) => {
  const webhooks = new Webhooks({
    allow_private: () => house.catalogue.config.jobs.webhook_private,
    now: house.now,
    log: (event, detail) => house.log('warn', event, detail),
  })
  const tell = (job: OwnJob): void => {
    if (job.status.webhook !== 'due') return
    const webhook = house.catalogue.tenants.get(job.meta.tenant)?.config.webhook
    const over = (delivered: boolean): void => {
      if (store.owns(job.segment)) store.setStatus(job, { webhook: delivered ? 'delivered' : 'given_up' })
    }
    if (webhook === undefined) return over(false)
    const body = () => viewOf(job.id, folder, job.segment, { ...job.status, ...job, cancel: false }).json
    webhooks.tell({ job_id: job.id, url: job.meta.webhook!, secret: webhook.secret, body, over })
  }
  return { tell, webhooks }
}

const viewOf = (id: string, folder: string, segment: string, job: Shown): JobView => ({
  job,
  json: jobObject(id, job, readAnswer(folder, segment, job)),
})

/** Does something again and again. What the file system refuses is logged once, until it has worked again. */
const repeated = (house: House, every_ms: number, work: () => void): Timer => {
  let told = false
  return setInterval(() => {
    try {
      work()
      told = false
    } catch (cause) {
      if (!told) house.log('error', 'jobs_not_kept', { cause })
      told = true
    }
  }, every_ms)
}

type Reader = (folder: string, segment: string, offset: number) => StoredJob | undefined

/** One worker at a time looks for what dead ones left, or two could take the same. */
const adoptOne = ({ table, worker }: House, store: JobStore): OwnJob[] => {
  const holder = Atomics.load(table.i32, HEADER.jobs_adopter)
  // Who died as the holder, under this number or another, holds it no more.
  if (holder !== 0 && holder !== worker + 1 && state(table, holder - 1) !== WORKER_STATE.none) return []
  if (Atomics.compareExchange(table.i32, HEADER.jobs_adopter, holder, worker + 1) !== holder) return []
  try {
    return store.adopt()
  } finally {
    Atomics.compareExchange(table.i32, HEADER.jobs_adopter, worker + 1, 0)
  }
}

const state = ({ i32 }: Table, worker: number): number => Atomics.load(i32, workerI32(worker, WORKER.state))

const isLive = (table: Table, { worker, incarnation }: Owner): boolean =>
  state(table, worker) !== WORKER_STATE.none &&
  Atomics.load(table.i32, workerI32(worker, WORKER.incarnation)) === incarnation
