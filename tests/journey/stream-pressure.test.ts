import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { muteServer, type MuteServer } from '../contract/mute-server.ts'
import { requestBytes } from '../kit/raw-client.ts'
import { bytesOf, CH, D, DONE, end, forever, head, script, sse200, US, type Script } from '../kit/script.ts'
import { eventually } from '../kit/wait.ts'
import { newCast, type Part } from './cast.ts'

setDefaultTimeout(60_000)

/** Clients and engines of different speed: memory stays bounded, and deadlines hold for a client that does not read. */

const MIB = 1024 * 1024
const cast = newCast()
/** Events without end, with the end of the connection as their only framing, so that they need not be chunked. */
const flood = (mib: number): Script =>
  script(
    head(200, { 'content-type': 'text/event-stream' }, 'close'),
    forever(
      Buffer.concat(Array.from({ length: 64 }, () => bytesOf(D(CH({ content: 'x'.repeat(800) }))))),
      0,
      mib * MIB,
    ),
  )
const slow = cast.part([flood(200)])
const stalled = Array.from({ length: 12 }, () => cast.part([flood(100)]))
const overdue = cast.part([flood(100)], {
  timeouts: {
    connect_ms: 1_000,
    first_byte_ms: 1_000,
    first_token_ms: 1_000,
    between_tokens_ms: 1_000,
    total_ms: 1_500,
  },
})
const large = cast.part([
  script(
    sse200,
    Array.from({ length: 40 }, () => D(CH({ content: 'y'.repeat(MIB) }))),
    D(CH({}, 'stop')),
    D(US(1, 40)),
    DONE,
    end,
  ),
])
let mute: MuteServer
let unreachable: Part

beforeAll(async () => {
  mute = await muteServer()
  unreachable = cast.part([], { urls: [`${mute.origin}/v1`], timeouts: { connect_ms: 300, first_byte_ms: 20_000 } })
  await cast.open()
})
afterAll(async () => {
  await cast.close()
  await mute[Symbol.asyncDispose]()
})

const rss = (): number => {
  const [pid] = cast.house().pids('worker')
  return Number(readFileSync(`/proc/${pid}/statm`, 'utf8').split(' ')[1]) * 4096
}

/** A client that reads only what it is told to. */
const reader = async (part: Part): Promise<Socket> => {
  const socket = connect({ port: cast.house().port, host: '127.0.0.1' })
  socket.on('error', () => socket.destroy())
  // A listener keeps the socket in paused mode.
  socket.on('readable', () => undefined)
  const body = { model: part.model, stream: true, messages: [{ role: 'user', content: 'hi' }] }
  socket.write(requestBytes('POST', '/v1/chat/completions', { authorization: `Bearer ${cast.key()}` }, body))
  await eventually(() => socket.readableLength > 0, 5_000)
  return socket
}

/** Waits until the engine could not send anything for a while; answers how much it had sent. */
const blocked = (part: Part): Promise<number> => {
  const sent = () => part.engines[0]!.requests[0]!.answer_bytes
  return eventually(async () => {
    const before = sent()
    await Bun.sleep(300)
    expect(sent()).toBe(before)
    return before
  }, 15_000)
}

test('a client that reads 1 KB/s from an engine of 200 MB: the engine waits, memory stays', async () => {
  const before = rss()
  const socket = await reader(slow)
  await blocked(slow)
  for (let turn = 0; turn < 20; turn++) {
    socket.read(100)
    await Bun.sleep(100)
  }
  expect(await blocked(slow)).toBeLessThan(32 * MIB)
  expect(rss() - before).toBeLessThan(40 * MIB)
  socket.destroy()
  await slow.engines[0]!.hangUp(0)
  expect(await cast.rowsOf(slow, 1)).toMatchObject([{ ending: 'cut_by_client', usage_source: 'estimated' }])
})

test('a dozen clients that read nothing: what each holds is bounded', async () => {
  const before = rss()
  const sockets = await Promise.all(stalled.map(reader))
  const sent = await Promise.all(stalled.map(blocked))
  expect(Math.max(...sent)).toBeLessThan(32 * MIB)
  expect(rss() - before).toBeLessThan(12 * 8 * MIB)
  for (const socket of sockets) socket.destroy()
  await cast.quiet()
})

test('the deadline of the whole call ends it although its client reads nothing', async () => {
  const socket = await reader(overdue)
  const [row] = await cast.rowsOf(overdue, 1)
  expect(row).toMatchObject({ ending: 'cut_by_engine', failure: 'deadline_passed', status: 200 })
  expect((await overdue.engines[0]!.hangUp(0)).by).toBe('peer')
  await cast.quiet()
  expect(await cast.health(overdue.names[0]!)).toMatchObject({ health: 'healthy' })
  socket.destroy()
})

test('large events go through whole and leave nothing behind', async () => {
  await cast.stream(large)
  const before = rss()
  for (let turn = 0; turn < 3; turn++) {
    const got = await cast.stream(large)
    expect(got.text()).toHaveLength(40 * MIB)
    expect(got.done).toBe(true)
  }
  expect(rss() - before).toBeLessThan(120 * MIB)
})

test('an engine that accepts no connection: the limit for connecting holds', async () => {
  const began = performance.now()
  const response = await cast.post(unreachable, { stream: true })
  expect(response.status).toBe(502)
  expect(((await response.json()) as any).error.code).toBe('engine_unreachable')
  expect(performance.now() - began).toBeLessThan(10_000)
  expect(await cast.row(response.headers.get('x-weir-call-id')!)).toMatchObject({ failure: 'engine_unreachable' })
})

test('nothing stays in flight', async () => {
  expect(await cast.quiet()).toBe(true)
})
