import type { JournalRecord } from './record.ts'

/**
 * How a field stands in a payload. Numbers outside the range of their type are stored as the nearest value in it, and
 * whole-number types drop a fraction; not-a-number becomes 0 there.
 *
 * `u8`, `u16`, `u32` unsigned; `i64` a safe integer in 8 bytes; `f64` any number; `flag` a boolean in one byte; `hash`
 * 32 raw bytes; `text` UTF-8 of at most `limits.text_bytes_max`, cut between characters. A list is a choice: its index
 * in one byte, so values may be added at the end of a list.
 */
export type FieldType = 'u8' | 'u16' | 'u32' | 'i64' | 'f64' | 'flag' | 'hash' | 'text' | readonly string[]

// Wrapped in tuples, so that a union of choices is seen as a whole and not member by member.
type TypeOf<Value> = [Value] extends [boolean]
  ? 'flag'
  : [Value] extends [number]
    ? 'u8' | 'u16' | 'u32' | 'i64' | 'f64'
    : [Value] extends [Uint8Array]
      ? 'hash'
      : string extends Value
        ? 'text'
        : readonly Value[]

type KindTable = {
  readonly [Kind in JournalRecord['kind']]: {
    /** First byte of the payload, 1–239. Never used again for another kind. */
    readonly code: number
    /** In the order of the payload. A new field goes last; an old one is never moved, retyped or removed. */
    readonly fields: {
      readonly [Name in Exclude<keyof Extract<JournalRecord, { kind: Kind }>, 'kind'>]: TypeOf<
        Extract<JournalRecord, { kind: Kind }>[Name]
      >
    }
  }
}

const usage_source = ['engine', 'estimated'] as const

/** Every kind of record: encoder and decoder follow from this table. */
export const KINDS = {
  intent: {
    code: 1,
    fields: {
      call_id: 'text',
      at_ms: 'f64',
      tenant: 'text',
      key_id: 'text',
      end_user: 'text',
      model: 'text',
      engine: 'text',
      engine_model: 'text',
      endpoint: 'text',
      stream: 'flag',
      hold_nanodollars: 'i64',
      prompt_tokens_estimate: 'u32',
      price_version: 'u32',
      request_sha256: 'hash',
      serves: 'text',
      images: 'u32',
    },
  },
  attempt: {
    code: 2,
    fields: { call_id: 'text', at_ms: 'f64', engine: 'text', engine_model: 'text', because: 'text', serves: 'text' },
  },
  progress: {
    code: 3,
    fields: {
      call_id: 'text',
      at_ms: 'f64',
      prompt_tokens: 'u32',
      completion_tokens: 'u32',
      usage_source,
      engine: 'text',
      engine_model: 'text',
      serves: 'text',
    },
  },
  ending: {
    code: 4,
    fields: {
      call_id: 'text',
      at_ms: 'f64',
      ending: ['whole', 'cut_by_client', 'cut_by_engine', 'refused', 'recovered'],
      status: 'u16',
      finish_reason: 'text',
      engine: 'text',
      engine_model: 'text',
      prompt_tokens: 'u32',
      cached_tokens: 'u32',
      completion_tokens: 'u32',
      reasoning_tokens: 'u32',
      usage_source,
      attempts: 'u8',
      queue_ms: 'f64',
      engine_ms: 'f64',
      first_token_ms: 'f64',
      total_ms: 'f64',
      response_sha256: 'hash',
      failure: 'text',
      audio_input_tokens: 'u32',
      audio_output_tokens: 'u32',
      serves: 'text',
    },
  },
  refusals: {
    code: 5,
    fields: { at_ms: 'f64', key_id: 'text', tenant: 'text', failure: 'text', count: 'u32' },
  },
  decision: { code: 6, fields: { call_id: 'text', at_ms: 'f64', text: 'text' } },
} as const satisfies KindTable

/** Codes from here on are marks of the frame format, not records. */
export const code_max = 239
