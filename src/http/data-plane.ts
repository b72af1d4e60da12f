import { Elysia } from 'elysia'
import { Failure } from '../base/failure.ts'
import { turnEnd } from '../base/turn.ts'
import { type Endpoint, ENDPOINTS } from '../pipeline/endpoints.ts'
import { headFault, pathOf } from '../pipeline/frame.ts'
import type { House } from '../pipeline/house.ts'
import type { Serve } from '../pipeline/pipeline.ts'
import { noteRefusal } from '../pipeline/note-refusal.ts'
import { callProof, PROOF_PATH } from './call-proof.ts'
import { clientDocs } from './client-api.ts'
import { preflight, withCors } from './cors.ts'
import type { OpenJobs } from '../jobs/open-jobs.ts'
import { cancelJob, JOBS_PATH, showJob } from './jobs.ts'
import { listModels, MODELS_PATH, showModel } from './models-list.ts'
import { renderFailure } from './render.ts'

/**
 * Bun's longest idle timer, seconds. A stream is kept alive by its pings, which come more often. The timer must not be
 * switched off: it sticks to the connection, which would then stay open for ever once the stream is over.
 */
const STREAM_IDLE_S = 255

/** Slashes in a model's id are slashes of its address; a wildcard would not be found behind a Host as short as `gw`. */
const MODEL_ADDRESSES = Array.from(
  { length: 8 },
  (_, depth) => MODELS_PATH + ['/:a', '/:b', '/:c', '/:d', '/:e', '/:f', '/:g', '/:h'].slice(0, depth + 1).join(''),
)

/**
 * The addresses of the data plane: each registered by method and name, no hooks, bodies unread. Elysia finds the
 * address; everything else is the pipeline.
 */
export const dataPlane = (house: House, serve: Serve, jobs?: OpenJobs) => {
  const finish = (request: Request, response: Response): Response => {
    // A chunked body that was not read may yet turn out malformed: Bun would answer that too, after this answer.
    if (house.leaving || house.isCrowded() || (response.status >= 400 && request.headers.has('transfer-encoding')))
      response.headers.set('connection', 'close')
    return withCors(house.catalogue.config, request, response)
  }
  const run = async (request: Request, endpoint: Endpoint): Promise<Response> => {
    const keepOpen = () => app.server?.timeout(request, STREAM_IDLE_S)
    const answer = await serve({ request, endpoint, keepOpen }, house)
    // A refusal of a body that was not read goes out before Bun finds fault with the body.
    if (answer.ok) await turnEnd()
    return finish(request, answer)
  }
  const read = (request: Request, make: () => Response | Failure): Response => {
    const made = headFault(request) ?? make()
    return finish(request, made instanceof Failure ? refuse(made, house) : made)
  }
  const app = new Elysia({ name: 'data-plane' })
    .get(MODELS_PATH, ({ request }) => read(request, () => listModels(request, house)))
    .get(PROOF_PATH, async ({ request, params }) => {
      const made = await callProof(request, params.id, house)
      return read(request, () => made)
    })
    .get('/health', ({ request }) => read(request, () => new Response('OK')))
    .get('/', ({ request }) => read(request, () => new Response(GREETING, { headers: TEXT })))
    .get(`${JOBS_PATH}/:id`, ({ request }) => read(request, () => showJob(request, house, jobs)))
    .delete(`${JOBS_PATH}/:id`, ({ request }) => read(request, () => cancelJob(request, house, jobs)))
    .use(clientDocs())
    .onError(({ request, code, error }) => read(request, () => missed(request, house, code, error)))
  for (const endpoint of Object.values(ENDPOINTS))
    app.post(endpoint.path, ({ request }) => run(request, endpoint), { parse: 'none' })
  for (const address of MODEL_ADDRESSES)
    app.get(address, ({ request }) => read(request, () => showModel(request, house)))
  return app
}

const GREETING = 'Weir. The client API is described at /docs, the models at /v1/models.\n'
const TEXT = { 'content-type': 'text/plain; charset=utf-8' }

const refuse = (failure: Failure, house: House): Response => {
  noteRefusal(failure, undefined, house)
  house.metrics.failed(failure.code)
  return renderFailure(failure)
}

const READ = 'GET, HEAD'

/** Methods of the addresses, for 405 and preflights. */
const METHODS: ReadonlyMap<string, string> = new Map([
  ...Object.values(ENDPOINTS).map((endpoint) => [endpoint.path, 'POST'] as const),
  ...[MODELS_PATH, '/health', '/', '/docs', '/docs/json'].map((path) => [path, READ] as const),
])

/** Methods of an address with an id in it. */
const below = (path: string): string | undefined =>
  path.startsWith(`${MODELS_PATH}/`) ? READ : path.startsWith(`${JOBS_PATH}/`) ? 'GET, HEAD, DELETE' : undefined

/** No address with that method: a preflight, a wrong method, or nothing at all. */
const missed = (request: Request, house: House, code: unknown, error: unknown): Response | Failure => {
  if (code !== 'NOT_FOUND') {
    house.log('error', 'internal_error', { stage: 'http', cause: error })
    return new Failure('internal', { cause: error })
  }
  const path = pathOf(request.url)
  const shown = path.slice(0, 256)
  const allowed = METHODS.get(path) ?? below(path)
  if (allowed === undefined || (allowed === READ && (request.method === 'GET' || request.method === 'HEAD')))
    return new Failure('address_unknown', { says: `No such address: ${request.method} ${shown}.` })
  if (request.method === 'OPTIONS') return preflight(house.catalogue.config, request, allowed)
  return new Failure('method_not_allowed', { says: `${shown} takes ${allowed}.`, headers: { allow: allowed } })
}
