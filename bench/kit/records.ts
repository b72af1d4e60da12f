import { Failure } from '../../src/base/failure.ts'
import { newCallId, newId } from '../../src/base/ids.ts'
import type { JournalRecord } from '../../src/journal/record.ts'
import { type Journal, openJournal } from '../../src/journal/writer.ts'

/** Records as a worker makes them, and what benchmarks of the journal do with one. */

const engine_model = 'meta-llama/Llama-3.1-8B-Instruct'
const key_ids = Array.from({ length: 64 }, () => newId('key'))

/** Of one call, what differs from the others'. */
export type Known = {
  readonly call_id: string
  readonly end_user: string
  readonly i: number
  readonly sha256: Uint8Array
}
export const newCall = (i: number): Known => ({
  ...{ call_id: newCallId(), end_user: newId('user'), i, sha256: crypto.getRandomValues(new Uint8Array(32)) },
})

export const intentOf = ({ call_id, end_user, i, sha256 }: Known): JournalRecord => ({
  kind: 'intent',
  call_id,
  at_ms: 1_790_000_000_000 + i,
  tenant: 'acme',
  key_id: key_ids[i % key_ids.length]!,
  end_user,
  model: 'llama-3.1-8b',
  engine: 'vllm-a',
  engine_model,
  endpoint: '/v1/chat/completions',
  stream: true,
  hold_nanodollars: 6_550_000 + i,
  prompt_tokens_estimate: 320,
  price_version: 1,
  request_sha256: sha256,
  serves: '',
  images: 0,
})

export const endingOf = ({ call_id, i, sha256 }: Known): JournalRecord => ({
  kind: 'ending',
  call_id,
  at_ms: 1_790_000_001_000 + i,
  ending: 'whole',
  status: 200,
  finish_reason: 'stop',
  engine: 'vllm-a',
  engine_model,
  prompt_tokens: 310,
  cached_tokens: 64,
  completion_tokens: 128,
  reasoning_tokens: 0,
  usage_source: 'engine',
  attempts: 1,
  queue_ms: 0.5,
  engine_ms: 950.25,
  first_token_ms: 80.5,
  total_ms: 1_000.5,
  response_sha256: sha256,
  failure: '',
  audio_input_tokens: 0,
  audio_output_tokens: 0,
  serves: '',
})

/** Intent and ending of so many calls. */
export const recordsOf = (count: number): JournalRecord[] =>
  Array.from({ length: count }, (_, i) => newCall(i)).flatMap((call) => [intentOf(call), endingOf(call)])

/** A new journal; each of a folder needs an incarnation of its own. */
export const open = async (
  folder: string,
  incarnation: number,
  durability: 'standard' | 'strict',
): Promise<Journal> => {
  const journal = await openJournal({ folder, worker_index: 0, incarnation, durability, sync_ms: 50 })
  if (journal instanceof Failure) throw new Error('the journal did not open', { cause: journal.detail.cause })
  return journal
}

/** Appends, or throws. */
export const mustAppend = (journal: Journal, record: JournalRecord): number => {
  const at = journal.append(record)
  if (at instanceof Failure) throw new Error('the journal is full', { cause: at.detail.cause })
  return at
}

/** Waits until there is room: a bench can append faster than segments are made. */
export const room = async (journal: Journal): Promise<void> => {
  for (let tries = 0; !journal.has_room(); tries++) {
    if (tries > 5_000) throw new Error('the journal stays full', { cause: journal.trouble()?.detail.cause })
    await Bun.sleep(1)
  }
}

/** Resolves in the next turn of the loop. */
export const nextTurn = (): Promise<void> => new Promise((turn) => setImmediate(turn))
