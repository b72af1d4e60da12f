import { expect, test } from 'bun:test'
import type { Socket } from 'bun'
import { openSocketTransport } from '../../src/engines/socket-transport.ts'
import { type Transport, TransportFailure } from '../../src/engines/transport.ts'
import { forAllAsync, pick, type Roll, within } from '../kit/wait.ts'

/** What the engine is to do with one call. */
type Plan = { readonly answer: Buffer; readonly pieces: readonly Buffer[]; readonly closes: boolean }
type Call = { readonly id: string; readonly body: string; readonly plan: Plan; readonly honest: boolean }

const ID = /id-[0-9a-f]{16}/g
const NOISE = [
  '\r\n',
  '\n',
  '\r',
  '\0',
  ':',
  ';',
  '0',
  '0\r\n\r\n',
  'HTTP/1.1 200 OK\r\n\r\n',
  'HTTP/1.1 100 C\r\n\r\n',
  '\r\n\r\n',
  ' ',
  'ffffffff',
  '-1',
  '\xff',
]

const idOf = (roll: Roll): string => `id-${Array.from({ length: 16 }, () => roll(16).toString(16)).join('')}`

const honestAnswer = (roll: Roll, body: string): { answer: Buffer; closes: boolean } => {
  const extra = pick(roll, [
    '',
    'x-a: b\r\n',
    'connection: keep-alive\r\nServer:\r\n',
    `x-long: ${'v'.repeat(roll(3_000))}\r\n`,
  ])
  const interim = pick(roll, ['', '', 'HTTP/1.1 100 Continue\r\n\r\n', 'HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n'])
  const start = `${interim}HTTP/1.1 ${pick(roll, [200, 201, 404, 500])} Some Reason\r\n${extra}`
  const framing = roll(3)
  const text = [
    () => `${start}content-length: ${body.length}\r\n\r\n${body}`,
    () => `${start}transfer-encoding: chunked\r\n\r\n${chunks(roll, body)}`,
    () => `${start}connection: close\r\n\r\n${body}`,
  ][framing]!()
  return { answer: Buffer.from(text, 'latin1'), closes: framing === 2 }
}

const chunks = (roll: Roll, body: string): string => {
  let text = ''
  for (let at = 0; at < body.length;) {
    const size = Math.min(body.length - at, 1 + roll(200))
    text += `${size.toString(16)}${pick(roll, ['', '', ';a', ';a="b c"'])}\r\n${body.slice(at, at + size)}\r\n`
    at += size
  }
  return `${text}0\r\n${pick(roll, ['', 'trailer: x\r\n'])}\r\n`
}

const mutated = (roll: Roll, answer: Buffer): Buffer => {
  let bytes: Buffer = answer
  for (let count = 1 + roll(3); count > 0; count--) {
    // Most faults in the head, where the meaning is.
    const at = roll(roll(3) === 0 ? bytes.length + 1 : Math.min(bytes.length, 120) + 1)
    const to = Math.min(bytes.length, at + roll(24))
    const [before, inside, after] = [bytes.subarray(0, at), bytes.subarray(at, to), bytes.subarray(to)]
    bytes = Buffer.concat(
      pick<() => Uint8Array[]>(roll, [
        () => [before, after],
        () => [before, inside, inside, after],
        () => [before, Buffer.from(pick(roll, NOISE), 'latin1'), inside, after],
        () => [before, Buffer.from(inside.map(() => roll(256))), after],
        () => [before],
      ])(),
    )
  }
  return bytes
}

const splitAt = (roll: Roll, bytes: Buffer): Buffer[] => {
  const pieces: Buffer[] = []
  const size = pick(roll, [1, 3, 17, 200, 4_000])
  for (let at = 0; at < bytes.length;) {
    const next = Math.min(bytes.length, at + 1 + roll(size))
    pieces.push(bytes.subarray(at, next))
    at = next
  }
  return pieces.length > 400 ? [bytes] : pieces
}

const planCall = (roll: Roll, honest: boolean, whole: boolean): Call => {
  const id = idOf(roll)
  const body = `${id} ${'abcdefgh\r\n'.repeat(roll(100))}${id}`
  const { answer, closes } = honestAnswer(roll, body)
  const sent = honest ? answer : mutated(roll, answer)
  return {
    id,
    body,
    honest,
    plan: { answer: sent, pieces: whole ? [sent] : splitAt(roll, sent), closes: closes || (!honest && roll(5) > 0) },
  }
}

/** An engine that answers each request by the plan named in its path. */
const engineFor = (calls: ReadonlyMap<string, Call>) => {
  const send = (socket: Socket<{ head: string }>, { pieces, closes }: Plan, from: number) => {
    const piece = pieces[from]
    if (piece === undefined) return void (closes && socket.end())
    if (socket.write(piece) < 0) return
    setImmediate(send, socket, { pieces, closes }, from + 1)
  }
  return Bun.listen<{ head: string }>({
    hostname: '127.0.0.1',
    port: 0,
    socket: {
      open: (socket) => {
        socket.data = { head: '' }
        socket.setNoDelay(true)
      },
      data: (socket, bytes) => {
        socket.data.head += bytes.toString('latin1')
        if (!socket.data.head.endsWith('\r\n\r\n')) return
        const call = calls.get(/ \/(id-\w+) /.exec(socket.data.head)![1]!)!
        socket.data.head = ''
        send(socket, call.plan, 0)
      },
      error: () => {},
    },
  })
}

const outcomeOf = async (transport: Transport, url: string, honest: boolean): Promise<string | TransportFailure> => {
  const exchange = transport.send(
    { method: 'GET', url, headers: [], body: [] },
    { connect_ms: 2_000, first_byte_ms: honest ? 5_000 : 150 },
  )
  // A body that stops short of its length on an open connection is for the caller's deadline to end.
  const patience = setTimeout(() => exchange.cancel(), honest ? 5_000 : 400)
  const read = async () => {
    const response = await exchange.head
    if (response instanceof TransportFailure) return response
    let body = ''
    for (;;) {
      const piece = await response.read()
      if (piece instanceof TransportFailure) return piece
      if (piece === null) return body
      if (piece.length === 0) throw new Error('an empty piece')
      body += Buffer.from(piece).toString('latin1')
    }
  }
  try {
    return await within(read(), 6_000, `hangs: ${url}`)
  } finally {
    clearTimeout(patience)
  }
}

const run = async (roll: Roll, count: number, options: { honest_share: number; whole: boolean; idle_ms: number }) => {
  const list = Array.from({ length: count }, () => planCall(roll, roll(100) < options.honest_share, options.whole))
  const calls = new Map(list.map((call) => [call.id, call]))
  const engine = engineFor(calls)
  const transport = openSocketTransport({ idle_ms: options.idle_ms, sockets_max: 40 })
  const queue = [...list]
  const tally = { whole: 0, failed: 0 }
  const worker = async () => {
    for (let call = queue.pop(); call !== undefined; call = queue.pop()) {
      const url = `http://127.0.0.1:${engine.port}/${call.id}`
      let outcome = await outcomeOf(transport, url, call.honest)
      // The engine closed after a faulty answer that looked whole; a caller may repeat such an exchange, and so do we.
      while (outcome instanceof TransportFailure && outcome.kind === 'reset' && outcome.reused)
        outcome = await outcomeOf(transport, url, call.honest)
      const shown = { plan: call.plan.answer.toString('latin1'), outcome }
      if (call.honest && outcome !== call.body) expect(shown).toEqual({ ...shown, outcome: call.body })
      if (outcome instanceof TransportFailure) tally.failed++
      else tally.whole++
      const strangers =
        typeof outcome === 'string' && outcome.match(ID)?.filter((id) => id !== call.id && calls.has(id))
      if (strangers && strangers.length > 0) expect(shown).toEqual({ ...shown, outcome: 'no bytes of another call' })
    }
  }
  await Promise.all(Array.from({ length: 40 }, worker))
  transport.close()
  engine.stop(true)
  return tally
}

test('honest answers in any framing and any split, on pooled connections: every body whole', async () => {
  await forAllAsync(1, async (roll) => {
    expect(await run(roll, 800, { honest_share: 100, whole: false, idle_ms: 1_000 })).toEqual({ whole: 800, failed: 0 })
  })
}, 20_000)

// Each faulty answer comes in one write, so that what follows its end is seen with it and ends the connection.
test('honest and faulty answers on the same pooled connections: honest ones whole, no bytes of another call, no hang', async () => {
  await forAllAsync(1, async (roll) => {
    const { whole, failed } = await run(roll, 800, { honest_share: 50, whole: true, idle_ms: 1_000 })
    expect(whole).toBeGreaterThan(400)
    expect(failed).toBeGreaterThan(100)
  })
}, 20_000)

test('faulty answers in any split, a connection each: a body or a failure, no hang', async () => {
  await forAllAsync(1, async (roll) => {
    const { whole, failed } = await run(roll, 800, { honest_share: 0, whole: false, idle_ms: 0 })
    expect(whole + failed).toBe(800)
  })
}, 20_000)
