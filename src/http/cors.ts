import type { Config } from '../config/schema.ts'

/** CORS as configured; without origins no header is ever added. Credentials are never allowed, so `*` is safe to echo. */
export const corsHeaders = (config: Config, request: Request): Record<string, string> | undefined => {
  const { origins } = config.cors
  const origin = request.headers.get('origin')
  if (origins.length === 0 || origin === null) return undefined
  const any = origins.includes('*')
  if (!any && !origins.includes(origin)) return undefined
  return { 'access-control-allow-origin': any ? '*' : origin, vary: 'Origin', 'access-control-expose-headers': EXPOSED }
}

/** The answer to a preflight: needs no key; allows the headers that were asked for. */
export const preflight = (config: Config, request: Request): Response => {
  const cors = corsHeaders(config, request)
  if (cors === undefined) return new Response(null, { status: 204, headers: { allow: METHODS } })
  const asked = request.headers.get('access-control-request-headers')
  return new Response(null, {
    status: 204,
    headers: {
      ...cors,
      vary: 'Origin, Access-Control-Request-Headers',
      'access-control-allow-methods': METHODS,
      'access-control-max-age': '600',
      ...(asked === null ? {} : { 'access-control-allow-headers': asked }),
    },
  })
}

const METHODS = 'GET, HEAD, POST, DELETE, OPTIONS'
const EXPOSED =
  'retry-after, x-weir-call-id, x-weir-model, x-weir-engine, x-weir-cost-usd, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens'
