/**
 * An engine that costs next to nothing, so that the gateway is what is measured: fixed bytes over raw sockets. As a
 * process: `bun bench/kit/engine.ts '{"delay_ms":0,"gap_ms":0,"events":64}'`.
 *
 * A POST is answered with 380 bytes of JSON after `delay_ms`, or, if its body says `"stream":true`, with `events` events,
 * each in a write of its own, `gap_ms` apart (0: in the next turn of the loop). `GET /stats` tells how many calls there
 * were, how many are running and the most there were at once, since the start or the last `GET /stats/anew`; any other GET is answered `OK`.
 */
const { delay_ms = 0, gap_ms = 0, events: count = 64 } = JSON.parse(process.argv[2] ?? '{}') as EngineSettings

export type EngineSettings = { readonly delay_ms?: number; readonly gap_ms?: number; readonly events?: number }

const usage = { prompt_tokens: 12, completion_tokens: 16, total_tokens: 28 }
const head = (status: string, type: string, length: string) =>
  `HTTP/1.1 ${status}\r\ncontent-type: ${type}\r\n${length}\r\n\r\n`
const whole = (type: string, body: string) =>
  Buffer.from(head('200 OK', type, `content-length: ${Buffer.byteLength(body)}`) + body)
const chunk = (text: string) => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`

const content = 'A weir is a low dam that lets a river through. '.repeat(3).slice(0, 120)
const json = whole(
  'application/json',
  JSON.stringify({
    id: 'chatcmpl-bench',
    object: 'chat.completion',
    created: 1700000000,
    model: 'bench',
    choices: [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }],
    usage,
  }).padEnd(380),
)
const ok = whole('text/plain', 'OK')
const stream_head = Buffer.from(head('200 OK', 'text/event-stream', 'transfer-encoding: chunked'))
const event = (value: unknown) => Buffer.from(chunk(`data: ${JSON.stringify(value)}\n\n`))
const envelope = { id: 'chatcmpl-bench', object: 'chat.completion.chunk', created: 1700000000, model: 'bench' }
const word = event({ ...envelope, choices: [{ index: 0, delta: { content: 'wordy ' }, finish_reason: null }] })
const stop = event({ ...envelope, choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] })
const last = event({ ...envelope, choices: [], usage })
const done = Buffer.from(`${chunk('data: [DONE]\n\n')}0\r\n\r\n`)

let calls = 0
let running = 0
let running_max = 0

/** One connection: bytes of a request that is not whole yet, and whether a call is being answered. */
type State = { waiting: Buffer; running: boolean }
type Socket = import('bun').Socket<State>

const HEAD_END = Buffer.from('\r\n\r\n')
const LENGTH = /\r\ncontent-length: *(\d+)/i
const STREAM = Buffer.from('"stream":true')

const over = (socket: Socket): void => {
  if (!socket.data.running) return
  socket.data.running = false
  running--
}

const send = (socket: Socket, at: number): void => {
  if (!socket.data.running) return
  if (at === count) {
    socket.write(done)
    over(socket)
    return
  }
  socket.write(at < count - 2 ? word : at === count - 2 ? stop : last)
  if (gap_ms > 0) setTimeout(send, gap_ms, socket, at + 1)
  else setImmediate(send, socket, at + 1)
}

const answer = (socket: Socket, streams: boolean): void => {
  if (!socket.data.running) return
  if (streams) {
    socket.write(stream_head)
    send(socket, 0)
    return
  }
  over(socket)
  socket.write(json)
}

const arrived = (socket: Socket, request_head: string, body: Buffer): void => {
  if (request_head.startsWith('GET /stats')) {
    if (request_head.startsWith('GET /stats/anew')) running_max = running
    socket.write(whole('application/json', JSON.stringify({ calls, running, running_max })))
  } else if (!request_head.startsWith('POST')) socket.write(ok)
  else {
    calls++
    running_max = Math.max(running_max, ++running)
    socket.data.running = true
    const streams = body.includes(STREAM)
    if (delay_ms > 0) setTimeout(answer, delay_ms, socket, streams)
    else answer(socket, streams)
  }
}

const listener = Bun.listen<State>({
  hostname: '127.0.0.1',
  port: 0,
  socket: {
    open(socket) {
      socket.data = { waiting: Buffer.alloc(0), running: false }
      socket.setNoDelay(true)
    },
    data(socket, bytes) {
      const { data } = socket
      data.waiting = data.waiting.length === 0 ? Buffer.from(bytes) : Buffer.concat([data.waiting, bytes])
      const end = data.waiting.indexOf(HEAD_END)
      if (end < 0) return
      const request_head = data.waiting.toString('latin1', 0, end)
      const whole_bytes = end + 4 + Number(LENGTH.exec(request_head)?.[1] ?? 0)
      if (data.waiting.length < whole_bytes) return
      const body = data.waiting.subarray(end + 4, whole_bytes)
      data.waiting = data.waiting.subarray(whole_bytes)
      arrived(socket, request_head, body)
    },
    close: over,
    error: over,
  },
})
process.stdout.write(`engine ready port=${listener.port}\n`)
