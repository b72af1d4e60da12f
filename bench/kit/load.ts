/**
 * A load generator over raw sockets, as a process of its own: `bun bench/kit/load.ts SETTINGS`, answers one line of JSON.
 * Each connection sends a request, reads the answer to its end, and sends the next while there is time.
 */
import type { LoadRun, LoadSettings } from './streams.ts'

const settings = JSON.parse(process.argv[2]!) as LoadSettings
const { port, connections, seconds, spread_ms, calls_each = Number.POSITIVE_INFINITY } = settings
const request = Buffer.from(settings.request)
const EVENT = Buffer.from('data: ')
const HEAD_END = Buffer.from('\r\n\r\n')

const first_ms: number[] = []
const whole_ms: number[] = []
const by_status: Record<string, number> = {}
let events = 0
let bytes_in = 0
let errors = 0
let open = 0
let open_max = 0
let left = connections

/** The answer that a connection is reading. */
type State = {
  sent_tick_ms: number
  calls: number
  answering: boolean
  body_seen: boolean
  /** Body bytes to come; undefined for chunks. */
  body_left: number | undefined
  head: Buffer
  tail: string
}
type Socket = import('bun').Socket<State>

const started = performance.now()
const until = started + seconds * 1000

const ask = (socket: Socket): void => {
  const { data } = socket
  data.sent_tick_ms = performance.now()
  data.answering = true
  data.body_seen = false
  data.body_left = undefined
  data.head = Buffer.alloc(0)
  data.tail = ''
  open_max = Math.max(open_max, ++open)
  socket.write(request)
}

const body = (socket: Socket, bytes: Buffer): void => {
  const { data } = socket
  if (bytes.length === 0) return
  if (!data.body_seen) {
    data.body_seen = true
    first_ms.push(performance.now() - data.sent_tick_ms)
  }
  for (let at = bytes.indexOf(EVENT); at >= 0; at = bytes.indexOf(EVENT, at + 6)) events++
  if (data.body_left !== undefined) data.body_left -= bytes.length
  else data.tail = (data.tail + bytes.toString('latin1', Math.max(0, bytes.length - 7))).slice(-7)
  if (data.body_left === 0 || data.tail === '\r\n0\r\n\r\n') ended(socket)
}

const ended = (socket: Socket): void => {
  const { data } = socket
  data.answering = false
  open--
  data.calls++
  whole_ms.push(performance.now() - data.sent_tick_ms)
  if (performance.now() < until && data.calls < calls_each) ask(socket)
  else socket.end()
}

const connect = (): void => {
  const state: State = {
    ...{ sent_tick_ms: 0, calls: 0, answering: false, body_seen: false, body_left: undefined },
    ...{ head: Buffer.alloc(0), tail: '' },
  }
  const gone = (): void => {
    if (state.answering) {
      errors++
      open--
    }
    state.answering = false
    if (--left === 0) finish()
  }
  Bun.connect<State>({
    hostname: '127.0.0.1',
    port,
    data: state,
    socket: {
      open(socket) {
        socket.setNoDelay(true)
        ask(socket)
      },
      data(socket, chunk) {
        const { data } = socket
        bytes_in += chunk.length
        if (data.body_seen || data.body_left !== undefined) return body(socket, chunk)
        data.head = data.head.length === 0 ? Buffer.from(chunk) : Buffer.concat([data.head, chunk])
        const end = data.head.indexOf(HEAD_END)
        if (end < 0) return
        const head = data.head.toString('latin1', 0, end)
        const status = head.slice(9, 12)
        by_status[status] = (by_status[status] ?? 0) + 1
        const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1]
        if (length !== undefined) data.body_left = Number(length)
        else data.tail = '\r\n'
        body(socket, data.head.subarray(end + 4))
      },
      close: gone,
      connectError: () => {
        errors++
        gone()
      },
    },
  }).catch(() => undefined)
}

const quantiles = (values: number[]) => {
  const sorted = Float64Array.from(values).toSorted()
  const at = (share: number) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0
  return { p50: at(0.5), p99: at(0.99), max: at(1) }
}

const finish = (): void => {
  const { user, system } = process.cpuUsage()
  const seconds_taken = (performance.now() - started) / 1000
  const run: LoadRun = {
    ...{ calls: whole_ms.length, errors, by_status, events, bytes_in, open_max, seconds_taken },
    ...{ first_ms: quantiles(first_ms), whole_ms: quantiles(whole_ms) },
    client_cores: (user + system) / 1e6 / seconds_taken,
  }
  process.stdout.write(`${JSON.stringify(run)}\n`, () => process.exit(0))
}

for (let nth = 0; nth < connections; nth++) setTimeout(connect, (nth * spread_ms) / connections)
