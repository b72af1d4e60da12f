import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import type { HostileEngine } from '../kit/hostile-engine.ts'
import { startHostileEngine } from '../kit/hostile-engine.ts'
import { startHouse, type TestHouse } from '../kit/house.ts'
import { connectRaw, type RawClient, requestBytes } from '../kit/raw-client.ts'
import { bytesOf, CH, D, DONE, end, script, sse200, type Step, until, US, wait } from '../kit/script.ts'
import { readSse } from '../kit/sse-read.ts'
import { eventually, gate } from '../kit/wait.ts'

setDefaultTimeout(60_000)

/** CASES C32: the worker that is killed takes its own streams with it, and nothing else. */

const STREAMS = 60
/** Pieces that flow while the worker dies. */
const FLOWING = 25

let engine: HostileEngine
let house: TestHouse
let key: string
let killed = gate()

/** What the engine writes for a client: no two answers are the same. */
const head = (mark: string): Step[] => [D(CH({ role: 'assistant', content: `for ${mark}: ` }))]
const flow = (mark: string): Step[] => Array.from({ length: FLOWING }, (_, at) => D(CH({ content: `${mark}.${at} ` })))
const tail = (): Step[] => [D(CH({ content: 'end' })), D(CH({}, 'stop')), D(US(9, FLOWING + 2)), DONE]
const answerOf = (mark: string): Buffer => Buffer.concat([...head(mark), ...flow(mark), ...tail()].map(bytesOf))

beforeAll(async () => {
  engine = startHostileEngine({
    answers: (request) => {
      const mark = String(request.json().user)
      const flowing = flow(mark).map((piece) => [piece, wait(15)])
      return script(sse200, head(mark), flowing, until(killed.opened), tail(), end)
    },
  })
  house = await startHouse({
    workers: 2,
    config: {
      engines: [{ name: 'e', url: engine.url, capacity: 4 * STREAMS, probe_ms: 0, scrape_ms: 0 }],
      models: [{ name: 'm', targets: [{ engine: 'e' }], price: { input: '1', output: '2' } }],
      tenants: [{ name: 'acme' }],
    },
  })
  key = await house.key('acme')
})

afterAll(async () => {
  killed.open()
  await house[Symbol.asyncDispose]()
  await engine.stop()
})

const ask = async (client: RawClient, mark: string): Promise<void> => {
  const body = {
    model: 'm',
    user: mark,
    stream: true,
    stream_options: { include_usage: true },
    messages: [{ role: 'user', content: 'hi' }],
  }
  await client.send(requestBytes('POST', '/v1/chat/completions', { authorization: `Bearer ${key}` }, body))
}

test(`C32: of ${STREAMS} streams over two workers, kill -9 of one breaks its own; the other's are byte-whole`, async () => {
  const marks = Array.from({ length: STREAMS }, (_, at) => `s${at}`)
  const clients = await Promise.all(marks.map(() => connectRaw(house.port)))
  await Promise.all(clients.map((client, at) => ask(client, marks[at]!)))
  const answers = clients.map((client) => client.response({ within_ms: 20_000 }))
  await eventually(() => {
    expect(engine.calls.now).toBe(STREAMS)
    // The head, the first event and some that flow are on their way to every client.
    for (const { answer_bytes } of engine.requests) expect(answer_bytes).toBeGreaterThan(1_000)
    return true
  }, 10_000)
  const [victim, survivor] = house.pids('worker')
  process.kill(victim!, 'SIGKILL')
  await eventually(() => !house.pids('worker').includes(victim!), 5_000)
  killed.open()

  const got = await Promise.all(
    answers.map(async (answer, at) => {
      const read = await answer
      return { mark: marks[at]!, client: clients[at]!, read, sse: await readSse(read) }
    }),
  )
  const whole = got.filter(({ read }) => read.ended === 'whole')
  const broken = got.filter(({ read }) => read.ended !== 'whole')
  // The kernel spreads connections as it likes; sixty never go to one process.
  expect(Math.min(whole.length, broken.length)).toBeGreaterThan(0)
  for (const { mark, read } of whole) expect(read.body.toString()).toBe(answerOf(mark).toString())
  for (const { mark, read, sse } of broken) {
    expect(['cut', 'reset']).toContain(read.ended)
    expect(read.status).toBe(200)
    expect([sse.done, sse.finish(), sse.usage()]).toEqual([false, [], undefined])
    // Half an answer, but no wrong byte in it.
    expect(answerOf(mark).subarray(0, read.body.length).equals(read.body)).toBe(true)
    expect(read.body.length).toBeGreaterThan(0)
  }

  // Every call has its row: the dead worker's in one life of a worker, the others in another.
  const rows = await house.rowsReach(STREAMS, 10_000)
  expect(rows).toHaveLength(STREAMS)
  const rowOf = new Map(rows.map((row) => [row['end_user'], row]))
  const lives = (list: typeof got) => new Set(list.map(({ mark }) => rowOf.get(mark)!['series']))
  expect([lives(broken).size, lives(whole).size]).toEqual([1, 1])
  expect(lives(broken)).not.toEqual(lives(whole))
  for (const { mark, read } of whole)
    expect(rowOf.get(mark)).toMatchObject({
      id: read.header('x-weir-call-id')!,
      ending: 'whole',
      prompt_tokens: 9,
      completion_tokens: FLOWING + 2,
      usage_source: 'engine',
    })
  for (const { mark, read } of broken)
    expect(rowOf.get(mark)).toMatchObject({
      id: read.header('x-weir-call-id')!,
      ending: 'recovered',
      usage_source: 'estimated',
    })

  // Connections of the other worker go on; those of the dead one end, and its place is taken again.
  killed = gate()
  killed.open()
  const again = await Promise.all(
    whole.map(async ({ client, mark }) => {
      await ask(client, `${mark}-again`)
      return (await client.response({ within_ms: 10_000 })).ended
    }),
  )
  expect(again).toEqual(whole.map(() => 'whole'))
  await eventually(() => expect(house.pids('worker')).toHaveLength(2), 5_000)
  expect(house.pids('worker')).toContain(survivor!)
  for (const { client } of got) client.close()
  expect(await house.rowsReach(STREAMS + whole.length, 5_000)).toHaveLength(STREAMS + whole.length)
  process.stderr.write(`  ${whole.length} whole, ${broken.length} broken\n`)
})
