import { expect, setDefaultTimeout, test } from 'bun:test'
import { type CallRow, startHouse, type TestHouse } from '../kit/house.ts'
import { eventually, tempFolder } from '../kit/wait.ts'

setDefaultTimeout(60_000)

/** Jobs over the death of workers and of the whole house: none is lost, none is charged for a whole answer twice. */

const JOBS = 60
type Job = Readonly<Record<string, any>>

const openEngine = (delay_ms: number) => {
  const answered = new Map<string, number>()
  const engine = Bun.serve({
    port: 0,
    hostname: '127.0.0.1',
    async fetch(request) {
      if (request.method !== 'POST') return new Response('OK')
      const { user } = (await request.json()) as { user: string }
      await Bun.sleep(delay_ms)
      answered.set(user, (answered.get(user) ?? 0) + 1)
      const usage = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 }
      const choices = [{ index: 0, message: { role: 'assistant', content: user }, finish_reason: 'stop' }]
      return Response.json({ id: 'c', object: 'chat.completion', choices, usage })
    },
  })
  return { url: `http://127.0.0.1:${engine.port}`, answered, stop: () => engine.stop(true) }
}

const config = (url: string) => ({
  engines: [{ name: 'e', url: `${url}/v1`, capacity: 8, probe_ms: 0, scrape_ms: 0 }],
  models: [{ name: 'm', targets: [{ engine: 'e' }], price: { input: '1', output: '1' } }],
  tenants: [{ name: 'acme' }],
  jobs: { attempts_max: 20 },
})

const acceptAll = async (house: TestHouse, key: string): Promise<string[]> =>
  Promise.all(
    Array.from({ length: JOBS }, async (_, nth) => {
      const body = { model: 'm', user: `u${nth}`, messages: [{ role: 'user', content: 'hi' }] }
      const answer = await house.post('/v1/chat/completions', body, key, { prefer: 'respond-async' })
      expect(answer.status).toBe(202)
      return ((await answer.json()) as Job)['id'] as string
    }),
  )

const show = async (house: TestHouse, key: string, id: string): Promise<Job> => {
  const answer = await fetch(`${house.url}/v1/jobs/${id}`, { headers: { authorization: `Bearer ${key}` } })
  return { http_status: answer.status, ...((await answer.json()) as Job) }
}

/** Every job is done with its own answer; every answer that a client can get is in the ledger as whole exactly once. */
const expectAllDone = async (house: TestHouse, key: string, ids: readonly string[]): Promise<void> => {
  const jobs = await eventually(async () => {
    const all = await Promise.all(ids.map((id) => show(house, key, id)))
    const open = all.filter((job) => job['status'] !== 'done')
    if (open.length > 0) throw new Error(`${open.length} not done, such as ${JSON.stringify(open[0])}`)
    return all
  }, 20_000)
  expect(jobs.map((job) => job['answer'].choices[0].message.content)).toEqual(ids.map((_, nth) => `u${nth}`))
  await eventually(() => {
    const rows: CallRow[] = house.rows()
    const whole = rows.filter((row) => row['ending'] === 'whole' && String(row['endpoint']).startsWith('/v1/'))
    const charged = new Map<string, number>()
    for (const row of whole) charged.set(String(row['end_user']), (charged.get(String(row['end_user'])) ?? 0) + 1)
    // A process that dies between the answer on the disk and the ending leaves the row `recovered`, so never more than one.
    for (const [user, times] of charged) expect([user, times]).toEqual([user, 1])
    const users = new Set(rows.map((row) => row['end_user']))
    expect(ids.filter((_, nth) => !users.has(`u${nth}`))).toEqual([])
  }, 10_000)
}

test('a worker that is killed over and over leaves its jobs to the others', async () => {
  const engine = openEngine(30)
  await using house = await startHouse({ workers: 2, config: config(engine.url) })
  const key = await house.key('acme')
  const ids = await acceptAll(house, key)
  for (let round = 0; round < 3; round++) {
    const [pid] = house.pids('worker')
    process.kill(pid!, 'SIGKILL')
    await Bun.sleep(250)
  }
  await expectAllDone(house, key, ids)
  await engine.stop()
})

test('a house that is killed, and one that is stopped, goes on with its jobs when it is started again', async () => {
  using folder = tempFolder('weir-jobs')
  const engine = openEngine(60)
  const settings = { workers: 2, config: config(engine.url), data: `${folder.path}/data` }
  let ids: string[]
  let key: string
  {
    await using house = await startHouse(settings)
    key = await house.key('acme')
    ids = await acceptAll(house, key)
    await Bun.sleep(100)
    await house.killTree()
  }
  {
    await using house = await startHouse(settings)
    await eventually(() => engine.answered.size > 12, 10_000)
    expect(await house.stop()).toBe(0)
  }
  await using house = await startHouse(settings)
  await expectAllDone(house, key, ids)
  // What was answered before the stop was not asked again: only the calls that the kill broke off were.
  const twice = [...engine.answered.values()].filter((times) => times > 1).length
  expect(twice).toBeLessThanOrEqual(16)
  await engine.stop()
})
