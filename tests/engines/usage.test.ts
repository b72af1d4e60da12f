import { expect, test } from 'bun:test'

import { readUsage, type Usage } from '../../src/engines/usage.ts'

const usage = (
  prompt: number,
  cached: number,
  written: number,
  completion: number,
  reasoning: number,
  doubtful = false,
  heard = 0,
  spoken = 0,
): Usage => ({
  prompt_tokens: prompt,
  cached_tokens: cached,
  cache_write_tokens: written,
  completion_tokens: completion,
  reasoning_tokens: reasoning,
  audio_input_tokens: heard,
  audio_output_tokens: spoken,
  doubtful,
})
const openai = { prompt_tokens: 2000, completion_tokens: 600, total_tokens: 2600 }

test.each([
  [
    'C14: details are parts, not additions',
    { ...openai, prompt_tokens_details: { cached_tokens: 1500 }, completion_tokens_details: { reasoning_tokens: 450 } },
    usage(2000, 1500, 0, 600, 450),
  ],
  ['no details', openai, usage(2000, 0, 0, 600, 0)],
  [
    'null details',
    { ...openai, prompt_tokens_details: null, completion_tokens_details: null },
    usage(2000, 0, 0, 600, 0),
  ],
  [
    'audio, beside what was cached and reasoned',
    {
      ...openai,
      prompt_tokens_details: { cached_tokens: 500, audio_tokens: 300 },
      completion_tokens_details: { reasoning_tokens: 100, audio_tokens: 200 },
    },
    usage(2000, 500, 0, 600, 100, false, 300, 200),
  ],
  [
    'audio that was cached costs what is cached',
    { ...openai, prompt_tokens_details: { cached_tokens: 1900, audio_tokens: 300 } },
    usage(2000, 1900, 0, 600, 0, false, 100, 0),
  ],
  ['embeddings', { prompt_tokens: 8, total_tokens: 8 }, usage(8, 0, 0, 0, 0)],
  ['zeros', { prompt_tokens: 0, completion_tokens: 0 }, usage(0, 0, 0, 0, 0)],
  [
    'responses',
    {
      input_tokens: 100,
      output_tokens: 50,
      input_tokens_details: { cached_tokens: 80 },
      output_tokens_details: { reasoning_tokens: 30 },
    },
    usage(100, 80, 0, 50, 30),
  ],
  [
    'anthropic',
    { input_tokens: 100, output_tokens: 50, cache_read_input_tokens: 1000, cache_creation_input_tokens: 200 },
    usage(1300, 1000, 200, 50, 0),
  ],
  ['anthropic without cache', { input_tokens: 100, output_tokens: 50 }, usage(100, 0, 0, 50, 0)],
  [
    'anthropic, cache null',
    { input_tokens: 100, output_tokens: 50, cache_read_input_tokens: null, cache_creation_input_tokens: 7 },
    usage(107, 0, 7, 50, 0),
  ],
  [
    'anthropic fields beside openai ones are counted already',
    { ...openai, cache_read_input_tokens: 1500, cache_creation_input_tokens: 100 },
    usage(2000, 1500, 100, 600, 0),
  ],
  [
    'cache hits of deepseek',
    { ...openai, prompt_cache_hit_tokens: 64, prompt_cache_miss_tokens: 1936 },
    usage(2000, 64, 0, 600, 0),
  ],
  [
    'reasoning left out of the completion',
    {
      prompt_tokens: 10,
      completion_tokens: 5,
      total_tokens: 115,
      completion_tokens_details: { reasoning_tokens: 100 },
    },
    usage(10, 0, 0, 105, 100),
  ],
  [
    'more cached than prompt',
    { ...openai, prompt_tokens_details: { cached_tokens: 2001 } },
    usage(2000, 2000, 0, 600, 0, true),
  ],
  [
    'more reasoning than completion',
    { ...openai, completion_tokens_details: { reasoning_tokens: 601 } },
    usage(2000, 0, 0, 600, 600, true),
  ],
  ['negative details', { ...openai, prompt_tokens_details: { cached_tokens: -5 } }, usage(2000, 0, 0, 600, 0, true)],
  [
    'details of another type',
    { ...openai, completion_tokens_details: { reasoning_tokens: '450' } },
    usage(2000, 0, 0, 600, 0, true),
  ],
  ['negative zero', { prompt_tokens: -0, completion_tokens: 1 }, usage(0, 0, 0, 1, 0)],
])('%s', (_, value, want) => expect(readUsage(value)).toEqual(want))

test.each(
  [
    undefined,
    null,
    5,
    'x',
    [],
    {},
    { total_tokens: 5 },
    { prompt_tokens: -1, completion_tokens: 5 },
    { prompt_tokens: 1, completion_tokens: -5 },
    { prompt_tokens: 1.5, completion_tokens: 5 },
    { prompt_tokens: 1, completion_tokens: 5.5 },
    { prompt_tokens: '1', completion_tokens: 5 },
    { prompt_tokens: 1, completion_tokens: '5' },
    { prompt_tokens: 1e300, completion_tokens: 5 },
    { prompt_tokens: 1, completion_tokens: 1_000_000_001 },
    { prompt_tokens: Number.NaN, completion_tokens: 5 },
    { prompt_tokens: null, completion_tokens: 5 },
  ].map((value) => [value] as const),
)('%j is no usage', (value) => expect(readUsage(value)).toBeUndefined())
