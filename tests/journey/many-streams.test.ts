import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import type { Socket } from 'bun'
import { requestBytes } from '../kit/raw-client.ts'
import { CH, D, DONE, end, script, sse200, until, US } from '../kit/script.ts'
import { eventually, gate } from '../kit/wait.ts'
import { newCast } from './cast.ts'

setDefaultTimeout(60_000)

/** 2,000 streams at once on one worker: none cut. All of them are open before the first may end. */

const STREAMS = 2_000
const WAVE = 200
const all_open = gate()
const cast = newCast({ house: { workers: 1 } })
const part = cast.part(
  [
    script(
      sse200,
      D(CH({ role: 'assistant', content: 'a' })),
      D(CH({ content: 'b' })),
      until(all_open.opened),
      Array.from({ length: 5 }, () => D(CH({ content: 'c' }))),
      D(CH({}, 'stop')),
      D(US(5, 7)),
      DONE,
      end,
    ),
  ],
  { engine: { capacity: STREAMS } },
)

beforeAll(cast.open)
afterAll(async () => {
  all_open.open()
  await cast.close()
})

type Client = { text: string; socket: Socket<Client> | undefined; error: string }

const clients: Client[] = []
const handlers = {
  open(socket: Socket<Client>) {
    socket.data.socket = socket
    const body = { model: part.model, stream: true, messages: [{ role: 'user', content: 'hi' }] }
    socket.write(requestBytes('POST', '/v1/chat/completions', { authorization: `Bearer ${cast.key()}` }, body))
  },
  data: (socket: Socket<Client>, bytes: Buffer) => void (socket.data.text += bytes.toString('latin1')),
  close: (socket: Socket<Client>) => void (socket.data.error ||= 'closed'),
  error: (socket: Socket<Client>, error: Error) => void (socket.data.error ||= String(error)),
}

const rss = (): number => {
  const [pid] = cast.house().pids('worker')
  return Number(readFileSync(`/proc/${pid}/statm`, 'utf8').split(' ')[1]) * 4096
}

test(`${STREAMS} streams at once, none cut`, async () => {
  const before = rss()
  for (let wave = 0; wave < STREAMS; wave += WAVE) {
    for (let index = 0; index < WAVE; index++) {
      const client: Client = { text: '', socket: undefined, error: '' }
      clients.push(client)
      Bun.connect({ hostname: '127.0.0.1', port: cast.house().port, data: client, socket: handlers }).catch(
        (cause: unknown) => void (client.error = String(cause)),
      )
    }
    await eventually(() => {
      const waiting = clients.filter((client) => !client.text.includes('"b"'))
      expect(waiting.map((client) => client.error || client.text)).toEqual([])
      return true
    }, 20_000)
  }
  const engine = part.engines[0]!
  expect(engine.calls).toEqual({ now: STREAMS, max: STREAMS })
  const held = rss() - before
  process.stderr.write(`${STREAMS} open streams: ${(held / 1024 / STREAMS).toFixed(1)} KiB a stream in the worker\n`)
  expect(held / STREAMS).toBeLessThan(64 * 1024)
  all_open.open()
  await eventually(() => {
    expect(clients.filter((client) => !client.text.endsWith('\r\n0\r\n\r\n')).length).toBe(0)
    return true
  }, 20_000)
  const whole = clients.filter(
    ({ text }) =>
      text.startsWith('HTTP/1.1 200') && text.split('"c"').length === 6 && text.includes('data: [DONE]\n\n'),
  )
  expect(whole).toHaveLength(STREAMS)
  for (const { socket } of clients) socket?.end()
  const rows = await cast.house().rowsReach(STREAMS, 20_000)
  expect(rows.filter((row) => row['ending'] === 'whole' && row['completion_tokens'] === 7)).toHaveLength(STREAMS)
  expect(await cast.quiet()).toBe(true)
})
