import type { Config } from '../config/schema.ts'

/**
 * CORS as configured (`cors.origins`); without origins no header is ever added. Every answer to a browser carries it,
 * errors and streams too, or a page sees a network error instead. Credentials are never allowed, so `*` is safe.
 */
export const withCors = (config: Config, request: Request, response: Response): Response => {
  const { origins } = config.cors
  if (origins.length === 0) return response
  const any = origins.includes('*')
  // A cache must not give one origin's answer to another.
  if (!any) response.headers.append('vary', 'Origin')
  const origin = request.headers.get('origin')
  if (origin === null || !(any || origins.includes(origin))) return response
  response.headers.set('access-control-allow-origin', any ? '*' : origin)
  response.headers.set('access-control-expose-headers', EXPOSED)
  return response
}

/** The answer to OPTIONS: needs no key. With CORS on it allows the headers that were asked for, whatever they are. */
export const preflight = (config: Config, request: Request, methods: string): Response => {
  const response = new Response(null, { status: 204, headers: { allow: `${methods}, OPTIONS` } })
  if (config.cors.origins.length === 0) return response
  response.headers.set('vary', 'Access-Control-Request-Headers')
  response.headers.set('access-control-allow-methods', methods)
  response.headers.set('access-control-max-age', '600')
  const asked = request.headers.get('access-control-request-headers')
  if (asked !== null) response.headers.set('access-control-allow-headers', asked)
  return response
}

const RATE = ['limit', 'remaining', 'reset'].flatMap((part) =>
  ['requests', 'tokens'].map((what) => `x-ratelimit-${part}-${what}`),
)
const EXPOSED = [
  'retry-after',
  'x-weir-call-id',
  'x-weir-model',
  'x-weir-engine',
  'x-weir-cost-usd',
  'x-weir-replayed',
  ...RATE,
].join(', ')
