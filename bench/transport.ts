import { openFetchTransport } from '../src/engines/fetch-transport.ts'
import { openSocketTransport } from '../src/engines/socket-transport.ts'
import { type Transport, TransportFailure } from '../src/engines/transport.ts'

export type Figure = { value: number; unit: string; min: number; max: number; n: number }

const REQUEST = Buffer.from(JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'x'.repeat(200) }] }))
const DEADLINES = { connect_ms: 5_000, first_byte_ms: 60_000 }
const IN_FLIGHT = 50

/** A bare loopback engine in a process of its own: one fixed answer to every arrival, as cheap as sockets can be. */
const ENGINE = `
  const body = JSON.stringify({ id: 'c', choices: [{ message: { content: 'y'.repeat(300) } }], usage: { total_tokens: 9 } })
  const json = 'HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\ncontent-length: ' + body.length + '\\r\\n\\r\\n' + body
  const event = 'data: {"choices":[{"delta":{"content":"word"}}]}\\n\\n'
  const chunk = event.length.toString(16) + '\\r\\n' + event + '\\r\\n'
  const open = 'HTTP/1.1 200 OK\\r\\ncontent-type: text/event-stream\\r\\ntransfer-encoding: chunked\\r\\n\\r\\n'
  const answer = Buffer.from(json)
  const stream = (socket, left) => {
    if (left === 0) return void socket.write('0\\r\\n\\r\\n')
    socket.write(chunk)
    setImmediate(stream, socket, left - 1)
  }
  const listener = Bun.listen({ hostname: '127.0.0.1', port: 0, socket: {
    open: (socket) => void socket.setNoDelay(true),
    data: (socket, bytes) => {
      if (bytes[6] !== 115) return void socket.write(answer)
      socket.write(open)
      stream(socket, 100)
    },
  } })
  require('node:fs').writeSync(1, String(listener.port) + '\\n')
`

const startEngine = async () => {
  const child = Bun.spawn([process.execPath, '-e', ENGINE], { stdout: 'pipe', stderr: 'inherit' })
  const { value } = await child.stdout.getReader().read()
  return {
    origin: `http://127.0.0.1:${Buffer.from(value ?? [])
      .toString()
      .trim()}`,
    stop: () => child.kill(),
  }
}

const exchange = async (transport: Transport, url: string): Promise<number> => {
  const request = { method: 'POST', url, headers: [['content-type', 'application/json']], body: [REQUEST] } as const
  const response = await transport.send(request, DEADLINES).head
  if (response instanceof TransportFailure) throw new Error(response.kind, { cause: response.cause })
  for (let pieces = 0; ; pieces++) {
    const piece = await response.read()
    if (piece instanceof TransportFailure) throw new Error(piece.kind, { cause: piece.cause })
    if (piece === null) return pieces
  }
}

/** CPU of this process per call, and calls a second, over so many seconds with 50 calls in flight. */
const measure = async (transport: Transport, url: string, seconds: number) => {
  let calls = 0
  let pieces = 0
  const cpu_from = process.cpuUsage()
  const from_ms = performance.now()
  const until_ms = from_ms + seconds * 1_000
  const caller = async () => {
    while (performance.now() < until_ms) {
      const came = await exchange(transport, url)
      pieces += came
      calls += 1
    }
  }
  await Promise.all(Array.from({ length: IN_FLIGHT }, caller))
  const { user, system } = process.cpuUsage(cpu_from)
  return {
    cpu_us: (user + system) / calls,
    per_s: (calls / (performance.now() - from_ms)) * 1_000,
    pieces: pieces / calls,
  }
}

/** Fifty clients on raw sockets in a process of its own, each with the next request once its answer came; how many calls. */
const CLIENTS = `
  const [port, seconds, body] = process.argv.slice(-3)
  const request = 'POST /json HTTP/1.1\\r\\nhost: x\\r\\ncontent-type: application/json\\r\\ncontent-length: ' + body.length + '\\r\\n\\r\\n' + body
  const until_ms = performance.now() + 1000 * seconds
  let calls = 0
  let left = ${IN_FLIGHT}
  const done = () => { if (--left === 0) { console.log(calls); process.exit() } }
  for (let n = 0; n < ${IN_FLIGHT}; n++) Bun.connect({ hostname: '127.0.0.1', port: Number(port), socket: {
    open: (socket) => { socket.setNoDelay(true); socket.write(request) },
    data: (socket) => { calls++; if (performance.now() < until_ms) socket.write(request); else { socket.end(); done() } },
  } })
`

/** CPU of this process per call when it is a bare proxy: `Bun.serve`, the transport, the answer in one piece. */
const proxied = async (transport: Transport, url: string, seconds: number): Promise<number> => {
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    async fetch(request) {
      const body = [new Uint8Array(await request.arrayBuffer())]
      const headers = [['content-type', 'application/json']] as const
      const answer = await transport.send({ method: 'POST', url, headers, body }, DEADLINES).head
      if (answer instanceof TransportFailure) return new Response(answer.kind, { status: 502 })
      const pieces: Uint8Array[] = []
      for (let piece = await answer.read(); piece instanceof Uint8Array; piece = await answer.read()) pieces.push(piece)
      const whole = pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces)
      return new Response(whole as Uint8Array<ArrayBuffer>, {
        status: answer.status,
        headers: { 'content-type': 'application/json' },
      })
    },
  })
  const cpu_from = process.cpuUsage()
  const clients = Bun.spawn(
    [process.execPath, '-e', CLIENTS, String(server.port), String(seconds), REQUEST.toString()],
    { stdout: 'pipe' },
  )
  const calls = Number(await new Response(clients.stdout).text())
  const { user, system } = process.cpuUsage(cpu_from)
  await server.stop(true)
  return (user + system) / calls
}

const median = (values: number[]) => values.toSorted((a, b) => a - b)[values.length >> 1]!

/**
 * CPU per call of both transports, alternating, against a bare engine: a small JSON answer, and a stream of 100 events.
 * `*_json` and `*_stream` are the client side alone; `*_proxied` has a bare `Bun.serve` in front, as a gateway would.
 */
export const transport = async ({ seconds = 1, runs = 5 } = {}) => {
  const engine = await startEngine()
  const idle = { idle_ms: 4_000, sockets_max: 256 }
  const transports = { fetch: openFetchTransport(idle), sockets: openSocketTransport(idle) }
  const samples = new Map<string, { unit: string; values: number[] }>()
  const note = (name: string, unit: string, value: number) => {
    const sample = samples.get(name) ?? { unit, values: [] }
    sample.values.push(value)
    samples.set(name, sample)
  }
  const shapes = { json: `${engine.origin}/json`, stream: `${engine.origin}/stream` }
  for (let run = -1; run < runs; run++) {
    for (const [shape, url] of Object.entries(shapes)) {
      const cpu: Record<string, number> = {}
      for (const [name, one] of Object.entries(transports)) {
        const found = await measure(one, url, run < 0 ? 0.3 : seconds)
        if (run < 0) continue
        cpu[name] = found.cpu_us
        note(`${name}_${shape}_cpu_us`, 'us/call', found.cpu_us)
        note(`${name}_${shape}_calls_per_s`, '1/s', found.per_s)
        if (shape === 'stream') note(`${name}_stream_pieces`, 'pieces/call', found.pieces)
      }
      if (run >= 0) note(`${shape}_cpu_ratio`, 'sockets/fetch', cpu['sockets']! / cpu['fetch']!)
    }
    for (const [name, one] of Object.entries(transports)) {
      const cpu_us = await proxied(one, shapes.json, run < 0 ? 0.3 : seconds)
      if (run >= 0) note(`${name}_proxied_cpu_us`, 'us/call', cpu_us)
    }
  }
  for (const one of Object.values(transports)) one.close()
  engine.stop()
  const figures: Record<string, Figure> = {}
  for (const [name, { unit, values }] of samples)
    figures[name] = {
      value: median(values),
      unit,
      min: Math.min(...values),
      max: Math.max(...values),
      n: values.length,
    }
  return { figures, notes: [`${IN_FLIGHT} calls in flight, 300-byte requests, 370-byte answers, one client process`] }
}

if (import.meta.main) {
  const { figures } = await transport()
  const lines = Object.entries(figures).map(
    ([name, { value, unit, min, max }]) => `${name} ${value.toFixed(1)} ${unit} (${min.toFixed(1)}–${max.toFixed(1)})`,
  )
  process.stdout.write(`${lines.join('\n')}\n`)
}
