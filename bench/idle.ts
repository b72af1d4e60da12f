import type { Socket } from 'bun'
import { rssMb } from './kit/processes.ts'
import { type Options, type Result, Samples } from './kit/report.ts'
import { CHAT, type Served, startEngine, startWeir } from './kit/servers.ts'

const PATH = '/v1/chat/completions'
/** Clients that connect and call at the same time. */
const AT_ONCE = 100
/** Less than the worker's own idle limit of a minute, more than a sweep of its collector. */
const SETTLE_MS = 5_000

/** Memory of a worker that nobody called yet, and of one that keeps thousands of connections whose clients have gone quiet. */
export const idleBench = async ({ runs }: Options, clients = 12_000): Promise<Result> => {
  const samples = new Samples()
  for (let run = 0; run < Math.min(runs, 3); run++) {
    const engine = await startEngine()
    const weir = await startWeir(engine.url)
    const [worker] = weir.worker_pids()
    try {
      samples.take('idle_rss_mb', 'MB', rssMb(worker!))
      // As many calls on one connection, so that what compiled code and buffers take does not count for the clients.
      await callOver(weir, 1, clients)
      await Bun.sleep(SETTLE_MS)
      const before_mb = rssMb(worker!)
      const open = await callOver(weir, clients, 1)
      await Bun.sleep(SETTLE_MS)
      samples.take('called_rss_mb', 'MB', before_mb)
      samples.take('clients', 'connections', open.sockets.length)
      samples.take('clients_rss_mb', 'MB', rssMb(worker!))
      samples.take('clients_more_mb', 'MB', rssMb(worker!) - before_mb)
      samples.take('errors', 'calls', open.errors)
      for (const socket of open.sockets) socket.terminate()
    } finally {
      await weir.stop()
      await engine.stop()
    }
  }
  return {
    figures: samples.figures(),
    notes: [
      `one worker, a house anew for each run; clients_more_mb is what ${clients} kept-alive connections take, each after one governed call, beyond a worker that had as many calls on one`,
    ],
  }
}

/** Opens connections that make so many calls each, one after the other, and keeps them. */
const callOver = async (weir: Served, connections: number, calls_each: number) => {
  const { hostname, port, host } = new URL(weir.url)
  const lines = Object.entries({
    host,
    'content-type': 'application/json',
    'content-length': CHAT.length,
    ...weir.headers,
  })
  const request = `POST ${PATH} HTTP/1.1\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n${CHAT}`
  const sockets: Socket[] = []
  let errors = 0
  const one = async (): Promise<void> => {
    let answered = Promise.withResolvers<string>()
    const socket = await Bun.connect({
      hostname,
      port: Number(port),
      socket: {
        data: (_socket, bytes) => answered.resolve(bytes.toString('latin1', 0, 12)),
        close: () => answered.resolve('closed'),
      },
    })
    sockets.push(socket)
    for (let call = 0; call < calls_each; call++) {
      answered = Promise.withResolvers()
      socket.write(request)
      if ((await answered.promise) !== 'HTTP/1.1 200') errors++
    }
  }
  const worker = async (count: number): Promise<void> => {
    for (let nth = 0; nth < count; nth++) await one()
  }
  const at_once = Math.min(AT_ONCE, connections)
  await Promise.all(Array.from({ length: at_once }, () => worker(Math.floor(connections / at_once))))
  return { sockets, errors }
}
