import { swagger } from '@elysiajs/swagger'
import { Elysia } from 'elysia'
import { ADMIN_BODY_BYTES_MAX } from '../admin/input.ts'
import { houseView, missing } from '../admin/machine.ts'
import { authenticate } from '../admin/operator.ts'
import type { OpsHouse } from '../admin/port.ts'
import type { AdminRoute, Answer } from '../admin/route.ts'
import { ADMIN_ROUTES } from '../admin/routes.ts'
import { Failure } from '../base/failure.ts'
import { DASHBOARD } from '../dashboard/page.ts'
import { VERIFY_HEADERS, verifyPage } from '../dashboard/verify-page.ts'
import { metricsPage } from './metrics-page.ts'
import { describe, opsDocumentation, PUBLIC_DETAILS } from './ops-details.ts'
import { PROMETHEUS_TYPE } from './prometheus.ts'
import { renderFailure } from './render.ts'
import { docsPages, type OpenApi, SAFE_HEADERS } from './swagger.ts'

/**
 * The ops plane: an application to `listen` on an address of its own. Every address under `/admin` and `/audit` is a row of
 * `ADMIN_ROUTES`, and `guarded` is the only way to one: no hook, whose reach depends on where it stands, decides
 * who may pass.
 */
export const opsPlane = (house: OpsHouse): Elysia => {
  const app = new Elysia({ name: 'ops-plane', normalize: false, serve: { maxRequestBodySize: ADMIN_BODY_BYTES_MAX } })
  // First: a hook does not reach a route that stands before it.
  app.onError(({ request, code, error }) => renderFailure(missed(request, code, error, house)))
  for (const { path, answer } of publicAddresses(house)) app.get(path, answer, { detail: PUBLIC_DETAILS[path]! })
  for (const route of ADMIN_ROUTES)
    app.route(route.method, route.path, ({ request, params }) => guarded(route, request, params, house), {
      parse: 'none',
      detail: describe(route),
    })
  let document: Promise<OpenApi> | undefined
  app.use(docsPages('Weir: ops plane', () => (document ??= opsDocument())))
  return app
}

/** The one door: who has no operator's token meets no handler, and learns nothing of what stands behind, but for what `audit.public` opens. */
const guarded = async (
  route: AdminRoute,
  request: Request,
  params: Readonly<Record<string, string>> | undefined,
  house: OpsHouse,
): Promise<Response> => {
  const parts = params ?? {}
  const is_url = URL.canParse(request.url)
  const open = is_url && house.catalogue().config.audit.public && route.serveAnyone?.(request, parts, house)
  if (open) return rendered(await open, route.status)
  const operator = authenticate(request.headers, house.admin_token_sha256)
  if (operator instanceof Failure) return renderFailure(operator)
  if (!is_url) return renderFailure(new Failure('header_invalid', { param: 'host' }))
  return rendered(await route.serve(operator, request, parts, house), route.status)
}

const rendered = (answer: Answer | Failure, usual_status: number): Response => {
  if (answer instanceof Failure) return renderFailure(answer)
  const status = answer.status ?? usual_status
  if ('json' in answer) return Response.json(answer.json, { status, headers: PRIVATE_HEADERS })
  const body = typeof answer.body === 'string' ? answer.body : new Uint8Array(answer.body)
  return new Response(body, { status, headers: { ...PRIVATE_HEADERS, 'content-type': answer.type } })
}

// What it answers is of this moment or for this operator.
const PRIVATE_HEADERS = { ...SAFE_HEADERS, 'cache-control': 'no-store' }

type PublicAddress = { readonly path: keyof typeof PUBLIC_DETAILS; readonly answer: () => Response }

const publicAddresses = ({ table, catalogue, now }: OpsHouse): readonly PublicAddress[] => [
  {
    path: '/',
    answer: () => new Response(DASHBOARD.html, { headers: { ...SAFE_HEADERS, ...DASHBOARD.headers } }),
  },
  {
    path: '/verify',
    answer: () => new Response(verifyPage(), { headers: { ...SAFE_HEADERS, ...VERIFY_HEADERS } }),
  },
  { path: '/live', answer: () => Response.json({ status: 'live' }, { headers: PRIVATE_HEADERS }) },
  {
    path: '/ready',
    answer: () => {
      const lacks = missing(table, now())
      if (lacks.length === 0)
        return Response.json(
          { status: 'ready', generation: houseView(table, now()).generation },
          { headers: PRIVATE_HEADERS },
        )
      return Response.json(
        { status: 'not ready', missing: lacks },
        { status: 503, headers: { ...PRIVATE_HEADERS, 'retry-after': '1' } },
      )
    },
  },
  {
    path: '/metrics',
    answer: () =>
      new Response(metricsPage(table, catalogue().config, now()), {
        headers: { ...PRIVATE_HEADERS, 'content-type': PROMETHEUS_TYPE },
      }),
  },
]

const missed = (request: Request, code: unknown, error: unknown, house: OpsHouse): Failure => {
  if (code !== 'NOT_FOUND') {
    house.log('error', 'ops_request_failed', { method: request.method, error })
    return new Failure('internal', { cause: error })
  }
  const path = URL.canParse(request.url) ? new URL(request.url).pathname : ''
  const allowed = ADDRESSES.filter((address) => matches(address.path, path)).map(({ method }) => method)
  if (allowed.length === 0)
    return new Failure('address_unknown', { says: `No such address: ${request.method} ${path.slice(0, 256)}.` })
  const allow = [...new Set(allowed.flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : [method])))].join(', ')
  return new Failure('method_not_allowed', { says: `${path.slice(0, 256)} takes ${allow}.`, headers: { allow } })
}

const ADDRESSES: readonly { readonly method: string; readonly path: string }[] = [
  ...Object.keys(PUBLIC_DETAILS).map((path) => ({ method: 'GET', path })),
  ...ADMIN_ROUTES,
]

const matches = (pattern: string, path: string): boolean => {
  const steps = path.split('/')
  const wanted = pattern.split('/')
  return wanted.length === steps.length && wanted.every((step, at) => step.startsWith(':') || step === steps[at])
}

/**
 * The document of the addresses above, made by the plugin from their details. The plugin's own page would load a script
 * from another host, so it lives in an application that nobody can reach, and only its document leaves.
 */
const opsDocument = async (): Promise<OpenApi> => {
  const app = new Elysia({ name: 'ops-document' })
  app.use(swagger({ path: '/page', specPath: '/document', documentation: opsDocumentation(), exclude: ['/page'] }))
  for (const [path, detail] of Object.entries(PUBLIC_DETAILS)) app.get(path, '', { detail })
  for (const route of ADMIN_ROUTES) app.route(route.method, route.path, () => '', { detail: describe(route) })
  const answer = await app.handle(new Request('http://localhost/document'))
  if (!answer.ok) throw new Error(`the document of the ops plane could not be made: ${answer.status}`)
  return (await answer.json()) as OpenApi
}
