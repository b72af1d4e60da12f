import { Failure } from '../base/failure.ts'
import type { RateState } from '../quota/gcra.ts'

/** `x-ratelimit-*` as OpenAI names them; reset in seconds. */
export const rateHeaders = (requests: RateState | undefined, tokens?: RateState): Record<string, string> => {
  const headers: Record<string, string> = {}
  addRateHeaders(headers, requests, tokens)
  return headers
}

/** Adds {@link rateHeaders} to others. */
export const addRateHeaders = (
  headers: Record<string, string>,
  requests: RateState | undefined,
  tokens?: RateState,
): void => {
  if (requests) {
    headers['x-ratelimit-limit-requests'] = String(requests.limit)
    headers['x-ratelimit-remaining-requests'] = String(requests.remaining)
    headers['x-ratelimit-reset-requests'] = seconds(requests)
  }
  if (tokens) {
    headers['x-ratelimit-limit-tokens'] = String(tokens.limit)
    headers['x-ratelimit-remaining-tokens'] = String(tokens.remaining)
    headers['x-ratelimit-reset-tokens'] = seconds(tokens)
  }
}

const seconds = ({ reset_ms }: RateState): string => `${Math.ceil(reset_ms / 1000)}s`

/** A request beyond a limit of requests a minute, whosever the limit is. */
export const rateExceeded = (whose: string, rate: RateState): Failure =>
  new Failure('rate_exceeded', {
    says: `The limit of ${rate.limit} requests a minute for this ${whose} is used up.`,
    retry_after_s: rate.retry_after_ms / 1000,
    headers: rateHeaders(rate),
  })
