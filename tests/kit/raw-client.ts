import { headerLine, lookUp } from './request-reader.ts'
import { Wire, wireHandlers, type Gone } from './wire.ts'

/** A piece of a decoded body and when it was in. Times are `performance.now()`. */
export type Piece = { readonly at_ms: number; readonly bytes: Buffer }

export type RawResponse = {
  readonly status: number
  readonly reason: string
  /** As on the wire: order, case and repetition kept. */
  readonly headers: readonly (readonly [name: string, value: string])[]
  /** The value of a header by name in any case; several lines are joined with ", ". */
  header(name: string): string | undefined
  /** Status codes of the interim answers (1xx) before it. */
  readonly interim: readonly number[]
  readonly framing: 'length' | 'chunked' | 'close' | 'none'
  /** Without transfer coding: one piece a chunk, or one an arrival where there are no chunks. */
  readonly pieces: readonly Piece[]
  readonly body: Buffer
  /** `whole` at the declared end; else how it stopped: FIN, reset, bytes that are not HTTP, or the time given ran out. */
  readonly ended: 'whole' | 'cut' | 'reset' | 'invalid' | 'timeout'
  /** When the head was complete and when the answer ended. */
  readonly head_at_ms: number
  readonly ended_at_ms: number
  text(): string
  json(): any
}

export type RawClient = Disposable & {
  /** When the connection was up. */
  readonly opened_at_ms: number
  /** Writes text (UTF-8) or bytes; false if the connection is gone. */
  send(content: string | Uint8Array): Promise<boolean>
  /** Writes the pieces one by one with a pause between. */
  pieces(list: readonly (string | Uint8Array)[], wait_ms: number): Promise<boolean>
  /** Reads the next answer. Never rejects: see `ended`; status 0 if not even a head came. `bodyless` for an answer to HEAD. */
  response(options?: { within_ms?: number; bodyless?: boolean }): Promise<RawResponse>
  /** Every byte that is in and not yet read as an answer. */
  unread(): Buffer
  /** Waits until so many unread bytes are in; false if time ran out or the connection ended first. */
  received(bytes: number, within_ms?: number): Promise<boolean>
  /** Waits for the other side to end the connection; undefined if it did not within the time. */
  closed(within_ms?: number): Promise<Gone | undefined>
  /** Sends a FIN and goes on reading. */
  halfClose(): void
  close(): void
  /** Sends a RST. */
  reset(): void
  /** A client that does not read: `pause`, later `resume`. */
  pause(): void
  resume(): void
}

/** Opens a raw connection to a port on 127.0.0.1. */
export const connectRaw = async (port: number): Promise<RawClient> => {
  const { promise, resolve } = Promise.withResolvers<Wire>()
  await Bun.connect<Wire>({ hostname: '127.0.0.1', port, allowHalfOpen: true, socket: wireHandlers(resolve) })
  const wire = await promise
  const send = (content: string | Uint8Array) => wire.send(Buffer.from(content))
  return {
    opened_at_ms: wire.opened_at_ms,
    send,
    pieces: async (list, wait_ms) => {
      for (const [index, piece] of list.entries()) {
        if (index > 0) await Bun.sleep(wait_ms)
        if (!(await send(piece))) return false
      }
      return true
    },
    response: ({ within_ms = 5_000, bodyless = false } = {}) => readResponse(wire, within_ms, bodyless),
    unread: () => Buffer.from(wire.view),
    received: async (bytes, within_ms = 2_000) =>
      (await wire.until(() => (wire.view.length >= bytes ? true : wire.gone ? false : undefined), within_ms)) === true,
    closed: (within_ms = 2_000) => wire.until(() => (wire.gone?.by === 'peer' ? wire.gone : undefined), within_ms),
    halfClose: () => wire.halfClose(),
    close: () => wire.close(),
    reset: () => wire.reset(),
    pause: () => wire.pause(),
    resume: () => wire.resume(),
    [Symbol.dispose]: () => wire.close(),
  }
}

/** The text of a request. A body that is not a string or bytes is written as JSON; Content-Length is added. */
export const requestBytes = (
  method: string,
  target: string,
  headers: Readonly<Record<string, string>> = {},
  content?: unknown,
): Buffer => {
  const body =
    content === undefined
      ? undefined
      : typeof content === 'string' || content instanceof Uint8Array
        ? Buffer.from(content)
        : Buffer.from(JSON.stringify(content))
  const all = {
    host: 'localhost',
    ...(body && { 'content-type': 'application/json', 'content-length': String(body.length) }),
    ...headers,
  }
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`)
  return Buffer.concat([Buffer.from(`${method} ${target} HTTP/1.1\r\n${lines.join('')}\r\n`), body ?? Buffer.alloc(0)])
}

/** One request on a connection of its own. */
export const exchangeRaw = async (
  port: number,
  request: string | Uint8Array,
  within_ms = 5_000,
): Promise<RawResponse> => {
  using client = await connectRaw(port)
  await client.send(request)
  return await client.response({ within_ms })
}

type Ended = RawResponse['ended']
type Head = Pick<RawResponse, 'status' | 'reason' | 'headers' | 'interim' | 'head_at_ms'>
/** The wire, and how much of the time given is left. */
type Source = { readonly wire: Wire; left_ms(): number }

const readResponse = async (wire: Wire, within_ms: number, bodyless: boolean): Promise<RawResponse> => {
  const deadline_ms = performance.now() + within_ms
  const source = { wire, left_ms: () => deadline_ms - performance.now() }
  const pieces: Piece[] = []
  const head = await readHead(source)
  const silent = bodyless || head.status === 204 || head.status === 304 || head.ended !== 'whole'
  const framing = silent ? 'none' : framingOf(head)
  const ended = silent ? head.ended : await readBody(source, head, framing, pieces)
  const body = Buffer.concat(pieces.map((piece) => piece.bytes))
  return {
    ...head,
    framing,
    pieces,
    body,
    ended,
    ended_at_ms: performance.now(),
    header: (name) => lookUp(head.headers, name),
    text: () => body.toString(),
    json: () => JSON.parse(body.toString()),
  }
}

const framingOf = ({ headers }: Head): RawResponse['framing'] => {
  if (lookUp(headers, 'transfer-encoding') !== undefined) return 'chunked'
  return lookUp(headers, 'content-length') === undefined ? 'close' : 'length'
}

const stopped = ({ gone }: Wire): Ended => (gone === undefined ? 'timeout' : gone.how === 'rst' ? 'reset' : 'cut')

const readHead = async (source: Source): Promise<Head & { ended: Ended }> => {
  const interim: number[] = []
  const failed = (ended: Ended) => ({ status: 0, reason: '', headers: [], interim, head_at_ms: 0, ended })
  for (;;) {
    const first = await readLine(source)
    if (first === undefined) return failed(stopped(source.wire))
    const found = /^HTTP\/1\.[01] (\d{3})(?: (.*))?$/.exec(first)
    if (!found) return failed('invalid')
    const lines: string[] = []
    for (;;) {
      const line = await readLine(source)
      if (line === undefined) return failed(stopped(source.wire))
      if (line === '') break
      lines.push(line)
    }
    const status = Number(found[1])
    const head_at_ms = arrivalOf(source.wire, source.wire.consumed)
    if (status >= 200 || status === 101)
      return { status, reason: found[2] ?? '', headers: lines.map(headerLine), interim, head_at_ms, ended: 'whole' }
    interim.push(status)
  }
}

const readBody = async (
  source: Source,
  head: Head,
  framing: RawResponse['framing'],
  pieces: Piece[],
): Promise<Ended> => {
  if (framing === 'chunked') return await readChunked(source, pieces)
  let missing = framing === 'length' ? Number(lookUp(head.headers, 'content-length')) : Number.POSITIVE_INFINITY
  while (missing > 0) {
    const piece = await readPiece(source, 1, missing)
    if (piece === undefined)
      return framing === 'close' && source.wire.gone?.how === 'fin' ? 'whole' : stopped(source.wire)
    pieces.push(piece)
    missing -= piece.bytes.length
  }
  return 'whole'
}

const readChunked = async (source: Source, pieces: Piece[]): Promise<Ended> => {
  for (;;) {
    const size_line = await readLine(source)
    if (size_line === undefined) return stopped(source.wire)
    if (!/^[0-9a-f]+(;.*)?$/i.test(size_line)) return 'invalid'
    const size = Number.parseInt(size_line, 16)
    const piece = size > 0 ? await readPiece(source, size, size) : undefined
    if (piece) pieces.push(piece)
    if (size > 0 && piece?.bytes.length !== size) return stopped(source.wire)
    const after = await readLine(source)
    if (after === undefined) return stopped(source.wire)
    if (after !== '') return 'invalid'
    if (size === 0) return 'whole'
  }
}

/** Waits for `least` bytes and takes up to `most`; what there is if the connection ends first, undefined if nothing. */
const readPiece = async ({ wire, left_ms }: Source, least: number, most: number): Promise<Piece | undefined> => {
  await wire.until(() => wire.view.length >= least || wire.gone !== undefined || undefined, left_ms())
  if (wire.view.length === 0) return undefined
  const bytes = wire.take(Math.min(most, wire.view.length))
  return { at_ms: arrivalOf(wire, wire.consumed), bytes }
}

const readLine = async ({ wire, left_ms }: Source): Promise<string | undefined> => {
  const at = await wire.until(() => {
    const found = wire.view.indexOf('\r\n')
    return found >= 0 ? found : wire.gone ? -1 : undefined
  }, left_ms())
  if (at === undefined || at < 0) return undefined
  const line = wire.take(at + 2)
  return line.toString('latin1').slice(0, -2)
}

/** When the last of the first `bytes_total` bytes came in. */
const arrivalOf = (wire: Wire, bytes_total: number): number => {
  let low = 0
  let high = wire.arrivals.length - 1
  while (low < high) {
    const middle = (low + high) >> 1
    if (wire.arrivals[middle]!.bytes_total >= bytes_total) high = middle
    else low = middle + 1
  }
  return wire.arrivals[low]?.at_ms ?? performance.now()
}
