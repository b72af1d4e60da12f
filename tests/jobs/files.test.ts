import { expect, test } from 'bun:test'
import { truncateSync, writeFileSync } from 'node:fs'
import { Failure } from '../../src/base/failure.ts'
import type { JobMeta } from '../../src/jobs/job-file.ts'
import { formatJobId, parseJobId, sealOf } from '../../src/jobs/job-id.ts'
import { jobsSecret } from '../../src/jobs/secret.ts'
import { askCancel, answersPath, jobsPath, ownerOf, readAnswer, readJob } from '../../src/jobs/segment.ts'
import { JobStore, type OwnJob } from '../../src/jobs/store.ts'
import { tempFolder } from '../kit/wait.ts'

const meta: JobMeta = {
  tenant: 'acme',
  key_id: 'key_1',
  key_sha256: 'ab',
  path: '/v1/chat/completions',
  model: 'm',
  headers: [['x', 'ä']],
}
const DEAD = { worker: 3, incarnation: 7 }
const NEXT = { worker: 0, incarnation: 8 }

const openStore = (folder: string, owner = DEAD, durability: 'standard' | 'strict' = 'standard', now = () => 1_000) =>
  new JobStore({
    ...{ folder, owner, durability, now, sync_ms: 5, secret: jobsSecret(folder) },
    isLive: () => false,
    onSyncFailed: (cause) => {
      throw cause
    },
  })
const add = async (store: JobStore, body: string): Promise<OwnJob> => {
  const job = await store.add(meta, Buffer.from(body))
  if (job instanceof Failure) throw job.detail.cause
  return job
}

test.each(['standard', 'strict'] as const)('%s: what was added is read back, in every state', async (durability) => {
  using folder = tempFolder('weir-jobs')
  const store = openStore(folder.path, DEAD, durability)
  const jobs = await Promise.all(['{"a":1}', '', 'x'.repeat(100_000)].map((body) => add(store, body)))
  expect(jobs.map((job) => Buffer.from(store.body(job)!).length)).toEqual([7, 0, 100_000])
  store.setStatus(jobs[0]!, { state: 'running', attempts: 2, started_at_ms: 5 })
  store.finish(jobs[1]!, 'done', { status: 200, headers: { a: 'ü' } }, [Buffer.from('{"b":'), Buffer.from('2}')])
  const seen = jobs.map((job) => {
    expect(parseJobId(job.id)).toEqual({ segment: job.segment, offset: job.offset, random: job.random })
    return readJob(folder.path, job.segment, job.offset)!
  })
  expect(seen.map(({ state, attempts }) => [state, attempts])).toEqual([
    ['running', 2],
    ['done', 0],
    ['queued', 0],
  ])
  expect(seen.map((job) => job.meta)).toEqual([meta, meta, meta])
  const answer = readAnswer(folder.path, jobs[1]!.segment, seen[1]!)!
  expect([answer.meta, answer.body.toString()]).toEqual([{ status: 200, headers: { a: 'ü' } }, '{"b":2}'])
  expect(readAnswer(folder.path, jobs[0]!.segment, seen[0]!)).toBeUndefined()
  await store.close()
})

test('a cancel that another process asks for is seen by the owner, and survives its writes', async () => {
  using folder = tempFolder('weir-jobs')
  const store = openStore(folder.path)
  const job = await add(store, 'x')
  expect(store.isCancelAsked(job)).toBe(false)
  expect(askCancel(folder.path, job.segment, job.offset)!.cancel).toBe(true)
  store.setStatus(job, { state: 'running' })
  expect(store.isCancelAsked(job)).toBe(true)
  await store.close()
})

test('another worker takes a dead one’s jobs over: those that are not over, and a torn end is cut off', async () => {
  using folder = tempFolder('weir-jobs')
  const dead = openStore(folder.path)
  const jobs = [await add(dead, 'one'), await add(dead, 'two'), await add(dead, 'three')]
  dead.finish(jobs[0]!, 'done', { status: 200, headers: {} }, [])
  dead.setStatus(jobs[1]!, { state: 'running', attempts: 1 })
  await dead.close()
  const path = jobsPath(folder.path, jobs[2]!.segment)
  const bytes = await Bun.file(path).bytes()
  for (const end of [bytes.length - 1, jobs[2]!.offset + 80, jobs[2]!.offset + 3]) {
    writeFileSync(path, bytes)
    truncateSync(path, end)
    const next = openStore(folder.path, NEXT)
    expect(next.adopt().map(({ id, status }) => [id, status.state])).toEqual([[jobs[1]!.id, 'running']])
    expect(ownerOf(folder.path, jobs[1]!.segment)).toEqual(NEXT)
    expect(next.adopt()).toEqual([])
    // It is whole again, and takes what comes next.
    expect(Bun.file(path).size).toBe(jobs[2]!.offset)
    await next.close()
  }
  // A record whose body was damaged is none.
  bytes[jobs[2]!.offset + 100]! ^= 1
  writeFileSync(path, bytes)
  const next = openStore(folder.path, NEXT)
  expect(next.adopt()).toHaveLength(1)
  await next.close()
})

test('what a living worker owns is not taken over', async () => {
  using folder = tempFolder('weir-jobs')
  const living = openStore(folder.path)
  await add(living, 'one')
  const next = new JobStore({
    ...{ folder: folder.path, owner: NEXT, durability: 'standard', now: () => 0, sync_ms: 5 },
    secret: jobsSecret(folder.path),
    isLive: ({ worker, incarnation }) => worker === DEAD.worker && incarnation === DEAD.incarnation,
    onSyncFailed: () => undefined,
  })
  expect(next.adopt()).toEqual([])
  await living.close()
})

test('segments go when all their jobs were over long enough, or to keep within the bytes; never before', async () => {
  using folder = tempFolder('weir-jobs')
  let now_ms = 1_000
  const store = openStore(folder.path, DEAD, 'standard', () => now_ms)
  const job = await add(store, 'one')
  now_ms += 7_200_000
  store.expire(now_ms, 0)
  expect(readJob(folder.path, job.segment, job.offset)!.state).toBe('queued')
  store.finish(job, 'done', { status: 200, headers: {} }, [Buffer.from('answer')])
  const other = await add(store, 'two')
  expect(other.segment).not.toBe(job.segment)
  store.expire(now_ms - 1, 1e9)
  expect(readJob(folder.path, job.segment, job.offset)!.state).toBe('done')
  store.expire(now_ms + 1, 1e9)
  expect(readJob(folder.path, job.segment, job.offset)).toBeUndefined()
  expect(await Bun.file(answersPath(folder.path, job.segment)).exists()).toBe(false)
  expect(readJob(folder.path, other.segment, other.offset)!.state).toBe('queued')
  await store.close()
})

test('an id is its place and a seal; whatever else is refused', () => {
  const secret = new Uint8Array(32).fill(7)
  const place = { segment: 'w31-4294967295-65535', offset: 4_294_967_288, random: sealOf(secret, 'w31', 8) }
  const id = formatJobId(place)
  expect(parseJobId(id)).toEqual(place)
  expect(sealOf(secret, 'w1-1-1', 32)).not.toBe(sealOf(secret, 'w1-1-1', 40))
  expect(sealOf(secret, 'w1-1-1', 32)).not.toBe(sealOf(new Uint8Array(32), 'w1-1-1', 32))
  for (const bad of ['', 'job_', id.slice(1), `${id}0`, id.toUpperCase(), id.replace(/.$/, 'g'), `../${id}`])
    expect([bad, parseJobId(bad)]).toEqual([bad, undefined])
})

test('the secret of a folder is made once', () => {
  using folder = tempFolder('weir-jobs')
  expect(jobsSecret(folder.path)).toEqual(jobsSecret(folder.path))
})
