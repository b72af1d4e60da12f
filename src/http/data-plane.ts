import { Elysia } from 'elysia'
import { Failure } from '../base/failure.ts'
import { ENDPOINTS, type Endpoint } from '../pipeline/endpoints.ts'
import type { House } from '../pipeline/house.ts'
import type { Serve } from '../pipeline/pipeline.ts'
import { corsHeaders, preflight } from './cors.ts'
import { listModels, showModel } from './models-list.ts'
import { renderFailure } from './render.ts'

/** What the data plane needs of Bun's server. */
type Server = { timeout(request: Request, seconds: number): void } | null

/**
 * The addresses of the data plane: each registered by method and name, no hooks, bodies unread. Elysia finds the
 * address; everything else is the pipeline.
 */
export const dataPlane = (house: House, serve: Serve) => {
  const withCors = (request: Request, response: Response): Response => {
    const cors = corsHeaders(house.catalogue.config, request)
    if (cors) for (const [name, value] of Object.entries(cors)) response.headers.set(name, value)
    return response
  }
  const run = async (request: Request, server: Server, endpoint: Endpoint): Promise<Response> =>
    withCors(request, await serve({ request, endpoint, keepOpen: () => server?.timeout(request, 0) }, house))
  const answer = (request: Request, made: Response | Failure): Response =>
    withCors(request, made instanceof Failure ? renderFailure(made) : made)

  return new Elysia({ name: 'data-plane' })
    .post('/v1/chat/completions', ({ request, server }) => run(request, server, ENDPOINTS.chat), { parse: 'none' })
    .post('/v1/completions', ({ request, server }) => run(request, server, ENDPOINTS.completions), { parse: 'none' })
    .post('/v1/embeddings', ({ request, server }) => run(request, server, ENDPOINTS.embeddings), { parse: 'none' })
    .post('/data', ({ request, server }) => run(request, server, ENDPOINTS.data), { parse: 'none' })
    .get('/v1/models', ({ request }) => answer(request, listModels(request, house)))
    .get('/v1/models/:a', ({ request }) => answer(request, showModel(request, house)))
    .get('/v1/models/:a/:b', ({ request }) => answer(request, showModel(request, house)))
    .get('/v1/models/:a/:b/:c', ({ request }) => answer(request, showModel(request, house)))
    .get('/health', ({ request }) => answer(request, new Response('OK')))
    .get('/', ({ request }) =>
      answer(request, new Response(GREETING, { headers: { 'content-type': 'text/plain; charset=utf-8' } })),
    )
    .onError(({ request, code, error }) => answer(request, missed(request, house, code, error)))
}

const GREETING = 'Weir. The client API is described at /docs, the models at /v1/models.\n'

/** Methods of the addresses above, for 405 and preflights. */
const METHODS: Readonly<Record<string, string>> = {
  '/v1/chat/completions': 'POST',
  '/v1/completions': 'POST',
  '/v1/embeddings': 'POST',
  '/data': 'POST',
  '/v1/models': 'GET, HEAD',
  '/health': 'GET, HEAD',
  '/': 'GET, HEAD',
}

const missed = (request: Request, house: House, code: unknown, error: unknown): Response | Failure => {
  if (request.method === 'OPTIONS') return preflight(house.catalogue.config, request)
  if (code !== 'NOT_FOUND') return new Failure('internal', { cause: error })
  const path = URL.canParse(request.url) ? new URL(request.url).pathname : ''
  const allowed = METHODS[path]
  if (allowed === undefined)
    return new Failure('address_unknown', { says: `No such address: ${request.method} ${path.slice(0, 256)}.` })
  return new Failure('method_not_allowed', { says: `${path} takes ${allowed}.`, headers: { allow: allowed } })
}
