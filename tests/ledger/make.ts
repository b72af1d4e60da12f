import type { Attempt, Ending, Intent, JournalRecord, Progress } from '../../src/journal/record.ts'
import { priceList, type Price } from '../../src/ledger/pricing.ts'
import type { JournaledRecord } from '../../src/ledger/posting.ts'
import type { Roll } from '../kit/wait.ts'

/** The notation's default prices: input $2.00, cached input $0.50, output $8.00 per million tokens. */
export const PRICE: Price = {
  input_picodollars: 2_000_000n,
  cached_input_picodollars: 500_000n,
  output_picodollars: 8_000_000n,
  reasoning_picodollars: null,
  audio_input_picodollars: null,
  audio_output_picodollars: null,
  request_nanodollars: 0n,
  image_nanodollars: 0n,
  free: false,
}

export const PRICES = priceList([{ model: 'm1', version: 1, valid_from_ms: 0, ...PRICE }])

export const AT_MS = Date.UTC(2026, 6, 31, 12)

export const intent = (call_id: string, changes: Partial<Intent> = {}): Intent => ({
  kind: 'intent',
  call_id,
  at_ms: AT_MS,
  tenant: 'acme',
  key_id: 'key_1',
  end_user: 'jo',
  model: 'm1',
  engine: 'e1',
  engine_model: 'm1-instruct',
  endpoint: '/v1/chat/completions',
  stream: true,
  hold_nanodollars: 10_000_000,
  prompt_tokens_estimate: 50,
  price_version: 1,
  request_sha256: new Uint8Array(32).fill(1),
  serves: '',
  images: 0,
  ...changes,
})

export const attempt = (call_id: string, changes: Partial<Attempt> = {}): Attempt => ({
  kind: 'attempt',
  call_id,
  at_ms: AT_MS + 10,
  engine: 'e2',
  engine_model: 'm1-other',
  because: 'engine_timeout',
  serves: '',
  ...changes,
})

export const progress = (call_id: string, changes: Partial<Progress> = {}): Progress => ({
  kind: 'progress',
  call_id,
  at_ms: AT_MS + 500,
  prompt_tokens: 100,
  completion_tokens: 20,
  usage_source: 'estimated',
  engine: '',
  engine_model: '',
  serves: '',
  ...changes,
})

export const ending = (call_id: string, changes: Partial<Ending> = {}): Ending => ({
  kind: 'ending',
  call_id,
  at_ms: AT_MS + 1000,
  ending: 'whole',
  status: 200,
  finish_reason: 'stop',
  engine: 'e1',
  engine_model: 'm1-instruct',
  prompt_tokens: 2000,
  cached_tokens: 1500,
  completion_tokens: 600,
  reasoning_tokens: 450,
  usage_source: 'engine',
  attempts: 1,
  queue_ms: 1,
  engine_ms: 990,
  first_token_ms: 120,
  total_ms: 1000,
  response_sha256: new Uint8Array(32).fill(2),
  failure: '',
  audio_input_tokens: 0,
  audio_output_tokens: 0,
  serves: '',
  ...changes,
})

/** Lays records one after the other into a series, ten to a segment, 100 bytes each. */
export const journal = (series: string, records: readonly JournalRecord[]): JournaledRecord[] =>
  records.map((record, nth) => ({
    record,
    series,
    segment: Math.floor(nth / 10),
    offset: 64 + (nth % 10) * 100,
    next_offset: 164 + (nth % 10) * 100,
  }))

/** A random life of some calls: valid orders within a call are shuffled, repeated and cut short. */
export const randomRecords = (roll: Roll, calls: number): JournalRecord[] => {
  const records: { at: number; record: JournalRecord }[] = []
  for (let call = 0; call < calls; call++) {
    const id = `call_${String(call).padStart(3, '0')}`
    const hold: Partial<Intent> = { hold_nanodollars: roll(4) * 3_000_000, tenant: `t${roll(3)}`, model: `m${roll(3)}` }
    const use: Partial<Ending> = { prompt_tokens: roll(3000), cached_tokens: roll(3000), completion_tokens: roll(900) }
    const life: JournalRecord[] = [intent(id, hold)]
    for (let n = roll(3); n > 0; n--) life.push(attempt(id, { at_ms: AT_MS + roll(100) }))
    for (let n = roll(3); n > 0; n--) life.push(progress(id, { at_ms: AT_MS + roll(100), completion_tokens: roll(50) }))
    if (roll(4) > 0) life.push(ending(id, { ...use, ending: roll(2) ? 'whole' : 'refused' }))
    for (const record of life)
      for (let copies = roll(8) ? 1 : 2; copies > 0; copies--) records.push({ at: roll(1000), record })
    if (roll(5) === 0) records.splice(roll(records.length), 1)
  }
  return records.sort((one, other) => one.at - other.at).map(({ record }) => record)
}
