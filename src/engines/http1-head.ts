/** A final status line and its header lines. */
export class ResponseHead {
  readonly status: number
  /** The body ends where the connection ends. */
  readonly close_delimited: boolean
  /** Another exchange may follow on this connection (RFC 9112 §9.3). */
  readonly keeps_alive: boolean
  readonly #text: string
  readonly #lower: string

  constructor(text: string, lower: string, status: number, close_delimited: boolean, keeps_alive: boolean) {
    this.#text = text
    this.#lower = lower
    this.status = status
    this.close_delimited = close_delimited
    this.keeps_alive = keeps_alive
  }

  /** Value by lower-case name, without blanks around it; several lines joined with ", "; undefined if there is none. */
  header(name: string): string | undefined {
    return headerValue(this.#text, this.#lower, name)
  }
}

/** A head and how its body is delimited: `left` bytes, chunks, or the close of the connection. */
export type FramedHead = {
  readonly head: ResponseHead
  readonly part: 'length' | 'chunk_line' | 'close'
  readonly left: number
}

const HEADER_LINES_MAX = 256
const STATUS_LINE = /HTTP\/1\.([01]) ([1-9]\d\d)(?: [\t\x20-\x7e\x80-\xff]*)?\r\n/y
const FIELD_LINE = /[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*\r\n/y
const LENGTH = /^(?:0|[1-9]\d{0,14})$/
const CLOSES = /(?:^|,)[ \t]*close[ \t]*(?:,|$)/i

/**
 * Reads a status line and header lines, each with its CRLF and without the empty line (RFC 9112 §4 and §6.3). A number is
 * the status of an interim (1xx) answer; undefined means that it is not HTTP/1.x or can be read in two ways. For the
 * answer to a GET, POST or DELETE: a HEAD would need its own rule.
 */
export const parseHead = (text: string): FramedHead | number | undefined => {
  STATUS_LINE.lastIndex = 0
  const line = STATUS_LINE.exec(text)
  if (line === null || !fieldLines(text, STATUS_LINE.lastIndex)) return undefined
  const status = Number(line[2])
  if (status < 200) return status
  const is_1_1 = line[1] === '1'
  const lower = text.toLowerCase()
  const coding = headerValue(text, lower, 'transfer-encoding')
  const length = headerValue(text, lower, 'content-length')
  if (coding !== undefined && (!is_1_1 || length !== undefined || coding.toLowerCase() !== 'chunked')) return undefined
  if (length !== undefined && !LENGTH.test(length)) return undefined
  const connection = headerValue(text, lower, 'connection')
  const keeps_alive = is_1_1 && (connection === undefined || !CLOSES.test(connection))
  if (status === 204 || status === 304) {
    // An engine that announces a body here may also send it, into the next answer on the connection.
    const silent = coding === undefined && (length === undefined || length === '0')
    return { head: new ResponseHead(text, lower, status, false, keeps_alive && silent), part: 'length', left: 0 }
  }
  if (coding !== undefined)
    return { head: new ResponseHead(text, lower, status, false, keeps_alive), part: 'chunk_line', left: 0 }
  if (length !== undefined)
    return { head: new ResponseHead(text, lower, status, false, keeps_alive), part: 'length', left: Number(length) }
  return { head: new ResponseHead(text, lower, status, true, false), part: 'close', left: 0 }
}

/** True if `text` from `at` on is nothing but valid header lines, not too many of them (RFC 9112 §5). */
export const fieldLines = (text: string, at: number): boolean => {
  FIELD_LINE.lastIndex = at
  for (let lines = 0; FIELD_LINE.lastIndex < text.length; lines++) {
    if (lines === HEADER_LINES_MAX || !FIELD_LINE.test(text)) return false
  }
  return true
}

const OPENING = Buffer.from('HTTP/1.')
const CR = 13
const LF = 10

/** False if the bytes from `at` on, which hold no empty line, can never become a head. */
export const couldBeHead = (bytes: Uint8Array, at: number): boolean => {
  for (let n = 0; n < OPENING.length && at + n < bytes.length; n++) if (bytes[at + n] !== OPENING[n]) return false
  for (let lf = bytes.indexOf(LF, at); lf >= 0; lf = bytes.indexOf(LF, lf + 1)) if (bytes[lf - 1] !== CR) return false
  return true
}

/** How the line of a header begins, by its name: the names asked for are a handful, and all in the code. */
const marks = new Map<string, string>()

const markOf = (name: string): string => {
  let mark = marks.get(name)
  if (mark === undefined) marks.set(name, (mark = `\r\n${name}:`))
  return mark
}

const headerValue = (text: string, lower: string, name: string): string | undefined => {
  const mark = markOf(name)
  let value: string | undefined
  for (let at = lower.indexOf(mark); at >= 0; at = lower.indexOf(mark, at + 2)) {
    let from = at + mark.length
    let to = text.indexOf('\r\n', from)
    while (from < to && isBlank(text, from)) from++
    while (to > from && isBlank(text, to - 1)) to--
    const line = text.slice(from, to)
    value = value === undefined ? line : `${value}, ${line}`
  }
  return value
}

/** Space or tab: `trim` would take more away, and a pattern for the end of a line can take quadratic time. */
const isBlank = (text: string, at: number): boolean => {
  const code = text.charCodeAt(at)
  return code === 32 || code === 9
}
