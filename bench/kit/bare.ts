import { openSocketTransport } from '../../src/engines/socket-transport.ts'
import { TransportFailure } from '../../src/engines/transport.ts'

/**
 * A bare reverse proxy on the same runtime: `Bun.serve` in front of the gateway's own transport, and nothing between. What it
 * costs more than nginx no gateway on this runtime can save. As a process: `bun bench/kit/bare.ts ENGINE_URL`.
 */
const engine_url = process.argv[2] ?? ''
const transport = openSocketTransport({ idle_ms: 4_000, sockets_max: 1_024 })
const DEADLINES = { connect_ms: 5_000, first_byte_ms: 60_000 }
const HEADERS = Object.freeze([['content-type', 'application/json'] as const])

const ask = async (path: string, body: Uint8Array): Promise<Response> => {
  const request = { method: 'POST', url: engine_url + path, headers: HEADERS, body: [body] } as const
  const head = await transport.send(request, DEADLINES).head
  if (head instanceof TransportFailure) return new Response(null, { status: 502 })
  const headers = { 'content-type': head.header('content-type') ?? 'application/json' }
  const pieces: Uint8Array[] = []
  for (;;) {
    let piece = head.inHand()
    if (piece === undefined) piece = await head.read()
    if (piece instanceof TransportFailure) return new Response(null, { status: 502 })
    if (piece === null) break
    pieces.push(piece)
  }
  return new Response((pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces)) as BodyInit, { headers })
}

const server = Bun.serve({
  hostname: '127.0.0.1',
  port: 0,
  routes: { '/v1/chat/completions': { POST: async (request) => ask('/v1/chat/completions', await request.bytes()) } },
  fetch: () => new Response('OK'),
})
process.stdout.write(`bare ready port=${server.port}\n`)
