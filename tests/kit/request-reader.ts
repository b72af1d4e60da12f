import type { Wire } from './wire.ts'

export type RequestHead = {
  readonly method: string
  readonly target: string
  /** As on the wire: order, case and repetition kept. */
  readonly headers: readonly (readonly [name: string, value: string])[]
  /** The value of a header by name in any case; several lines are joined with ", ". */
  header(name: string): string | undefined
  /** Exactly what came, up to and including the empty line. */
  readonly head_bytes: Buffer
}

const EMPTY_LINE = Buffer.from('\r\n\r\n')

/** The next head on a connection; undefined if the peer left or `within_ms` passed before it was whole. */
export const readHead = async (wire: Wire, within_ms: number): Promise<RequestHead | undefined> => {
  const found = await wire.until(() => {
    const at = wire.view.indexOf(EMPTY_LINE)
    return at >= 0 ? at + 4 : wire.gone ? -1 : undefined
  }, within_ms)
  if (found === undefined || found < 0) return undefined
  const head_bytes = wire.take(found)
  const [first = '', ...lines] = head_bytes.toString('latin1').slice(0, -4).split('\r\n')
  const [method = '', target = ''] = first.split(' ')
  const headers = lines.map(headerLine)
  return { method, target, headers, header: (name) => lookUp(headers, name), head_bytes }
}

/** `name: value` with the blanks around the value taken away. */
export const headerLine = (line: string): readonly [name: string, value: string] => {
  const colon = line.indexOf(':')
  return [line.slice(0, colon), line.slice(colon + 1).replace(/^[ \t]+|[ \t]+$/g, '')]
}

export const lookUp = (headers: RequestHead['headers'], name: string): string | undefined => {
  const values = headers.filter(([found]) => found.toLowerCase() === name.toLowerCase()).map(([, value]) => value)
  return values.length > 0 ? values.join(', ') : undefined
}

/** The body that the head declares, decoded; undefined if the peer left first. */
export const readBody = async (wire: Wire, head: RequestHead): Promise<Buffer | undefined> => {
  if (head.header('transfer-encoding')?.toLowerCase() !== 'chunked')
    return exactly(wire, Number(head.header('content-length') ?? 0))
  const parts: Buffer[] = []
  for (;;) {
    const line = await untilLine(wire)
    if (line === undefined) return undefined
    const size = Number.parseInt(line, 16)
    const part = await exactly(wire, size)
    const after = part && (await untilLine(wire))
    if (part === undefined || after === undefined) return undefined
    if (size === 0) return Buffer.concat(parts)
    parts.push(part)
  }
}

const exactly = async (wire: Wire, bytes: number): Promise<Buffer | undefined> => {
  const enough = await wire.until(() => (wire.view.length >= bytes ? true : wire.gone ? false : undefined), 3_600_000)
  return enough ? wire.take(bytes) : undefined
}

const untilLine = async (wire: Wire): Promise<string | undefined> => {
  const at = await wire.until(() => {
    const found = wire.view.indexOf('\r\n')
    return found >= 0 ? found : wire.gone ? -1 : undefined
  }, 3_600_000)
  return at === undefined || at < 0
    ? undefined
    : wire
        .take(at + 2)
        .toString('latin1')
        .slice(0, -2)
}
