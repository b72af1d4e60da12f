import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { writeFileSync } from 'node:fs'
import { type HostileEngine, startHostileEngine } from '../kit/hostile-engine.ts'
import { startHouse, type TestHouse } from '../kit/house.ts'
import { json, WHOLE } from '../kit/script.ts'
import { eventually, tempFolder } from '../kit/wait.ts'

setDefaultTimeout(60_000)

/**
 * Strict mode, and a disk that fails to sync a job: `fdatasync` of a file of jobs answers EIO, by a library that is put
 * before the C library. What the answer says of the job is so, also after the death of the worker.
 */

const FAILS_C = `
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* How many syncs of files of jobs are still to fail stands in the file that TEST_SYNC_FAILS names. */
int fdatasync(int fd) {
  char link[64], path[4096], left[16] = "";
  const char *control = getenv("TEST_SYNC_FAILS");
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  FILE *file = length > 5 && control && !strncmp(path + length - 5, ".jobs", 5) ? fopen(control, "r+") : NULL;
  if (file) {
    int count = fgets(left, sizeof left, file) ? atoi(left) : 0;
    rewind(file);
    if (count > 0) fprintf(file, "%-8d", count - 1);
    fclose(file);
    if (count > 0) {
      errno = EIO;
      return -1;
    }
  }
  return syscall(SYS_fdatasync, fd);
}
`

const compiler = process.platform === 'linux' ? (Bun.which('cc') ?? Bun.which('gcc')) : null
const folder = tempFolder('weir-sync')
const control = `${folder.path}/fails`
const QUIET_MS = 300
/** Segments of the dead are taken over one by one, twice a second. */
const TAKEN_OVER_MS = 1_600
let engine: HostileEngine
let house: TestHouse
let key: string

/** Of the next syncs of jobs so many fail. */
const fail = async (count: number) => {
  // What became of the job before is synced by now.
  await Bun.sleep(QUIET_MS)
  writeFileSync(control, String(count).padEnd(8))
}
const settings = () => ({
  workers: 1,
  data: `${folder.path}/data`,
  env: { LD_PRELOAD: `${folder.path}/fails.so`, TEST_SYNC_FAILS: control },
  config: {
    ledger: { durability: 'strict' },
    engines: [{ name: 'e', url: engine.url, probe_ms: 0, scrape_ms: 0 }],
    models: [{ name: 'm', targets: [{ engine: 'e' }], free: true }],
    tenants: [{ name: 'acme', webhook: { secret: 'x'.repeat(32) } }],
    jobs: { webhook_private: true },
  },
})

beforeAll(async () => {
  if (!compiler) return
  writeFileSync(`${folder.path}/fails.c`, FAILS_C)
  const built = Bun.spawnSync([compiler, '-shared', '-fPIC', '-o', `${folder.path}/fails.so`, `${folder.path}/fails.c`])
  if (!built.success) throw new Error(built.stderr.toString())
  engine = startHostileEngine({ answers: [json(200, WHOLE('hi', 5, 1))] })
  await fail(0)
  house = await startHouse(settings())
  key = await house.key('acme')
})
afterAll(async () => {
  await house?.[Symbol.asyncDispose]()
  await engine?.stop()
  folder[Symbol.dispose]()
})

const post = async (content: string, headers: Record<string, string> = {}) => {
  const body = { model: 'm', messages: [{ role: 'user', content }] }
  const answer = await house.post('/v1/chat/completions', body, key, { prefer: 'respond-async', ...headers })
  const said = (await answer.json()) as { id?: string; error?: { code: string; message: string } }
  return { ...said, status: answer.status, retry_after: answer.headers.get('retry-after') }
}
const asked = () => engine.requests.map((request) => request.json().messages[0].content as string)
const runs = (content: string) => eventually(() => expect(asked()).toContain(content), 10_000)

/** A new worker takes over what the old one left, before it runs a job that comes later. */
const workerDies = async (name: string) => {
  const [pid] = house.pids('worker')
  process.kill(pid!, 'SIGKILL')
  await eventually(() => {
    const [now] = house.pids('worker')
    expect(now).toBeNumber()
    expect(now).not.toBe(pid)
  }, 10_000)
  await eventually(async () => (await fetch(`${house.url}/health`)).status === 200, 10_000)
  expect((await post(name)).status).toBe(202)
  await runs(name)
  await Bun.sleep(TAKEN_OVER_MS)
}

test.skipIf(!compiler)('a job that is synced is accepted and runs', async () => {
  expect((await post('good')).status).toBe(202)
  await runs('good')
})

test.skipIf(!compiler)('a job whose sync fails does not run and says so, whoever dies', async () => {
  await fail(1)
  const refused = await post('lost', { 'x-weir-webhook': 'http://127.0.0.1:9/hook' })
  expect([refused.status, refused.error!.code, refused.retry_after]).toEqual([503, 'journal_full', '5'])
  expect(refused.error!.message).toBe('The job could not be brought to the disk: it is not accepted and does not run.')
  await eventually(() => expect(house.logged('jobs_not_on_disk')).toHaveLength(1))
  await workerDies('after')
  expect(asked()).not.toContain('lost')
})

test.skipIf(!compiler)('where it cannot be taken back on the disk either, that is what it says', async () => {
  await fail(1_000)
  const refused = await post('doubtful')
  expect([refused.status, refused.error!.code]).toEqual([503, 'journal_full'])
  expect(refused.error!.message).toContain('but may run all the same if the power fails before the disk works again')
  await fail(0)
  // The death of a process alone takes nothing back of what was written.
  await workerDies('later')
  expect(asked()).not.toContain('doubtful')
})

test.skipIf(!compiler)('a house that is started again runs none of them', async () => {
  expect(await house.stop()).toBe(0)
  house = await startHouse(settings())
  expect((await post('again')).status).toBe(202)
  await runs('again')
  await Bun.sleep(TAKEN_OVER_MS)
  expect(asked()).toEqual(['good', 'after', 'later', 'again'])
})
