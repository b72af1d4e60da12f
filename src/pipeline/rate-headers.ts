import { Failure } from '../base/failure.ts'
import type { RateState } from '../quota/gcra.ts'

/** `x-ratelimit-*` as OpenAI names them; reset in seconds. */
export const rateHeaders = (requests: RateState | undefined, tokens?: RateState): Record<string, string> => ({
  ...(requests && named(requests, 'requests')),
  ...(tokens && named(tokens, 'tokens')),
})

const named = (rate: RateState, what: string) => ({
  [`x-ratelimit-limit-${what}`]: String(rate.limit),
  [`x-ratelimit-remaining-${what}`]: String(rate.remaining),
  [`x-ratelimit-reset-${what}`]: `${Math.ceil(rate.reset_ms / 1000)}s`,
})

/** A request beyond a limit of requests a minute, whosever the limit is. */
export const rateExceeded = (whose: string, rate: RateState): Failure =>
  new Failure('rate_exceeded', {
    says: `The limit of ${rate.limit} requests a minute for this ${whose} is used up.`,
    retry_after_s: rate.retry_after_ms / 1000,
    headers: rateHeaders(rate),
  })
