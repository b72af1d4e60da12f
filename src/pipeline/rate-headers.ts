import type { RateState } from '../quota/gcra.ts'

/** `x-ratelimit-*` as OpenAI names them; reset in seconds. */
export const rateHeaders = (rate: RateState): Record<string, string> => ({
  'x-ratelimit-limit-requests': String(rate.limit),
  'x-ratelimit-remaining-requests': String(rate.remaining),
  'x-ratelimit-reset-requests': `${Math.ceil(rate.reset_ms / 1000)}s`,
})
