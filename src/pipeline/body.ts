import { Failure } from '../base/failure.ts'
import { limits } from '../base/limits.ts'
import { Deadlines, type Timed } from '../engines/deadlines.ts'
import { type JsonScan, jsonScanner } from '../engines/json-scan.ts'
import { type JsonType, readBoolean, readInteger, readString } from '../engines/json-value.ts'
import { bodyTooLarge } from './body-limit.ts'
import { decoderOf } from './content-encoding.ts'

/** A request body, read and understood as far as the gateway needs. */
export type Body = {
  /** As the engine will get them, but for splices: decoded from a content encoding, otherwise untouched. */
  readonly bytes: Uint8Array
  readonly scan: JsonScan<BodyPath>
  /** SHA-256 of `bytes`. */
  readonly sha256: Uint8Array
  /** The name that the client asked for; empty on an address without models. */
  readonly model: string
  readonly stream: boolean
  /** The client asked for the usage chunk of a stream. */
  readonly wants_usage: boolean
  /** It asked for usage in every chunk (vLLM's `continuous_usage_stats`). */
  readonly wants_continuous_usage: boolean
  /** `max_completion_tokens`, else `max_tokens`. */
  readonly tokens_max: number | undefined
  /** The larger of the two, 0 if neither says: engines differ in which they heed. */
  readonly tokens_most: number
  /** Choices asked for. */
  readonly n: number
  /** Choices made of which `n` are shown; 1 if it does not say. */
  readonly best_of: number
  readonly end_user: string
}

const PATHS = [
  'model',
  'stream',
  'max_tokens',
  'max_completion_tokens',
  'n',
  'best_of',
  'user',
  'stream_options',
  'stream_options.include_usage',
  'stream_options.continuous_usage_stats',
  'messages',
  'prompt',
  'input',
] as const
export type BodyPath = (typeof PATHS)[number]

const scanBody = jsonScanner(PATHS)

/** Reads a request's body whole, within the limits of size and time, and decodes its content encoding. */
export const readBody = (
  request: Request,
  bytes_max: number,
  body_ms: number,
  hold: Hold,
): Failure | Promise<Uint8Array | Failure> => {
  const decode = decoderOf(request.headers.get('content-encoding'))
  if (decode instanceof Failure) return decode
  const reading = readRaw(request, bytes_max, body_ms, hold)
  if (reading instanceof Failure || decode === undefined) return reading
  return reading.then(async (raw) => {
    if (raw instanceof Failure) return raw
    const bytes = await decode(raw, bytes_max)
    return bytes instanceof Failure ? bytes : (hold(bytes.length - raw.length) ?? bytes)
  })
}

/** Takes room for more bytes of the body, or gives it back for fewer; a failure if there is none. */
export type Hold = (more_bytes: number) => Failure | undefined

/** Of all bodies that are being read. */
const deadlines = new Deadlines()

const readRaw = (
  request: Request,
  bytes_max: number,
  body_ms: number,
  hold: Hold,
): Failure | Promise<Uint8Array | Failure> => {
  const length = request.headers.get('content-length')
  const full = length === null ? undefined : hold(Number(length))
  if (full) return full
  return new Promise((resolve) => {
    const late: Timed = { due_tick_ms: 0, slot: -1, expire: () => resolve(bodyTimeout(body_ms)) }
    deadlines.set(late, body_ms)
    const done = (read: Uint8Array | Failure) => {
      deadlines.clear(late)
      if (!(read instanceof Failure) && read.length >= LARGE_BYTES) collectSoon()
      resolve(read)
    }
    // With a length the size is known to fit; without one the pieces are counted as they come.
    const reading = length === null ? readCounted(request, bytes_max, hold) : request.bytes()
    reading.then(done, (cause: unknown) => done(new Failure('body_cut', { cause })))
  })
}

const LARGE_BYTES = 1_048_576
const COLLECT_MS = 1_000
let collecting = false

/**
 * Has garbage collected a while after a large body: the collector does not see how much memory bodies hold, and left 400 MB
 * of them to lie for minutes. At most once a second; a worker's heap is small and takes 5 to 10 ms.
 */
const collectSoon = (): void => {
  if (collecting) return
  collecting = true
  const timer = setTimeout(() => {
    collecting = false
    Bun.gc(true)
  }, COLLECT_MS)
  timer.unref()
}

const bodyTimeout = (body_ms: number): Failure =>
  new Failure('body_timeout', { says: `The request body did not arrive within ${body_ms} ms (server.body_ms).` })

const readCounted = async (request: Request, bytes_max: number, hold: Hold): Promise<Uint8Array | Failure> => {
  const pieces: Uint8Array[] = []
  let size = 0
  if (request.body)
    for await (const piece of request.body as unknown as AsyncIterable<Uint8Array>) {
      size += piece.length
      if (size > bytes_max) return bodyTooLarge(bytes_max)
      const full = hold(piece.length)
      if (full) return full
      pieces.push(piece)
    }
  return pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces, size)
}

/** Understands a JSON body. Checks only what the gateway uses; everything else is the engine's to judge. */
export const parseBody = (bytes: Uint8Array, needs_model: boolean): Body | Failure => {
  if (bytes.length === 0) return new Failure('json_invalid', { says: 'The request body is empty; send a JSON object.' })
  const scan = scanBody(bytes)
  if (scan instanceof Failure) return scan
  const { values } = scan
  if (needs_model && scan.root.type !== 'object')
    return new Failure('json_invalid', {
      says: `The request body must be a JSON object, not ${article(scan.root.type)}.`,
    })
  const model = readString(bytes, values.model)
  if (needs_model && (model === undefined || model === '' || model.length > limits.name_bytes_max))
    return invalid('model', values.model?.type, `a string of 1 to ${limits.name_bytes_max} characters`)
  for (const [name, allowed] of CHECKS) {
    const range = values[name]
    if (range !== undefined && needs_model && !allowed.includes(range.type))
      return invalid(name, range.type, [...new Set(allowed.map(article))].join(' or '))
  }
  const [completion_max, older_max] = [values.max_completion_tokens, values.max_tokens].map((range) =>
    readInteger(bytes, range),
  )
  return {
    bytes,
    scan,
    sha256: sha256(bytes),
    model: model ?? '',
    stream: readBoolean(values.stream) ?? false,
    wants_usage: readBoolean(values['stream_options.include_usage']) ?? false,
    wants_continuous_usage: readBoolean(values['stream_options.continuous_usage_stats']) ?? false,
    tokens_max: positive(completion_max ?? older_max),
    tokens_most: Math.max(completion_max ?? 0, older_max ?? 0, 0),
    n: positive(readInteger(bytes, values.n)) ?? 1,
    best_of: positive(readInteger(bytes, values.best_of)) ?? 1,
    end_user: (readString(bytes, values.user) ?? '').slice(0, limits.name_bytes_max).toWellFormed(),
  }
}

/** SHA-256 of the bytes, 32 bytes. */
export const sha256 = (bytes: Uint8Array): Uint8Array => {
  const into = new Uint8Array(32)
  Bun.SHA256.hash(bytes, into)
  return into
}

const CHECKS: readonly (readonly [BodyPath, readonly JsonType[]])[] = [
  ['messages', ['array']],
  ['stream', ['true', 'false', 'null']],
  ['max_tokens', ['number', 'null']],
  ['max_completion_tokens', ['number', 'null']],
  ['stream_options', ['object', 'null']],
]

const positive = (value: number | undefined): number | undefined =>
  value !== undefined && value > 0 ? value : undefined

const invalid = (param: string, found: string | undefined, allowed: string): Failure =>
  new Failure('field_invalid', {
    says: `"${param}" ${found === undefined ? 'is missing' : `is ${article(found)}`}; it must be ${allowed}.`,
    param,
  })

const article = (type: string): string =>
  type === 'true' || type === 'false'
    ? 'a boolean'
    : type === 'null'
      ? 'null'
      : `a${/^[aeiou]/.test(type) ? 'n' : ''} ${type}`
