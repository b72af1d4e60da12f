import { Failure } from '../../src/base/failure.ts'
import { type JournalFiles, real_files, type SegmentFile } from '../../src/journal/files.ts'
import type { Ending, Intent, JournalRecord } from '../../src/journal/record.ts'
import { type Journal, type JournalOptions, openJournal } from '../../src/journal/writer.ts'
import { pick, type Roll } from '../kit/wait.ts'

/** An intent of usual size. */
export const intent = (call_id: string, at_ms = 1_790_000_000_000.5): Intent => ({
  kind: 'intent',
  call_id,
  at_ms,
  tenant: 'acme',
  key_id: 'key_0192f3c47a8b7c3e9d1e5f60718293a4',
  end_user: 'user-17',
  model: 'llama-3.1-8b',
  engine: 'vllm-a',
  engine_model: 'meta-llama/Llama-3.1-8B-Instruct',
  endpoint: '/v1/chat/completions',
  stream: true,
  hold_nanodollars: 6_550_000,
  prompt_tokens_estimate: 321,
  price_version: 3,
  request_sha256: new Uint8Array(32).fill(7),
  serves: '',
  images: 0,
})

/** An ending of usual size. */
export const ending = (call_id: string, at_ms = 1_790_000_001_000.25): Ending => ({
  kind: 'ending',
  call_id,
  at_ms,
  ending: 'whole',
  status: 200,
  finish_reason: 'stop',
  engine: 'vllm-a',
  engine_model: 'meta-llama/Llama-3.1-8B-Instruct',
  prompt_tokens: 320,
  cached_tokens: 64,
  completion_tokens: 128,
  reasoning_tokens: 0,
  usage_source: 'engine',
  attempts: 1,
  queue_ms: 0.25,
  engine_ms: 950.5,
  first_token_ms: 80.125,
  total_ms: 1_000.75,
  response_sha256: new Uint8Array(32).fill(9),
  failure: '',
  audio_input_tokens: 0,
  audio_output_tokens: 0,
  serves: '',
})

/** A record of any kind; every field takes any value that its type can hold. */
export const anyRecord = (roll: Roll): JournalRecord => {
  const text = () => Array.from({ length: roll(24) }, () => pick(roll, ['a', 'Z', '/', '\0', 'é', '漢', '😀'])).join('')
  const u32 = () => pick(roll, [0, 1, 0xffff_ffff, roll(2 ** 32)])
  const f64 = () => pick(roll, [0, -1.5, 1e300, Number.MIN_VALUE, roll(2 ** 32) / 7])
  const hash = () => Uint8Array.from({ length: 32 }, () => roll(256))
  const safe = [Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER, 0, -1, 2 ** 32, -(2 ** 32) - 1]
  const usage_source = pick(roll, ['engine', 'estimated'] as const)
  const common = { call_id: text(), at_ms: f64() }
  const kinds: (() => JournalRecord)[] = [
    () => ({
      ...intent(''),
      ...common,
      tenant: text(),
      key_id: text(),
      end_user: text(),
      model: text(),
      engine: text(),
      engine_model: text(),
      endpoint: text(),
      stream: roll(2) === 0,
      hold_nanodollars: pick(roll, safe),
      prompt_tokens_estimate: u32(),
      price_version: u32(),
      request_sha256: hash(),
      serves: text(),
      images: u32(),
    }),
    () => ({ kind: 'attempt', ...common, engine: text(), engine_model: text(), because: text(), serves: text() }),
    () => ({ kind: 'decision', ...common, text: text() }),
    () => ({
      kind: 'progress',
      ...common,
      prompt_tokens: u32(),
      completion_tokens: u32(),
      usage_source,
      engine: text(),
      engine_model: text(),
      serves: text(),
    }),
    () => ({
      ...ending(''),
      ...common,
      ending: pick(roll, ['whole', 'cut_by_client', 'cut_by_engine', 'refused', 'recovered'] as const),
      status: roll(0x1_0000),
      finish_reason: text(),
      engine: text(),
      engine_model: text(),
      prompt_tokens: u32(),
      cached_tokens: u32(),
      completion_tokens: u32(),
      reasoning_tokens: u32(),
      usage_source,
      attempts: roll(256),
      queue_ms: f64(),
      engine_ms: f64(),
      first_token_ms: f64(),
      total_ms: f64(),
      response_sha256: hash(),
      failure: text(),
      audio_input_tokens: u32(),
      audio_output_tokens: u32(),
      serves: text(),
    }),
  ]
  return pick(roll, kinds)()
}

/** A value that must not be a failure. */
export const good = <T>(value: T | Failure): T => {
  if (value instanceof Failure) throw new Error(`${value.code}: ${value.detail.says}`, { cause: value.detail.cause })
  return value
}

/** A journal with the smallest segments, so that few records fill one. */
export const openSmall = async (folder: string, options: Partial<JournalOptions> = {}): Promise<Journal> =>
  good(
    await openJournal({
      folder,
      worker_index: 1,
      incarnation: 1,
      durability: 'standard',
      sync_ms: 5,
      segment_bytes: 64 * 1024,
      retry_ms: 5,
      ...options,
    }),
  )

/** The real files, with some operations replaced; `sync` goes round the real one of every segment. */
export const filesWith = (
  changed: Partial<JournalFiles> & { readonly sync?: (real: () => Promise<void>) => Promise<void> },
): JournalFiles => {
  const { sync, ...rest } = changed
  const create: JournalFiles['create'] = async (...given) => {
    const file = await (rest.create ?? real_files.create)(...given)
    const wrapped: SegmentFile = {
      bytes: file.bytes,
      sync: () => (sync ? sync(() => file.sync()) : file.sync()),
      close: () => file.close(),
    }
    return wrapped
  }
  return { ...real_files, ...rest, create }
}
