import { readFileSync } from 'node:fs'
import { crc32 } from 'node:zlib'
import { Difference } from './check-note.ts'

/**
 * Journal segments as the checker reads them, by the layout that the journal documents: a header of 64 bytes, then
 * frames, each chained to the one before by its checksum. Written apart from the journal's own reader on purpose.
 */

/** A field of a record: how many bytes it takes in the fixed part. */
type Kind = 'text' | 'f64' | 'i64' | 'u32' | 'u16' | 'u8' | 'flag' | 'hash' | 'choice'
const BYTES: Record<Kind, number> = { text: 2, f64: 8, i64: 8, u32: 4, u16: 2, u8: 1, flag: 1, hash: 32, choice: 1 }

const RECORDS: Readonly<Record<number, readonly [kind: string, fields: readonly (readonly [string, Kind])[]]>> = {
  1: [
    'intent',
    fields(
      'call_id:text at_ms:f64 tenant:text key_id:text end_user:text model:text engine:text engine_model:text endpoint:text stream:flag hold_nanodollars:i64 prompt_tokens_estimate:u32 price_version:u32 request_sha256:hash serves:text images:u32',
    ),
  ],
  2: ['attempt', fields('call_id:text at_ms:f64 engine:text engine_model:text because:text serves:text')],
  3: [
    'progress',
    fields(
      'call_id:text at_ms:f64 prompt_tokens:u32 completion_tokens:u32 usage_source:choice engine:text engine_model:text serves:text',
    ),
  ],
  4: [
    'ending',
    fields(
      'call_id:text at_ms:f64 ending:choice status:u16 finish_reason:text engine:text engine_model:text prompt_tokens:u32 cached_tokens:u32 completion_tokens:u32 reasoning_tokens:u32 usage_source:choice attempts:u8 queue_ms:f64 engine_ms:f64 first_token_ms:f64 total_ms:f64 response_sha256:hash failure:text audio_input_tokens:u32 audio_output_tokens:u32 serves:text',
    ),
  ],
  5: ['refusals', fields('at_ms:f64 key_id:text tenant:text failure:text count:u32')],
  6: ['decision', fields('call_id:text at_ms:f64 text:text')],
}

function fields(list: string): (readonly [string, Kind])[] {
  return list.split(' ').map((field) => field.split(':') as [string, Kind])
}

/** A record: its kind and its fields. Numbers, texts, `Buffer`s for hashes; a choice is its number. */
export type FrameRecord = { readonly kind: string; readonly fields: Readonly<Record<string, string | number | Buffer>> }

/** A frame where it stands; `record` is undefined for a kind that is not known here. */
export type Frame = { readonly offset: number; readonly next: number; readonly record: FrameRecord | undefined }

/** What follows the last record: nothing, the mark of a segment or of a series that ended, or bytes that are no frame. */
export type Tail = 'end' | 'segment_ends' | 'series_ends' | 'torn'

const HEADER_BYTES = 64

/** Reads a segment; its header must be sound and name it. */
export const readFrames = (path: string, name: string): { frames: Frame[]; tail: Tail; tail_at: number } => {
  const file = readFileSync(path)
  const sound = file.length >= HEADER_BYTES && file.toString('latin1', 0, 8) === 'WEIRJRNL'
  if (!sound || file.readUInt32LE(60) !== crc32(file.subarray(0, 60)))
    throw new Difference(`journal ${name}: its header is damaged`)
  const pad = (number: number, digits: number) => String(number).padStart(digits, '0')
  const said = `w${pad(file.readUInt32LE(12), 2)}-${pad(file.readUInt32LE(16), 6)}-${pad(file.readUInt32LE(20), 6)}`
  if (`${said}.journal` !== name) throw new Difference(`journal ${name}: its header says that it is ${said}`)
  const frames: Frame[] = []
  let chain = file.readUInt32LE(24)
  for (let at = HEADER_BYTES; ;) {
    const length = at + 8 <= file.length ? file.readUInt32LE(at) : 0
    if (length === 0) return { frames, tail: 'end', tail_at: at }
    const next = at + 8 + Math.ceil(length / 8) * 8
    const checksum = next <= file.length ? crc32(file.subarray(at + 8, next), (chain ^ length) >>> 0) : -1
    if (checksum !== file.readUInt32LE(at + 4)) return { frames, tail: 'torn', tail_at: at }
    const payload = file.subarray(at + 8, at + 8 + length)
    if (payload[0] === 254) return { frames, tail: 'segment_ends', tail_at: at }
    if (payload[0] === 255) return { frames, tail: 'series_ends', tail_at: at }
    frames.push({ offset: at, next, record: decode(payload) })
    chain = checksum
    at = next
  }
}

const decode = (payload: Buffer): FrameRecord | undefined => {
  const known = RECORDS[payload[0] ?? 0]
  if (known === undefined) return undefined
  const [kind, list] = known
  const fixed = payload.readUInt16LE(2)
  let at = 4
  let text = fixed
  const values: Record<string, string | number | Buffer> = {}
  for (const [name, type] of list) {
    const bytes = BYTES[type]
    if (at + bytes > fixed) break
    if (type === 'text') {
      const end = text + payload.readUInt16LE(at)
      values[name] = payload.toString('utf8', text, end)
      text = end
    } else values[name] = valueAt(payload, at, type)
    at += bytes
  }
  return { kind, fields: values }
}

const valueAt = (payload: Buffer, at: number, type: Exclude<Kind, 'text'>): number | Buffer => {
  if (type === 'f64') return payload.readDoubleLE(at)
  if (type === 'i64') return Number(payload.readBigInt64LE(at))
  if (type === 'u32') return payload.readUInt32LE(at)
  if (type === 'u16') return payload.readUInt16LE(at)
  return type === 'hash' ? payload.subarray(at, at + 32) : payload[at]!
}
