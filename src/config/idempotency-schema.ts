import { Type } from '@sinclair/typebox'
import { int, section } from './kinds.ts'

/** How answers to calls with an Idempotency-Key are kept. */
export const Idempotency = Type.Object(
  {
    keep_ms: int(
      60_000,
      2_592_000_000,
      86_400_000,
      'How long an answer is kept for a repeat of its call; then it may go, within a minute.',
    ),
    entries_max: int(1, 10_000_000, 100_000, 'Answers kept; over it the oldest go.'),
    bytes_max: int(65_536, 1_099_511_627_776, 1_073_741_824, 'Bytes of kept answers on disk; over it the oldest go.'),
    answer_bytes_max: int(
      1_024,
      67_108_864,
      4_194_304,
      'Largest answer that is kept; a repeat of a call with a larger one is refused.',
    ),
  },
  section,
)
