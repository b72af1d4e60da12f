import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { rssMb } from './kit/processes.ts'
import { clientNote, type Options, type Result, Samples } from './kit/report.ts'
import { CHAT, type Served, startEngine, startNginx, startWeir } from './kit/servers.ts'
import { warm, wrk } from './kit/wrk.ts'
import { PEERS, startPeer } from './peers/peers.ts'

const PATH = '/v1/chat/completions'
const CONNECTIONS = 50

/**
 * Weir beside its peers: the same engine, load and body, in turn. Peers are installed by whoever runs this, into the folder
 * that BENCH_PEERS names, never into the project; those that are not there are named, with what would install them.
 */
export const peersBench = async ({ seconds, runs, warm_s }: Options): Promise<Result> => {
  const folder = process.env['BENCH_PEERS'] ?? mkdtempSync(join(tmpdir(), 'weir-peers-'))
  const engine = await startEngine()
  const samples = new Samples()
  const cores: number[] = []
  const notes: string[] = []
  const servers: (Served & { body?: string })[] = []
  try {
    servers.push(await startWeir(engine.url), await startNginx(engine.url))
    for (const peer of PEERS) {
      const started = await startPeer(peer, folder, engine.url, CHAT)
      if (typeof started === 'string') notes.push(`${peer.name}: ${started}`)
      else {
        servers.push(started)
        notes.push(`${peer.name}: governance ${peer.governance}`)
      }
    }
    for (const { body = CHAT, ...server } of servers) await warm(server, PATH, body, warm_s)
    for (let run = 0; run < runs; run++) {
      const alone = await wrk(engine, PATH, CHAT, 1, seconds)
      for (const { body = CHAT, ...server } of servers) {
        const name = server.name.replaceAll('-', '_')
        const one = await wrk(server, PATH, body, 1, seconds)
        const many = await wrk(server, PATH, body, CONNECTIONS, seconds)
        samples.take(`${name}_calls_per_s_per_core`, 'calls/s', 1e6 / many.cpu_us_per_call)
        samples.take(`${name}_calls_per_s`, 'calls/s', many.calls_per_s)
        samples.take(`${name}_added_p50_ms_c1`, 'ms', one.p50_ms - alone.p50_ms)
        samples.take(`${name}_added_p99_ms_c1`, 'ms', one.p99_ms - alone.p99_ms)
        samples.take(`${name}_p99_ms_c${CONNECTIONS}`, 'ms', many.p99_ms)
        samples.take(
          `${name}_rss_mb`,
          'MB',
          server.pids().reduce((sum, pid) => sum + rssMb(pid), 0),
        )
        samples.take(`${name}_errors`, 'calls', one.errors + many.errors)
        cores.push(one.client_cores, many.client_cores)
      }
    }
  } finally {
    for (const server of servers) await server.stop()
    await engine.stop()
  }
  return {
    figures: samples.figures(),
    notes: [
      `one process or worker of each where it can be told, everything at its default otherwise; ${CONNECTIONS} connections; CPU and memory of the whole process tree`,
      'weir: everything on (key, limits, budget, durable journal, ledger, log); nginx: a bare proxy_pass',
      `each warmed for ${warm_s} s`,
      ...notes,
      clientNote(Math.max(...cores)),
    ],
  }
}
